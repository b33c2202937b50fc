"""Primitives that move entries: as shapes say, and at indices, known ones or a choice of few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from veenv import limits
from veenv.kernel.building import complex_numbers
from veenv.kernel.building.builder import (
    Builder,
    Ids,
    Rule,
    choose,
    constant,
    constants,
    entry,
    reals,
)
from veenv.kernel.scalar_program import dtype_name
from veenv.rules.indexmap import Windows, move_elements, of_block, of_gather, of_scatter
from veenv.rules.table import named


def _moved(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Moves entries by an index map of shapes."""
    result = move_elements(eqn.primitive.name, eqn.params, ins, eqn.outvars[0].aval.shape)
    assert result is not None
    return result


def _iota(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    aval, axis = eqn.outvars[0].aval, eqn.params["dimension"]
    key = dtype_name(aval.dtype), aval.shape[axis]
    if key not in b.counts:
        b.counts[key] = constants(b, np.arange(aval.shape[axis]).astype(aval.dtype))
    shape = [1] * len(aval.shape)
    shape[axis] = -1
    return [np.broadcast_to(b.counts[key].reshape(tuple(shape)), aval.shape)]


def _empty(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    aval = eqn.outvars[0].aval
    return [np.broadcast_to(constants(b, np.zeros((), aval.dtype)), aval.shape)]


def _same(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Returns any number of arrays unchanged, each as a result."""
    return list(ins)


def _platform(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Returns the branch of `platform_index` for this processor."""
    known = [p is None or "cpu" in p for p in eqn.params["platforms"]]
    return [constants(b, np.int32(known.index(True)))]


def _dynamic_slice(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    x, *starts = ins
    return [_taken(b, eqn, of_block(eqn.params["slice_sizes"]), _index(starts), x)]


def _dynamic_update_slice(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    x, update, *starts = ins
    return [_put(b, of_block(update.shape), _index(starts), x, update)]


def _index(starts: Sequence[Ids]) -> Ids:
    return np.array([start[()] for start in starts], np.int64)


def _choices(b: Builder, windows: Windows, shape: Sequence[int], ids: Ids) -> list[Sequence[Any]]:
    """What each index can be: the places along its axis, or those that are known."""
    known = [constant(b, ids[..., k]) for k in range(ids.shape[-1])]
    last = [shape[axis] - windows.sizes[axis] for axis in windows.indexed]
    return [range(n + 1) if v is None else (v,) for n, v in zip(last, known, strict=True)]


def _options(
    b: Builder, windows: Windows, choices: Sequence[Sequence[Any]], ids: Ids
) -> Iterator[tuple[np.ndarray, Ids | None]]:
    """Known indices that indices can be, each with the bools that tell which of them are it.

    The bools have the shape of the indices without their last axis; None stands for all.
    """
    for chosen in product(*choices):
        tests = None
        for k, (value, each) in enumerate(zip(chosen, choices, strict=True)):
            if isinstance(each, range):
                here = [_is(b, int(i), value, each[-1], windows.clipped) for i in ids[..., k].flat]
                both = zip(here, here if tests is None else tests, strict=True)
                tests = [b.op("and", "bool", *pair) for pair in both]
        columns = [np.broadcast_to(value, ids.shape[:-1]) for value in chosen]
        indices = np.stack(columns, -1) if columns else np.zeros(ids.shape, np.int64)
        yield indices, None if tests is None else np.array(tests, np.int64).reshape(ids.shape[:-1])


def _is(b: Builder, index: int, value: int, last: int, clipped: bool) -> int:
    """Tests whether an index equals a value; an index outside is clipped to the nearest inside."""
    if clipped and last == 0:
        return b.const(np.bool_(True))
    name = "eq"
    if clipped and value in (0, last):
        name = "le" if value == 0 else "ge"
    return b.op(name, "bool", index, b.number(value, b.ops[index].dtype))


def _gather(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return [_taken(b, eqn, of_gather(eqn.params), ins[1], ins[0])]


def _taken(b: Builder, eqn: Any, windows: Windows, ids: Ids, x: Ids) -> Ids:
    """The entries of windows of an array, by their indices."""
    choices = _choices(b, windows, x.shape, ids)
    if prod(map(len, choices)) > limits.FEW:
        return _read(b, eqn, windows, ids, x)
    entries, result = x.ravel(), None
    owner = windows.owners(x.shape, ids.shape[:-1])
    if not windows.clipped:
        result = np.full(eqn.outvars[0].aval.shape, _fill(b, eqn), np.int64)
    for indices, tests in _options(b, windows, choices, ids):
        places = windows.places(x.shape, indices)
        gathered = entries[places]
        if result is not None:
            gathered = np.where(places < 0, result, gathered)
        # all, or the first of those that indices are clipped to
        if tests is None or result is None:
            result = gathered
        else:
            result = choose(b, tests.ravel()[owner], gathered, result)
    assert result is not None
    return result


def _computed(
    b: Builder, windows: Windows, ids: Ids, shape: Sequence[int]
) -> tuple[list[int], list[int]]:
    """For each entry of windows its place, which is computed, and whether it was inside."""
    rows, which = np.unique(ids.reshape(-1, ids.shape[-1]), axis=0, return_inverse=True)
    bases, inside, sizes = [], [], [b.computing]
    for row in rows.tolist():
        base, tests = b.number(0, "int32"), b.const(np.bool_(True))
        for index, axis in zip(row, windows.indexed, strict=True):
            dtype = b.ops[index].dtype
            last = min(shape[axis] - windows.sizes[axis], int(np.iinfo(dtype).max))
            low, high = b.number(0, dtype), b.number(last, dtype)
            tests = b.op("and", "bool", tests, b.op("ge", "bool", index, low))
            tests = b.op("and", "bool", tests, b.op("le", "bool", index, high))
            start = b.op("min", dtype, b.op("max", dtype, index, low), high)
            stride = b.number(prod(shape[axis + 1 :]), "int32")
            shifts = b.op("mul", "int32", b.op("convert", "int32", start), stride)
            base = b.op("add", "int32", base, shifts)
        bases.append(base)
        inside.append(tests)
        sizes.append(b.computing)
        if len(sizes) == 3:  # two rows tell what the others come to
            b.expect(min(sizes[2] - sizes[1], sizes[1] - sizes[0]) * (len(rows) - 2))
    offsets = windows.places(shape, np.zeros(ids.shape, np.int64))
    owners = windows.owners(shape, ids.shape[:-1])
    owners = np.broadcast_to(which.reshape(-1)[owners], offsets.shape).ravel().tolist()
    shifts = [b.number(offset, "int32") for offset in offsets.ravel().tolist()]
    places = [b.op("add", "int32", bases[o], k) for o, k in zip(owners, shifts, strict=True)]
    return places, [inside[owner] for owner in owners]


def _arrays(b: Builder, x: Ids) -> list[int]:
    """The array of some entries; of complex numbers that of each part."""
    parts = reals(b, x)
    count = len(parts) // x.size
    return [b.array(parts[k::count]) for k in range(count)]


def _at(b: Builder, arrays: Sequence[int], read: Callable[[int], int]) -> int:
    """The number that is read from an array, or from one of each part."""
    pair = [read(a) for a in arrays]
    return pair[0] if len(pair) == 1 else complex_numbers.pair(b, *pair)


def _without_alike(
    windows: Windows, arrays: Sequence[Ids], rank: int
) -> tuple[Windows, list[Ids], list[int]]:
    """The same with one entry along axes that the array, its indices and updates have alike.

    `arrays` are these three, or two; the result, or updates, have so many axes, and last come those
    which have one entry then.
    """
    sizes, operands, cut = list(windows.sizes), list(arrays), list[int]()
    for k, j, i in windows.alike(arrays[0].shape, rank):
        axes = [(n, a) for n, a in enumerate((j, i, k)[: len(operands)]) if a is not None]
        alike = all((operands[n] == operands[n].take([0], a)).all() for n, a in axes)
        if alike and arrays[0].shape[j] > 1:
            for n, a in axes:
                operands[n] = operands[n].take([0], a)
            sizes[j] = 1
            cut.append(k)
    return replace(windows, sizes=tuple(sizes)), operands, cut


def _read(b: Builder, eqn: Any, windows: Windows, ids: Ids, x: Ids) -> Ids:
    """The entries of windows of an array, read at places that are computed."""
    shape = eqn.outvars[0].aval.shape
    windows, (x, ids), cut = _without_alike(windows, (x, ids), len(shape))
    arrays, results = _arrays(b, x), []
    for place, inside in zip(*_computed(b, windows, ids, x.shape), strict=True):
        value = _at(b, arrays, lambda a, place=place: b.op("read", b.ops[a].dtype, a, place))
        if not windows.clipped:
            value = int(choose(b, inside, value, _fill(b, eqn))[()])
        results.append(value)
    once = [1 if k in cut else n for k, n in enumerate(shape)]
    return np.broadcast_to(np.array(results, np.int64).reshape(once), shape)


def _written(
    b: Builder, windows: Windows, ids: Ids, operand: Ids, updates: Ids, name: str | None
) -> Ids:
    """An array with updates written in windows, at places that are computed."""
    shape = operand.shape
    windows, (operand, ids, updates), _ = _without_alike(
        windows, (operand, ids, updates), updates.ndim
    )
    arrays = _arrays(b, operand)
    dtype = b.ops[int(operand.flat[0])].dtype
    where = zip(*_computed(b, windows, ids, operand.shape), strict=True)
    for update, (place, inside) in zip(updates.ravel().tolist(), where, strict=True):
        old = _at(b, arrays, lambda a, place=place: b.op("read", b.ops[a].dtype, a, place))
        new = update if name is None else b.op(name, dtype, old, update)
        if not windows.clipped:
            new = b.op("select", dtype, inside, new, old)
        pairs = zip(arrays, reals(b, np.array(new)), strict=True)
        arrays = [b.op("write", b.ops[a].dtype, a, place, part) for a, part in pairs]
    entries = [_at(b, arrays, lambda a, k=k: entry(b, a, k)) for k in range(operand.size)]
    return np.broadcast_to(np.array(entries, np.int64).reshape(operand.shape), shape)


def _fill(b: Builder, eqn: Any) -> int:
    """Returns the value that is read outside of an array."""
    dtype = np.dtype(dtype_name(eqn.outvars[0].aval.dtype))
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
        return [_put(b, windows, ids, operand, updates, name)]

    return rule


def _put(
    b: Builder,
    windows: Windows,
    ids: Ids,
    operand: Ids,
    updates: Ids,
    name: str | None = None,
) -> Ids:
    """An array with updates put in windows, by their indices."""
    if not operand.size or not updates.size:
        return operand
    choices = _choices(b, windows, operand.shape, ids)
    if prod(map(len, choices)) > limits.FEW:
        return _written(b, windows, ids, operand, updates, name)
    owner = windows.owners(operand.shape, ids.shape[:-1])
    result = np.array(operand).reshape(-1)
    dtype = b.ops[int(operand.flat[0])].dtype
    every = _options(b, windows, choices, ids)
    options = [(windows.places(operand.shape, at).ravel(), tests) for at, tests in every]
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
    return result.reshape(operand.shape)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(named(form="move"), _moved),
    "empty": _empty,
    "empty2": _empty,
    "iota": _iota,
    **dict.fromkeys(named(form="same", whole=None), _same),
    "platform_index": _platform,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter(None),
    "scatter-add": _scatter("add"),
    "scatter-max": _scatter("max"),
    "scatter-min": _scatter("min"),
    "scatter-mul": _scatter("mul"),
    "scatter-sub": _scatter("sub"),
}
"""For each primitive that moves entries what it does to the numbers of operations."""
