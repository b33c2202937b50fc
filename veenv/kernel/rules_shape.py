"""Primitives that move entries: what they do to arrays of the numbers of scalar operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veenv.kernel import complex_parts
from veenv.kernel.arrays import Ids
from veenv.kernel.builder import Builder
from veenv.kernel.program import COMPLEX, DTYPES, dtype_name
from veenv.linear.batch_barrier import BARRIERS

Rule = Callable[[Builder, Any, Sequence[Ids]], list[Ids]]
"""From the builder, the equation and the operands to the results."""
_ALIKE = 64
"""Entries of an array from which on equal ones, as in a stencil's Jacobian, are looked for."""


def constant(b: Builder, ids: Ids) -> np.ndarray | None:
    """The array that constants make up; None where an entry is not constant."""
    if ids.size and b.value(int(ids.flat[0])) is None:
        return None
    rows, places = different([ids.ravel()])
    values = [b.value(i) for (i,) in rows]
    if any(v is None for v in values):
        return None
    dtype = b.ops[int(ids.flat[0])].dtype if ids.size else np.int32
    return np.array(values, dtype)[places].reshape(ids.shape)


def constants(b: Builder, values: Any) -> Ids:
    """The numbers of the entries of a constant array."""
    values = np.asarray(values)
    if values.size == 1 or dtype_name(values.dtype) not in {
        *DTYPES,
        *COMPLEX,
    }:  # no operation takes the latter
        return np.array([b.const(v) for v in values.flat], np.int64).reshape(values.shape)
    if np.iscomplexobj(values):
        pairs = zip(constants(b, values.real).flat, constants(b, values.imag).flat, strict=True)
        ids = [complex_parts.pair(b, int(re), int(im)) for re, im in pairs]
        return np.array(ids, np.int64).reshape(values.shape)
    bits = values.ravel().view(f"u{values.dtype.itemsize}")
    rows, places = different([bits])
    found = np.array(rows, bits.dtype).ravel().view(values.dtype)
    return np.array([b.const(v) for v in found], np.int64)[places].reshape(values.shape)


def different(columns: Sequence[np.ndarray]) -> tuple[list[tuple[int, ...]], Any]:
    """The rows that are not equal, in the order in which they come first, and where each is.

    Args:
      columns: numbers [n] each, not negative.

    Example:
      >>> different([np.array([7, 5]), np.array([0, 0])])[0]
      [(7, 0), (5, 0)]
    """
    if len(columns[0]) < _ALIKE:
        return [*zip(*[column.tolist() for column in columns], strict=True)], slice(None)
    key, *others = columns
    for column in others:
        if int(key.max() + 1) * int(column.max() + 1) > np.iinfo(np.int64).max:
            key = np.unique(key, return_inverse=True)[1]  # as many numbers as there are rows
        key = key * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    first.sort()
    return [*zip(*[column[first].tolist() for column in columns], strict=True)], rank[inverse]


def _broadcast(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    shape, axes = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    expanded = np.ones(len(shape), int)
    expanded[list(axes)] = ins[0].shape
    return [np.broadcast_to(ins[0].reshape(tuple(expanded)), tuple(shape))]


def _reshape(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    if eqn.primitive.name == "reshape" and eqn.params.get("dimensions") is not None:
        ins = [ins[0].transpose(eqn.params["dimensions"])]
    return [ins[0].reshape(eqn.outvars[0].aval.shape)]


def _transpose(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return [ins[0].transpose(eqn.params["permutation"])]


def _rev(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return [np.flip(ins[0], eqn.params["dimensions"])]


def _slice(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    params = eqn.params
    strides = params["strides"] or (1,) * ins[0].ndim
    cut = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return [ins[0][tuple(slice(*c) for c in cut)]]


def _concatenate(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return [np.concatenate(ins, eqn.params["dimension"])]


def _split(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    ends = np.cumsum(eqn.params["sizes"])[:-1]
    return list(np.split(ins[0], ends, eqn.params["axis"]))


def _stack(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return [np.stack(ins, eqn.params["axis"])]


def _unstack(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return list(np.moveaxis(ins[0], eqn.params["axis"], 0))


def _tile(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return [np.tile(ins[0], eqn.params["reps"])]


def _pad(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    x, fill = ins
    result = np.full(eqn.outvars[0].aval.shape, fill[()], np.int64)
    source, target = [], []
    for size, wide, (low, _, interior) in zip(
        x.shape, result.shape, eqn.params["padding_config"], strict=True
    ):
        places = low + np.arange(size) * (interior + 1)
        inside = (places >= 0) & (places < wide)
        source.append(np.flatnonzero(inside))
        target.append(places[inside])
    result[np.ix_(*target)] = x[np.ix_(*source)]
    return [result]


def _iota(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    aval, axis = eqn.outvars[0].aval, eqn.params["dimension"]
    counts = np.arange(aval.shape[axis]).astype(aval.dtype)
    shape = [1] * len(aval.shape)
    shape[axis] = -1
    return [np.broadcast_to(constants(b, counts).reshape(tuple(shape)), aval.shape)]


def _empty(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    aval = eqn.outvars[0].aval
    return [np.broadcast_to(constants(b, np.zeros((), aval.dtype)), aval.shape)]


def _same(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    return list(ins)


RULES: Mapping[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "empty": _empty,
    "empty2": _empty,
    "iota": _iota,
    **dict.fromkeys(BARRIERS, _same),
    "pad": _pad,
    "reshape": _reshape,
    "rev": _rev,
    "slice": _slice,
    "split": _split,
    "squeeze": _reshape,
    "stack": _stack,
    "tile": _tile,
    "unstack": _unstack,
    "transpose": _transpose,
}
"""For each primitive that moves entries what it does to the numbers of operations."""
