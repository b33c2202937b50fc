"""What an operation does to NumPy scalars or arrays: for folding constants, and as an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veenv.kernel.program import FLOATS, Op, ScalarProgram, dtype_name
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


def run(program: ScalarProgram, *leaves: Any) -> list[np.ndarray]:
    """Runs a program with NumPy, for tests and for reading: slow.

    Args:
      program: the program.
      *leaves: an array for each input leaf, with any equal batch axes in front.
    """
    arrays = [np.asarray(x, leaf.dtype) for x, leaf in zip(leaves, program.inputs, strict=True)]
    batch = np.broadcast_shapes(
        *(x.shape[: x.ndim - len(le.shape)] for x, le in zip(arrays, program.inputs, strict=True))
    )
    flat = [
        np.broadcast_to(x, (*batch, *leaf.shape)).reshape((*batch, leaf.size))
        for x, leaf in zip(arrays, program.inputs, strict=True)
    ]
    values: list[Any] = []
    for op in program.ops:
        if op.name == "input":
            values.append(flat[op.attr[0]][..., op.attr[1]])
        elif op.name == "const":
            values.append(op.attr)
        else:
            values.append(evaluate(op, [values[a] for a in op.args]))
    outputs = []
    for ids, leaf in zip(program.results, program.outputs, strict=True):
        columns = [np.broadcast_to(values[i], batch) for i in ids]
        stacked = np.stack(columns, -1) if columns else np.zeros((*batch, 0))
        outputs.append(stacked.reshape((*batch, *leaf.shape)).astype(leaf.dtype))
    return outputs
