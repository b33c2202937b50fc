"""Primitives that combine entries along axes: sums, products, maxima, contractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veenv.kernel.arrays import arithmetic
from veenv.kernel.builder import Builder
from veenv.kernel.ids import Ids
from veenv.kernel.numbering import MAX_OPERATIONS
from veenv.kernel.program import FLOATS, CannotFuseError, dtype_name
from veenv.kernel.rules_shape import Rule

Combine = Callable[[Builder, str, int, int], int]


def _operation(name: str, of_bools: str = "") -> Combine:
    def combine(b: Builder, dtype: str, x: int, y: int) -> int:
        return b.op(of_bools if of_bools and dtype == "bool" else name, dtype, x, y)

    return combine


_COMBINE: Mapping[str, tuple[Combine, float | None]] = {
    "sum": (_operation("add"), 0),
    "prod": (_operation("mul", "and"), 1),
    "max": (_operation("max", "or"), None),
    "min": (_operation("min", "and"), None),
    "and": (_operation("and"), None),
    "or": (_operation("or"), None),
    "xor": (_operation("xor"), None),
}
"""How two entries are combined, and what an empty combination is where it is a number."""
_LARGE = 1024
"""Entries that are combined step by step, not place by place, which takes less time but leads to
programs of less good order."""
_OF_FLOATS = {"sum": "add", "prod": "mul"}
"""How entries of floats are combined."""


def _neutral(b: Builder, name: str, dtype: str) -> int:
    """The combination of no entries."""
    value = _COMBINE[name][1]
    if value is not None:
        return b.number(value, dtype)
    if name in ("max", "min"):
        if dtype in FLOATS:
            return b.number(-np.inf if name == "max" else np.inf, dtype)
        if dtype == "bool":
            return b.const(np.bool_(name == "min"))
        info = np.iinfo(dtype)
        return b.number(info.min if name == "max" else info.max, dtype)
    if dtype == "bool":
        return b.const(np.bool_(name == "and"))
    return b.number(-1 if name == "and" else 0, dtype)


def _combined(b: Builder, name: str, dtype: str, rows: Ids) -> Ids:
    """The sums or products of floats over the last axis, from the first entry to the last."""
    total, *others = np.moveaxis(rows, -1, 0)
    for entry in others:
        total = arithmetic(b, name, dtype, total, entry)
    return total


def _reduce(name: str) -> Rule:
    combine = _COMBINE[name][0]

    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        x, axes = ins[0], tuple(eqn.params["axes"])
        dtype = dtype_name(eqn.outvars[0].aval.dtype)
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = [x.shape[a] for a in kept]
        rows = x.transpose(*kept, *axes).reshape(*shape, math.prod(x.shape[a] for a in axes))
        if name in _OF_FLOATS and dtype in FLOATS and rows.size >= _LARGE:
            return [_combined(b, _OF_FLOATS[name], dtype, rows)]
        result = []
        for row in rows.reshape(math.prod(shape), rows.shape[-1]).tolist():
            total = row[0] if row else _neutral(b, name, dtype)
            for i in row[1:]:
                total = combine(b, dtype, total, i)
            result.append(total)
        return [np.array(result, np.int64).reshape(shape)]

    return rule


def _cumulative(name: str) -> Rule:
    combine = _COMBINE[name][0]

    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        axis, dtype = eqn.params["axis"], dtype_name(eqn.outvars[0].aval.dtype)
        x = np.moveaxis(np.array(ins[0]), axis, -1)
        order = range(x.shape[-1])
        if eqn.params["reverse"]:
            order = range(x.shape[-1] - 1, -1, -1)
        for place in np.ndindex(x.shape[:-1]):
            row, before = x[place], None
            for k in order:
                here = int(row[k])
                row[k] = here if before is None else combine(b, dtype, before, here)
                before = int(row[k])
        return [np.moveaxis(x, -1, axis)]

    return rule


def _converted(b: Builder, ids: Ids, dtype: str) -> Ids:
    if not ids.size or b.ops[int(ids.flat[0])].dtype == dtype:
        return ids
    return np.array([b.op("convert", dtype, int(i)) for i in ids.flat], np.int64).reshape(ids.shape)


def _dot(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    (over_x, over_y), (batch_x, batch_y) = eqn.params["dimension_numbers"]
    aval = eqn.outvars[0].aval
    dtype = dtype_name(aval.dtype)
    x, y = (_converted(b, ids, dtype) for ids in ins)
    free_x = [a for a in range(x.ndim) if a not in (*over_x, *batch_x)]
    free_y = [a for a in range(y.ndim) if a not in (*over_y, *batch_y)]
    summed = math.prod(x.shape[a] for a in over_x)
    if math.prod(aval.shape) * summed > MAX_OPERATIONS:
        raise CannotFuseError(
            f"primitive 'dot_general' of {math.prod(aval.shape) * summed:,} products is too "
            f"large to be fused (at most {MAX_OPERATIONS:,})",
            "dot_general",
        )
    batch, rows, cols = (
        math.prod(z.shape[a] for a in axes) for z, axes in ((x, batch_x), (x, free_x), (y, free_y))
    )
    left = x.transpose(*batch_x, *free_x, *over_x).reshape(batch, rows, summed)
    right = y.transpose(*batch_y, *free_y, *over_y).reshape(batch, cols, summed)
    if dtype in FLOATS and math.prod(aval.shape) * summed >= _LARGE:
        sides = left[:, :, None], right[:, None]
        terms = arithmetic(b, "mul", dtype, *np.broadcast_arrays(*sides))
        return [_combined(b, "add", dtype, terms).reshape(aval.shape)]
    result = np.empty((batch, rows, cols), np.int64)
    of_left, of_right = left.tolist(), right.tolist()
    for k, i, j in np.ndindex(result.shape):
        total = None
        for p, q in zip(of_left[k][i], of_right[k][j], strict=True):
            term = b.op("and" if dtype == "bool" else "mul", dtype, p, q)
            total = term if total is None else b.op("add", dtype, total, term)
        result[k, i, j] = b.number(0, dtype) if total is None else total
    return [result.reshape(aval.shape)]


def _extreme_index(compare: str) -> Rule:
    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        (axis,) = eqn.params["axes"]
        dtype = dtype_name(eqn.outvars[0].aval.dtype)
        of = dtype_name(eqn.invars[0].aval.dtype)
        x = np.moveaxis(ins[0], axis, -1)
        result = np.empty(x.shape[:-1], np.int64)
        for place in np.ndindex(result.shape):
            best, where = int(x[place][0]), b.number(0, dtype)
            for k, i in enumerate(x[place][1:], 1):
                here = int(i)
                better = b.op(compare, "bool", here, best)
                if of in FLOATS:  # the first NaN wins
                    now, then = (b.op("ne", "bool", v, v) for v in (here, best))
                    first = b.op("and", "bool", now, b.op("not", "bool", then))
                    better = b.op("or", "bool", better, first)
                best = b.op("select", of, better, here, best)
                where = b.op("select", dtype, better, b.number(k, dtype), where)
            result[place] = where
        return [result]

    return rule


RULES: Mapping[str, Rule] = {
    **{f"reduce_{name}": _reduce(name) for name in _COMBINE},
    **{f"cum{name}": _cumulative(name) for name in ("sum", "prod", "max", "min")},
    "argmax": _extreme_index("gt"),
    "argmin": _extreme_index("lt"),
    "dot_general": _dot,
}
"""For each primitive that combines entries what it does to the numbers of operations."""
