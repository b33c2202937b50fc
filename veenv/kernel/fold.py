"""What an operation does to NumPy scalars or arrays: for folding constants, and as an oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veenv.kernel.program import FLOATS, Op, ScalarProgram, dtype_name

_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "trunc": np.trunc,
    "rem": np.fmod,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": np.left_shift,
    "shr_a": np.right_shift,
    "shr_l": np.right_shift,
    "select": np.where,
}
_NUMPY = (
    "exp exp2 expm1 log log2 log1p sin cos tan sinh cosh tanh cbrt nextafter floor ceil"
).split()
_RENAMED = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "pow": "power",
    "fmod": "fmod",
}
_CALLS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _NUMPY},
    **{name: getattr(np, other) for name, other in _RENAMED.items()},
    "erf": np.vectorize(math.erf, otypes=[float]),
    "erfc": np.vectorize(math.erfc, otypes=[float]),
    "lgamma": np.vectorize(math.lgamma, otypes=[float]),
}


def evaluate(op: Op, args: Sequence[Any]) -> Any:
    """The value of an operation at NumPy values of its arguments, in the operation's dtype.

    Functions of float32 are evaluated in float64 and rounded once.

    Args:
      op: an operation other than an input or constant.
      args: the values of its arguments, scalars or arrays of one shape.

    Returns:
      The value; a scalar for scalars.
    """
    with np.errstate(all="ignore"):
        if op.name == "call":
            wide = [np.asarray(a, np.float64) if op.dtype == "float32" else a for a in args]
            value = _CALLS[op.attr](*wide)
        elif op.name == "convert":
            value = _convert(args[0], op.dtype)
        elif op.name == "bitcast":
            value = np.asarray(args[0]).view(op.dtype)
        elif op.name == "div":
            value = args[0] / args[1] if op.dtype in FLOATS else _truncated(args[0], args[1])
        elif op.name == "shr_l":
            unsigned = np.dtype(f"u{op.dtype.removeprefix('u')}")
            value = np.right_shift(np.asarray(args[0]).view(unsigned), args[1]).astype(op.dtype)
        else:
            value = _ARITHMETIC[op.name](*args)
    return np.asarray(value).astype(op.dtype)[()]


def _truncated(a: Any, b: Any) -> Any:
    """Integer division towards zero."""
    return (a - np.fmod(a, b)) // b


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

    Returns:
      The output leaves.
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
