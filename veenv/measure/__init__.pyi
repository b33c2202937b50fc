from . import measured, timing, validate

__all__ = ["measured", "timing", "validate"]
