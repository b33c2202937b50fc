"""Builds a scalar program from a jaxpr: each primitive becomes operations on single numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["builder", "unrolling"])
