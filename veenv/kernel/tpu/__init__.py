"""Scalar programs on a TPU, by Pallas (Mosaic)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["pallas"])
