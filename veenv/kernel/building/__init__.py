"""From a jaxpr to a scalar program: what each primitive is in operations on single numbers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["builder", "unrolling"])
