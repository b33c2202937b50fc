"""How dtypes and constants are written in LLVM IR."""

from __future__ import annotations

from typing import Any

import numpy as np

from veenv.kernel.program import FLOATS

_TYPES = {"float32": "float", "float64": "double", "bool": "i1"}


def element(dtype: str) -> str:
    """The LLVM type of one number in a register."""
    return _TYPES.get(dtype) or f"i{dtype.lstrip('uint')}"


def memory_element(dtype: str) -> str:
    """The LLVM type of one number in memory."""
    return "i8" if dtype == "bool" else element(dtype)


def suffix(kind: str) -> str:
    """An LLVM vector type as it stands in the name of an intrinsic."""
    count, _, of = kind.strip("<>").split()
    return f"v{count}{ {'float': 'f32', 'double': 'f64'}.get(of, of) }"


def literal(value: Any) -> str:
    """A NumPy scalar as an LLVM constant; floats by their bits in double precision."""
    if value.dtype == np.bool_:
        return "true" if value else "false"
    if value.dtype.name in FLOATS:
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return str(int(value))
