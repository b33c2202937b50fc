"""A Jacobian as source code that does not need veenv."""

from veenv.export.c import to_c
from veenv.export.code import to_code

__all__ = ["to_c", "to_code"]
