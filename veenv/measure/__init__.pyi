from . import arithmetic, comparison, proof, report, timing, validation

__all__ = ["arithmetic", "comparison", "proof", "report", "timing", "validation"]
