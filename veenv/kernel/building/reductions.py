"""Primitives that combine entries, or put them in order: sums, products, maxima, sorting."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from veenv import limits
from veenv.kernel.building.builder import Builder, Ids, Rule, arithmetic
from veenv.kernel.building.decompositions import bound
from veenv.kernel.building.linear import product
from veenv.kernel.building.nests import lies, reduced
from veenv.kernel.scalar_program import DTYPES, FLOATS, CannotFuseError, dtype_name
from veenv.rules.axes import Product
from veenv.rules.operator_patterns import products

COMBINE: Mapping[str, tuple[str, str]] = {
    "sum": ("add", "or"),
    "prod": ("mul", "and"),
    "max": ("max", "or"),
    "min": ("min", "and"),
    "and": ("and", "and"),
    "or": ("or", "or"),
    "xor": ("xor", "xor"),
}
"""The operation that combines two numbers, and that of two bools."""


def operation(name: str, dtype: str) -> str:
    """Returns the operation that combines two numbers of a dtype."""
    return COMBINE[name][dtype == "bool"]


def neutral(b: Builder, name: str, dtype: str) -> int:
    """The combination of no entries."""
    value: Any = {"prod": 1, "and": -1}.get(name, 0)
    if name in ("max", "min"):
        value = bound(np.dtype(dtype), largest=name == "min")
    return b.const(np.asarray(value).astype(dtype))


def _reduce(name: str) -> Rule:
    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        x, axes = ins[0], tuple(eqn.params["axes"])
        dtype = dtype_name(eqn.outvars[0].aval.dtype)
        remaining = [a for a in range(x.ndim) if a not in axes]
        shape = [x.shape[a] for a in remaining]
        rows = x.transpose(*remaining, *axes).reshape(math.prod(shape), -1 if x.size else 0)
        if b.stored and x.size >= limits.TAPS and dtype in DTYPES:
            totals = reduced(b, rows, operation(name, dtype), neutral(b, name, dtype))
            if totals is not None:
                return [totals.reshape(shape)]
        combine = functools.partial(b.op, operation(name, dtype), dtype)
        every = (row or [neutral(b, name, dtype)] for row in rows.tolist())
        result = [functools.reduce(combine, row) for row in every]
        return [np.array(result, np.int64).reshape(shape)]

    return rule


def _cumulative(name: str) -> Rule:
    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        axis, dtype = eqn.params["axis"], dtype_name(eqn.outvars[0].aval.dtype)
        x = np.moveaxis(np.array(ins[0]), axis, -1)
        turned = x[..., ::-1] if eqn.params["reverse"] else x
        combine = functools.partial(b.op, operation(name, dtype), dtype)
        for place in np.ndindex(x.shape[:-1]):
            turned[place] = [*itertools.accumulate(turned[place].tolist(), combine)]
        return [np.moveaxis(x, -1, axis)]

    return rule


def _converted(b: Builder, ids: Ids, dtype: str) -> Ids:
    if not ids.size or b.ops[int(ids.flat[0])].dtype == dtype:
        return ids
    return np.array([b.op("convert", dtype, int(i)) for i in ids.flat], np.int64).reshape(ids.shape)


def _refuse_large(name: str, count: int) -> None:
    """Refuses a sum of so many products."""
    if count > limits.MAX_OPERATIONS:
        raise CannotFuseError(
            f"primitive {name!r} of {count:,} products is too large to be fused (at most "
            f"{limits.MAX_OPERATIONS:,})",
            name,
        )


def _dot(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    axes, aval = Product.of(eqn), eqn.outvars[0].aval
    dtype = dtype_name(aval.dtype)
    count = math.prod(aval.shape) * axes.terms(eqn)
    left, right = (axes.grouped(_converted(b, ids, dtype), k) for k, ids in enumerate(ins))
    result = np.empty((len(left), left.shape[1], right.shape[1]), np.int64)
    few = limits.FEW * (left.size + right.size)
    there = b.stored and all(_are_stored(b, x[0]) for x in (left, right) if len(x))
    least = limits.TAPS * len(left) if there else max(limits.SMALL * len(left), few)
    if dtype in FLOATS and count >= least:
        for k, (x, y) in enumerate(zip(left, right, strict=True)):
            result[k] = product(b, x, y.T)
        return [result.reshape(aval.shape)]
    _refuse_large("dot_general", count)
    of_left, of_right = left.tolist(), right.tolist()
    for k, i, j in np.ndindex(result.shape):
        total = b.dot(dtype, of_left[k][i], of_right[k][j])
        result[k, i, j] = b.number(0, dtype) if total is None else total
    return [result.reshape(aval.shape)]


def _are_stored(b: Builder, ids: Ids) -> bool:
    """Whether the entries of a matrix lie in memory, or are few."""
    return ids.size <= limits.WIDE or lies(b, ids, np.ones(ids.shape, bool)) is not None


def _convolution(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Sums of the products that are there: none of what is padded."""
    aval, sums = eqn.outvars[0].aval, dict[int, int]()
    dtype = dtype_name(aval.dtype)
    features = aval.shape[eqn.params["dimension_numbers"].out_spec[1]]
    most = math.prod(aval.shape) // max(features, 1) * ins[1].size  # with those of what is padded
    rows, *places = products(eqn) if most <= limits.LISTED else ([], [], [])
    _refuse_large(eqn.primitive.name, len(rows) or most)
    operands = zip(ins, places, strict=True)
    left, right = (_converted(b, ids, dtype).ravel()[at] for ids, at in operands)
    terms = arithmetic(b, "mul", dtype, left, right).tolist()
    for row, term in zip(np.asarray(rows).tolist(), terms, strict=True):
        sums[row] = b.op("add", dtype, sums[row], term) if row in sums else term
    zero = b.number(0, dtype)
    ids = [sums.get(k, zero) for k in range(math.prod(aval.shape))]
    return [np.array(ids, np.int64).reshape(aval.shape)]


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


def _precedes(b: Builder, dtype: str, x: int, y: int) -> int:
    """Tests whether x comes before y; NaN comes last."""
    if dtype == "bool":
        return b.op("and", "bool", b.op("not", "bool", x), y)
    less = b.op("lt", "bool", x, y)
    if dtype not in FLOATS:
        return less
    numbers = b.op("eq", "bool", x, x), b.op("ne", "bool", y, y)
    return b.op("or", "bool", less, b.op("and", "bool", *numbers))


def _sort(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Pairs of entries that change places where they are in the wrong order.

    Of several arrays equal keys stay in their order, as the number of each goes with it.
    """
    axis, dtype = eqn.params["dimension"], dtype_name(eqn.invars[0].aval.dtype)
    size = ins[0].shape[axis]
    if size > limits.POINT or eqn.params["num_keys"] != 1:
        raise CannotFuseError(
            f"primitive 'sort' can be fused for one key and at most {limits.POINT} entries", "sort"
        )
    columns = [np.moveaxis(x, axis, -1).copy() for x in ins]
    places = [b.number(k, "int32") for k in range(size)] if len(columns) > 1 else []
    for place in np.ndindex(columns[0].shape[:-1]):
        rows = [column[place] for column in columns]
        keys, numbers = rows[0], np.array(places, np.int64)
        rows += [numbers] if places else []
        for i, j in _network(size):
            swaps = _precedes(b, dtype, int(keys[j]), int(keys[i]))
            if places:
                equal = b.op("not", "bool", _precedes(b, dtype, int(keys[i]), int(keys[j])))
                behind = b.op("lt", "bool", int(numbers[j]), int(numbers[i]))
                swaps = b.op("or", "bool", swaps, b.op("and", "bool", equal, behind))
            for row in rows:
                x, y = int(row[i]), int(row[j])
                kind = b.ops[x].dtype
                row[i], row[j] = (b.op("select", kind, swaps, *of) for of in ((y, x), (x, y)))
    return [np.moveaxis(x, -1, axis) for x in columns]


def _network(size: int) -> Iterator[tuple[int, int]]:
    """Batcher's network of odd-even merges (1968): which pairs are put in order, one by one."""
    merged = 1
    while merged < size:
        step = merged
        while step:
            for start in range(step % merged, size - step, 2 * step):
                for i in range(start, min(start + step, size - step)):
                    if i // (2 * merged) == (i + step) // (2 * merged):
                        yield i, i + step
            step //= 2
        merged *= 2


RULES: Mapping[str, Rule] = {
    **{f"reduce_{name}": _reduce(name) for name in COMBINE},
    **{f"cum{name}": _cumulative(name) for name in ("sum", "prod", "max", "min")},
    "argmax": _extreme_index("gt"),
    "argmin": _extreme_index("lt"),
    "conv_general_dilated": _convolution,
    "dot_general": _dot,
    "sort": _sort,
}
"""For each primitive that combines or orders entries what it does to the numbers of operations."""
