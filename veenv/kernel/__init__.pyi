from . import cpu, fusing, pallas, primitive, program, unrolling, weights

__all__ = ["cpu", "fusing", "pallas", "primitive", "program", "unrolling", "weights"]
