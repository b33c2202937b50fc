from . import arithmetic, measured, proof, timing, validate

__all__ = ["arithmetic", "measured", "proof", "timing", "validate"]
