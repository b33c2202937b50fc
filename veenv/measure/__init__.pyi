from . import measured, proof, timing, validate

__all__ = ["measured", "proof", "timing", "validate"]
