"""What an operation does to NumPy scalars or arrays, for folding constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veenv.kernel.program import FLOATS, Op, dtype_name
from veenv.rules.operations import OPERATIONS


def evaluate(op: Op, args: Sequence[Any]) -> Any:
    """The value of an operation at NumPy scalars or arrays, in the operation's dtype.

    Functions of float32 are evaluated in float64 and rounded once.
    """
    with np.errstate(all="ignore"):
        if op.name == "convert":
            value = _convert(args[0], op.dtype)
        elif op.name == "bitcast":
            value = np.asarray(args[0]).view(op.dtype)
        else:
            if op.name == "call" and op.dtype == "float32":
                args = [np.asarray(a, np.float64) for a in args]
            value = OPERATIONS[op.attr if op.name == "call" else op.name].numpy(*args)
        return np.asarray(value).astype(op.dtype)[()]


def _convert(x: Any, dtype: str) -> Any:
    x = np.asarray(x)
    if dtype == "bool":
        return x != 0
    if dtype_name(x.dtype) in FLOATS and dtype not in FLOATS:
        info = np.iinfo(dtype)
        inside = np.clip(np.trunc(np.nan_to_num(x.astype(np.float64))), info.min, info.max)
        top, bottom = x >= float(info.max), x <= float(info.min)
        safe = np.where(top | bottom, 0, inside).astype(dtype)
        return np.where(top, info.max, np.where(bottom, info.min, safe))
    return x.astype(dtype)
