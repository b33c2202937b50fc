from . import cpu, fusing, pallas, primitive, program, unrolling

__all__ = ["cpu", "fusing", "pallas", "primitive", "program", "unrolling"]
