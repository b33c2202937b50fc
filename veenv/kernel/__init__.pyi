from . import building, cpu, fusing, primitive, scalar_program

__all__ = ["building", "cpu", "fusing", "primitive", "scalar_program"]
