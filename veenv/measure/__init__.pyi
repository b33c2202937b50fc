from . import arithmetic, comparison, measured, proof, timing, validation

__all__ = ["arithmetic", "comparison", "measured", "proof", "timing", "validation"]
