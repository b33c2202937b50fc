"""Outlines batched regions: what acts elementwise along some axes becomes one equation each."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["batched_region", "outlining"])
