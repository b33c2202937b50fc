"""Primitives that move entries: what they do to arrays of the numbers of scalar operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veenv.kernel.builder import Builder
from veenv.kernel.ids import Ids, constants
from veenv.kernel.program import dtype_name
from veenv.linear.batch_barrier import BARRIERS

Rule = Callable[[Builder, Any, Sequence[Ids]], list[Ids]]
"""From the builder, the equation and the operands to the results."""


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
