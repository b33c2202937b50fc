"""A Jacobian as source code that does not need veenv."""

from veenv.export.c import to_c

__all__ = ["to_c"]
