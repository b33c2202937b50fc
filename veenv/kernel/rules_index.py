"""Primitives that read and write at indices: known ones, and choices between few places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from veenv.kernel.arrays import arithmetic, choose
from veenv.kernel.builder import Builder
from veenv.kernel.ids import Ids, constant
from veenv.kernel.program import FLOATS, CannotFuseError, dtype_name
from veenv.kernel.rules_shape import Rule
from veenv.kernel.windows import Windows, of_gather, of_scatter

_MOST_STARTS = 64
"""Places between which an index that depends on the input may choose."""
_LARGE = 256
"""Updates that are combined with what is there in few steps, not one after the other."""


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
        known = len(options) == 1 and options[0][1] is None
        if known and name in ("add", "mul") and dtype in FLOATS and updates.size >= _LARGE:
            put = _put_together(b, name, dtype, result, options[0][0], updates.ravel())
            return [put.reshape(operand.shape)]
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


def _put_together(
    b: Builder, name: str, dtype: str, result: Ids, places: np.ndarray, updates: Ids
) -> Ids:
    """What each entry comes to with the updates of its place, from the first to the last.

    Args:
      b: the builder.
      name: how they are combined, by an operation of floats.
      dtype: of the floats.
      result: the entries, which are changed.
      places: of each update; negative where it is left out.
      updates: their numbers.
    """
    order = np.argsort(places, kind="stable")
    order = order[np.searchsorted(places[order], 0) :]
    places, updates = places[order], updates[order]
    new = np.flatnonzero(np.diff(places, prepend=-1))
    earlier = np.arange(len(places)) - np.repeat(new, np.diff(new, append=len(places)))
    for number in range(int(earlier.max(initial=-1)) + 1):
        here = earlier == number
        at = places[here]
        result[at] = arithmetic(b, name, dtype, result[at], updates[here])
    return result


RULES: Mapping[str, Rule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter(None),
    "scatter-add": _scatter("add"),
    "scatter-max": _scatter("max"),
    "scatter-min": _scatter("min"),
    "scatter-mul": _scatter("mul"),
}
"""For each primitive that goes by indices what it does to the numbers of operations."""
