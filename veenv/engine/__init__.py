"""The Jacobian engine: partials with values, eliminated in a given order."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["graphax"])
