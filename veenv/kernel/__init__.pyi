from . import cpu, fuse, pallas, primitive, program, schedule, unroll, weights

__all__ = ["cpu", "fuse", "pallas", "primitive", "program", "schedule", "unroll", "weights"]
