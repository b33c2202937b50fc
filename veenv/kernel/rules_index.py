"""Primitives that read and write at indices: known ones, and choices between few places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from veenv.kernel.arrays import Ids, choose
from veenv.kernel.builder import Builder
from veenv.kernel.program import FLOATS, CannotFuseError, dtype_name
from veenv.kernel.rules_shape import Rule, constant
from veenv.kernel.windows import Windows, of_gather, of_scatter

_MOST_STARTS = 64
"""Places between which an index that depends on the input may choose."""
_MOST_SORTED = 16
"""Entries that are sorted at most."""


def _too_many(name: str) -> CannotFuseError:
    return CannotFuseError(
        f"an index that depends on the input chooses between more than {_MOST_STARTS} places",
        name,
    )


def _windows(
    b: Builder, shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Ids]
) -> list[tuple[int | None, tuple[slice, ...]]]:
    """The windows that starts can mean, and for each the bool that chooses it (None: the last).

    Starts are clamped into the array, as JAX says.
    """
    windows: list[tuple[int | None, tuple[slice, ...]]] = [(None, ())]
    for wide, size, start in zip(shape, sizes, starts, strict=True):
        here, last = int(start[()]), wide - size
        value, dtype = b.value(here), b.ops[here].dtype
        grown = []
        if value is not None:
            places = [(None, min(max(int(value), 0), last))]
        else:
            places = [
                (b.op("le", "bool", here, b.number(p, dtype)) if p < last else None, p)
                for p in range(last + 1)
            ]
        before: int | None = None
        for chosen, place in places:
            exact = chosen
            if before is not None:
                above = b.op("not", "bool", before)
                exact = above if chosen is None else b.op("and", "bool", above, chosen)
            before = chosen
            for other, cut in windows:
                both = exact if other is None else other
                if exact is not None and other is not None:
                    both = b.op("and", "bool", other, exact)
                grown.append((both, (*cut, slice(place, place + size))))
        windows = grown
        if len(windows) > _MOST_STARTS:
            raise _too_many("dynamic_slice")
    return windows


def _chosen(b: Builder, options: Sequence[tuple[int | None, Ids]]) -> Ids:
    """Of arrays of one shape the entries of that whose bool is true."""
    result = options[-1][1]
    for which, ids in options[:-1]:
        result = choose(b, which, ids, result)
    return result


def _dynamic_slice(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    x, *starts = ins
    windows = _windows(b, x.shape, eqn.params["slice_sizes"], starts)
    return [_chosen(b, [(chosen, x[cut]) for chosen, cut in windows])]


def _dynamic_update_slice(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    x, update, *starts = ins
    options = []
    for chosen, cut in _windows(b, x.shape, update.shape, starts):
        changed = np.array(x)
        changed[cut] = update
        options.append((chosen, changed))
    return [_chosen(b, options)]


def _options(
    b: Builder, eqn: Any, windows: Windows, shape: Sequence[int], ids: Ids
) -> Iterator[tuple[np.ndarray, Ids | None]]:
    """What indices can be, each with the bools that tell which of them are it (None: all).

    Yields:
      Known indices, and operations in the shape of the indices without their last axis.
    """
    known: list[Any] = [constant(b, ids[..., k]) for k in range(ids.shape[-1])]
    last = [shape[axis] - windows.sizes[axis] for axis in windows.indexed]
    ranges: list[Sequence[Any]] = [
        range(n + 1) if v is None else (v,) for n, v in zip(last, known, strict=True)
    ]
    if prod(map(len, ranges)) > _MOST_STARTS:
        raise _too_many(eqn.primitive.name)
    for chosen in product(*ranges):
        tests = None
        for k, value in enumerate(chosen):
            if known[k] is None:
                here = [_is(b, int(i), value, last[k], windows.clipped) for i in ids[..., k].flat]
                both = zip(here, here if tests is None else tests, strict=True)
                tests = [b.op("and", "bool", *pair) for pair in both]
        columns = [np.broadcast_to(value, ids.shape[:-1]) for value in chosen]
        indices = np.stack(columns, -1) if columns else np.zeros(ids.shape, np.int64)
        yield indices, None if tests is None else np.array(tests, np.int64).reshape(ids.shape[:-1])


def _is(b: Builder, index: int, value: int, last: int, clipped: bool) -> int:
    """Whether an index is a value; one that is outside, and clipped, is the nearest inside."""
    if clipped and last == 0:
        return b.const(np.bool_(True))
    name = "eq"
    if clipped and value in (0, last):
        name = "le" if value == 0 else "ge"
    return b.op(name, "bool", index, b.number(value, b.ops[index].dtype))


def _gather(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    windows, entries = of_gather(eqn.params), ins[0].ravel()
    shape = eqn.outvars[0].aval.shape
    result = np.full(shape, _fill(b, eqn), np.int64)
    owner = windows.owners(ins[0].shape, ins[1].shape[:-1])
    for indices, tests in _options(b, eqn, windows, ins[0].shape, ins[1]):
        places = windows.places(ins[0].shape, indices)
        inside, found = places >= 0, result.copy()
        found[inside] = entries[places[inside]]
        result = found if tests is None else choose(b, tests.ravel()[owner], found, result)
    return [result]


def _fill(b: Builder, eqn: Any) -> int:
    """What is read outside of an array."""
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    fill = eqn.params["fill_value"]
    if fill is None:
        fill = {"b": True, "f": np.nan, "c": np.nan}.get(dtype.kind)
    if fill is None:
        fill = np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min
    return b.const(dtype.type(fill))


def _scatter(name: str | None) -> Rule:
    """A scatter that combines entries by an operation, or overwrites them."""

    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        operand, ids, updates = ins
        windows = of_scatter(eqn.params, operand.ndim, updates.shape)
        owner = windows.owners(operand.shape, ids.shape[:-1])
        result = np.array(operand).reshape(-1)
        dtype = dtype_name(eqn.outvars[0].aval.dtype)
        options = [
            (windows.places(operand.shape, indices).ravel(), tests)
            for indices, tests in _options(b, eqn, windows, operand.shape, ids)
        ]
        for number, update in enumerate(updates.flat):
            for places, tests in options:
                place = int(places[number])
                if place < 0:
                    continue
                old, new = int(result[place]), int(update)
                new = new if name is None else b.op(name, dtype, old, new)
                if tests is not None:
                    here = int(tests.flat[owner.flat[number]])
                    new = b.op("select", dtype, here, new, old)
                result[place] = new
        return [result.reshape(operand.shape)]

    return rule


def _precedes(b: Builder, dtype: str, x: int, y: int) -> int:
    """Whether x comes before y; what is not a number comes last."""
    if dtype == "bool":
        return b.op("and", "bool", b.op("not", "bool", x), y)
    less = b.op("lt", "bool", x, y)
    if dtype not in FLOATS:
        return less
    numbers = b.op("eq", "bool", x, x), b.op("ne", "bool", y, y)
    return b.op("or", "bool", less, b.op("and", "bool", *numbers))


def _ordered(name: str) -> Rule:
    """A comparison that orders zeros by sign and what is not a number, too: that of their bits."""

    def key(b: Builder, x: int) -> int:
        dtype = b.ops[x].dtype
        if dtype == "bool":
            return b.op("convert", "uint8", x)
        if dtype not in FLOATS:
            return x
        whole = np.iinfo(dtype.replace("float", "int"))
        kind = whole.dtype.name
        bits = b.op("bitcast", kind, x)
        below = b.op("shr_a", kind, bits, b.number(whole.bits - 1, kind))
        return b.op("xor", kind, bits, b.op("and", kind, below, b.number(whole.max, kind)))

    def rule(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        x, y = np.broadcast_arrays(*ins)
        ids = [
            b.op(name, "bool", key(b, int(p)), key(b, int(q)))
            for p, q in zip(x.flat, y.flat, strict=True)
        ]
        return [np.array(ids, np.int64).reshape(x.shape)]

    return rule


def _sort(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Each entry's rank, and for each place the entry of that rank; equal ones in their order."""
    axis, dtype = eqn.params["dimension"], dtype_name(eqn.invars[0].aval.dtype)
    size = ins[0].shape[axis]
    if size > _MOST_SORTED or eqn.params["num_keys"] != 1:
        raise CannotFuseError(
            f"primitive 'sort' can be fused for one key and at most {_MOST_SORTED} entries", "sort"
        )
    columns = [np.moveaxis(x, axis, -1) for x in ins]
    results = [np.empty(x.shape, np.int64) for x in columns]
    for place in np.ndindex(columns[0].shape[:-1]):
        keys = [int(i) for i in columns[0][place]]
        rank = [b.number(0, "int32") for _ in keys]
        for i, j in product(range(size), repeat=2):
            if i < j:
                later = _precedes(b, dtype, keys[j], keys[i])
                sooner = b.op("not", "bool", later)
                rank[i] = b.op("add", "int32", rank[i], b.op("convert", "int32", later))
                rank[j] = b.op("add", "int32", rank[j], b.op("convert", "int32", sooner))
        for column, result in zip(columns, results, strict=True):
            entries = column[place]
            for k in range(size):
                chosen = int(entries[-1])
                for i in range(size - 1):
                    here = b.op("eq", "bool", rank[i], b.number(k, "int32"))
                    chosen = b.op("select", b.ops[chosen].dtype, here, int(entries[i]), chosen)
                result[place][k] = chosen
    return [np.moveaxis(x, -1, axis) for x in results]


def _named_by_class(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Primitives that newer versions of JAX tell apart by a class alone."""
    made = eqn.params["_prim"]
    name = type(made).__name__
    if name != "SearchSorted" or not type(made).__module__.startswith("jax."):
        raise CannotFuseError(f"primitive {name!r} cannot be fused", name)
    if made.params["batch_dims"] or ins[0].ndim != 1:
        raise CannotFuseError(f"primitive {name!r} can be fused for one table", name)
    return [_search_sorted(b, eqn, made.params["side"] == "right", *ins)]


def _search_sorted(b: Builder, eqn: Any, right: bool, table: Ids, wanted: Ids) -> Ids:
    """How many entries of a sorted table are below each of some numbers, or are not above."""
    to, of = (dtype_name(v.aval.dtype) for v in (eqn.outvars[0], eqn.invars[0]))
    found = []
    for x in wanted.flat:
        count = b.number(0, to)
        for entry in table:
            pair = (int(x), int(entry)) if right else (int(entry), int(x))
            passed = _precedes(b, of, *pair)
            passed = b.op("not", "bool", passed) if right else passed
            count = b.op("add", to, count, b.op("convert", to, passed))
        found.append(count)
    return np.array(found, np.int64).reshape(wanted.shape)


RULES: Mapping[str, Rule] = {
    "call_hi_primitive": _named_by_class,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "le_to": _ordered("le"),
    "lt_to": _ordered("lt"),
    "scatter": _scatter(None),
    "scatter-add": _scatter("add"),
    "scatter-max": _scatter("max"),
    "scatter-min": _scatter("min"),
    "scatter-mul": _scatter("mul"),
    "sort": _sort,
}
"""For each primitive that goes by indices what it does to the numbers of operations."""
