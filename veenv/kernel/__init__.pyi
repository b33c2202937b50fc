from . import cpu, fusing, pallas, primitive, program, ptx, unrolling

__all__ = ["cpu", "fusing", "pallas", "primitive", "program", "ptx", "unrolling"]
