from . import arithmetic, comparison, measured, proof, report, timing, validation

__all__ = ["arithmetic", "comparison", "measured", "proof", "report", "timing", "validation"]
