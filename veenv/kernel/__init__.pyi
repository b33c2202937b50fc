from . import building, cpu, fusing, primitive, ptx, scalar_program

__all__ = ["building", "cpu", "fusing", "primitive", "ptx", "scalar_program"]
