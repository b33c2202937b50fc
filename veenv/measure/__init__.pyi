from . import arithmetic, measured, proof, timing, validation

__all__ = ["arithmetic", "measured", "proof", "timing", "validation"]
