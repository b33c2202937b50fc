"""Outlines batched regions: subprograms that act elementwise along axes become one equation.

In: a `Program`. Out: a `Program` with `BatchedRegion`s, the inverse of `jax.vmap`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["batched_region", "outlining"])
