"""Runs a scalar program with NumPy, operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veenv.kernel.building.builder import evaluate
from veenv.kernel.scalar_program import Loop, ScalarProgram


def run(
    program: ScalarProgram, *leaves: Any, rng: np.random.Generator | None = None
) -> list[np.ndarray]:
    """The results of a program at leaves with any equal batch axes in front.

    With `rng` each operation on floats that is in no loop is off by up to a unit in the last place,
    so that results of several runs differ as much as roundings change them.
    """
    arrays = [np.asarray(x, leaf.dtype) for x, leaf in zip(leaves, program.inputs, strict=True)]
    batch = np.broadcast_shapes(
        *(x.shape[: x.ndim - len(le.shape)] for x, le in zip(arrays, program.inputs, strict=True))
    )
    flat = [
        np.broadcast_to(x, (*batch, *leaf.shape)).reshape((*batch, leaf.size))
        for x, leaf in zip(arrays, program.inputs, strict=True)
    ]
    values = _values(program, [list(np.moveaxis(x, -1, 0)) for x in flat], rng)
    outputs = []
    for ids, leaf in zip(program.results, program.outputs, strict=True):
        columns = [np.broadcast_to(values[i], batch) for i in ids]
        stacked = np.stack(columns, -1) if columns else np.zeros((*batch, 0))
        outputs.append(stacked.reshape((*batch, *leaf.shape)).astype(leaf.dtype))
    return outputs


def _values(
    program: ScalarProgram, leaves: Sequence[Any], rng: np.random.Generator | None = None
) -> list[Any]:
    """The values of all operations; of an array the list of its entries, of a loop its results."""
    values: list[Any] = []
    for op in program.ops:
        args = [values[a] for a in op.args]
        match op.name:
            case "input":
                leaf, place = op.attr
                values.append(leaves[leaf] if place is None else leaves[leaf][place])
            case "const":
                values.append(op.attr)
            case "array":
                values.append(args)
            case "view":
                start, stride, length = op.attr
                values.append([args[0][start + stride * k] for k in range(length)])
            case "entry" | "part":
                values.append(args[0][op.attr])
            case "read":
                values.append(_read(*args))
            case "write":
                array, place, value = args
                values.append([np.where(place == k, value, x) for k, x in enumerate(array)])
            case "loop":
                values.append(_loop(op.attr, args))
            case _:
                values.append(_rounded(evaluate(op, args), rng))
    return values


def _rounded(value: Any, rng: np.random.Generator | None) -> Any:
    if rng is None or value.dtype.kind != "f":
        return value
    unit = np.finfo(value.dtype).eps
    return value * (1 + rng.uniform(-unit, unit, np.shape(value))).astype(value.dtype)


def _read(array: Sequence[Any], place: Any) -> Any:
    columns = np.stack(np.broadcast_arrays(*array, place)[:-1])
    place = np.clip(place, 0, len(array) - 1)  # it may be outside where a loop has ended
    return np.take_along_axis(columns, np.broadcast_to(place, columns.shape[1:])[None], 0)[0]


def _chosen(where: Any, new: Any, old: Any) -> Any:
    if not isinstance(old, list):
        return np.where(where, new, old)
    return [np.where(where, n, o) for n, o in zip(new, old, strict=True)]


def _loop(loop: Loop, args: Sequence[Any]) -> list[Any]:
    """The results of a loop: last carries, then lists of what was stacked."""
    ends = loop.carries, loop.carries + loop.stacked
    carries, columns, same = args[: ends[0]], args[ends[0] : ends[1]], args[ends[1] :]
    fixed = [
        x if leaf.shape else [x] for x, leaf in zip(same, loop.body.inputs[ends[1] :], strict=True)
    ]

    def step(entries: Sequence[Any]) -> list[Any]:
        given = zip((*carries, *entries), loop.body.inputs, strict=False)
        leaves = [*(x if leaf.shape else [x] for x, leaf in given), *fixed]
        values = _values(loop.body, leaves)
        return [values[i] for (i,) in loop.body.results]

    if loop.length is None:
        while True:
            *ahead, goes_on = step([])
            if not np.any(goes_on):
                return list(carries)
            pairs = zip(carries, ahead, strict=True)
            carries = [_chosen(goes_on, new, old) for old, new in pairs]
    stacked: list[list[Any]] = [[] for _ in range(len(loop.body.results) - loop.carries)]
    order = range(loop.length)
    for t in order[::-1] if loop.reverse else order:
        outs = step([column[t] for column in columns])
        carries = outs[: loop.carries]
        for steps, value in zip(stacked, outs[loop.carries :], strict=True):
            steps.append(value)
    return [*carries, *(steps[::-1] if loop.reverse else steps for steps in stacked)]
