from . import cpu, fuse, pallas, primitive, program, schedule, unroll

__all__ = ["cpu", "fuse", "pallas", "primitive", "program", "schedule", "unroll"]
