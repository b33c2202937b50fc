from . import building, cpu, fusing, primitive, ptx, scalar_program, tpu

__all__ = ["building", "cpu", "fusing", "primitive", "ptx", "scalar_program", "tpu"]
