"""Which elements gathers, scatters, slices, pads and reshapes move where, by NumPy.

Every function returns flat indices; an index of -1 is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from veenv.graph.equations import Equation
from veenv.rules.table import facts

_MOST_CHOSEN = 0.95
"""Share of the elements from which on a select is diagonal."""


def adds(name: str) -> bool:
    """Whether a primitive adds updates to what is there."""
    return facts(name).combine == "add"


def takes(name: str) -> bool:
    """Whether a primitive takes each result element from one operand element, by indices."""
    known = facts(name)
    return known.form == "take" or (known.form == "put" and known.combine in (None, "add"))


def numbered(shape: Sequence[int]) -> np.ndarray:
    """An array of a shape whose elements are their flat indices."""
    return np.arange(prod(shape)).reshape(shape)


def moved(equation: Equation) -> np.ndarray | None:
    """For each result element the element of the first operand that it is, by shapes alone.

    Args:
      equation: of any primitive.

    Returns:
      Integers of the result's shape; None for primitives that do not move elements so.
    """
    if not equation.in_avals:
        return None
    params, x = equation.params, numbered(equation.in_avals[0].shape)
    name = equation.primitive.name
    if name == "reshape":
        order = params["dimensions"]
        return (x if order is None else x.transpose(order)).reshape(equation.out_avals[0].shape)
    if name == "slice":
        steps = params["strides"] or [1] * x.ndim
        limits = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
        return x[tuple(slice(*some) for some in limits)]
    if name == "tile":
        return np.tile(x, params["reps"])
    if name == "rev":
        return np.flip(x, params["dimensions"])
    return _padded(x, params["padding_config"]) if name == "pad" else None


def _padded(x: np.ndarray, config: Any) -> np.ndarray:
    for axis, (low, high, interior) in enumerate(config):
        n = x.shape[axis]
        size = low + high + n + max(n - 1, 0) * interior
        there = low + np.arange(n) * (interior + 1)
        fits = (there >= 0) & (there < size)
        whole = np.full([*x.shape[:axis], size, *x.shape[axis + 1 :]], -1)
        before = (slice(None),) * axis
        whole[(*before, there[fits])] = x[(*before, np.flatnonzero(fits))]
        x = whole
    return x


def gathered(equation: Equation, indices: np.ndarray) -> np.ndarray:
    """For each result element of a gather the operand's element that it is."""
    numbers, shape = equation.params["dimension_numbers"], equation.in_avals[0].shape
    return _windows(
        shape,
        indices,
        equation.params["slice_sizes"],
        numbers.start_index_map,
        (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims),
        dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        numbers.offset_dims,
        clamp="FILL" not in equation.params["mode"].name,
    )


def scattered(equation: Equation, indices: np.ndarray) -> np.ndarray:
    """For each element of a scatter's updates the result element that it is put or added to."""
    numbers, shape = equation.params["dimension_numbers"], equation.in_avals[0].shape
    updates = equation.in_avals[2].shape
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    sizes = iter([updates[k] for k in numbers.update_window_dims])
    batching = zip(
        numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True
    )
    return _windows(
        shape,
        indices,
        [1 if k in gone else next(sizes) for k in range(len(shape))],
        numbers.scatter_dims_to_operand_dims,
        gone,
        dict(batching),
        numbers.update_window_dims,
        clamp=equation.params["mode"].name == "CLIP",
    )


def _windows(
    shape: Sequence[int],
    indices: np.ndarray,
    sizes: Sequence[int],
    start_map: Sequence[int],
    gone: Sequence[int],
    batching: dict[int, int],
    window_axes: Sequence[int],
    *,
    clamp: bool,
) -> np.ndarray:
    """Flat indices of the elements of windows of an array.

    Args:
      shape: of the array.
      indices: [batch …, k]: where each window starts along k axes.
      sizes: of a window along each axis of the array.
      start_map: the axes that the k are of.
      gone: axes of the array that have no axis in the result.
      batching: axes of the array whose index is that along an axis of the batch.
      window_axes: axes of the result along which windows lie; the batch's are the others.
      clamp: move windows into the array; otherwise those that are not inside are none.
    """
    batch = indices.shape[:-1]
    kept = [k for k in range(len(shape)) if k not in gone]
    rank = len(batch) + len(kept)
    total, inside = np.zeros([1] * rank, np.int64), np.ones([*batch, *[1] * len(kept)], bool)
    for k, n in enumerate(shape):
        at: Any = 0
        if k in start_map:
            at = indices[..., start_map.index(k)].astype(np.int64)
            last = n - sizes[k]
            if clamp:
                at = np.clip(at, 0, last)
            fits = (at >= 0) & (at <= last)
            inside &= fits.reshape([*batch, *[1] * len(kept)])
            at = at.reshape([*batch, *[1] * len(kept)])
        elif k in batching:
            axes = [1] * rank
            axes[batching[k]] = -1
            at = np.arange(n).reshape(axes)
        if k in kept:
            axes = [1] * rank
            axes[len(batch) + kept.index(k)] = -1
            at = at + np.arange(sizes[k]).reshape(axes)
        total = total + at * prod(shape[k + 1 :])
    full = [*batch, *(sizes[k] for k in kept)]
    found = np.where(inside, total, -1)
    found = np.broadcast_to(found, full)
    rest = [k for k in range(rank) if k not in window_axes]
    return np.moveaxis(found, range(rank), [*rest, *window_axes])


def sliced(equation: Equation, starts: Sequence[np.ndarray]) -> np.ndarray:
    """For each result element of a dynamic slice the operand's element that it is."""
    shape, sizes = equation.in_avals[0].shape, equation.out_avals[0].shape
    return numbered(shape)[_cut(shape, sizes, starts)]


def updated(equation: Equation, starts: Sequence[np.ndarray], operand: int) -> np.ndarray:
    """For each result of a dynamic update slice the element of one of its two operands."""
    shape, piece = (a.shape for a in equation.in_avals[:2])
    where = _cut(shape, piece, starts)
    found = numbered(shape) if operand == 0 else np.full(shape, -1)
    found[where] = -1 if operand == 0 else numbered(piece)
    return found


def _cut(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[np.ndarray]) -> Any:
    places = (min(max(int(s), 0), n - m) for s, n, m in zip(starts, shape, sizes, strict=True))
    return tuple(slice(a, a + m) for a, m in zip(places, sizes, strict=True))


def let_through(equation: Equation, operand: int, mask: np.ndarray | None) -> np.ndarray | None:
    """The elements that a select takes of one of its cases; -1 where it takes another's.

    Args:
      equation: a select.
      operand: number of the case among the operands.
      mask: the first operand.

    Returns:
      Integers of the result's shape.  None where the mask is not known or one for all, or leaves
      hardly any out: they are stored as zeros, as diagonal axes take less than index arrays.
    """
    shape = equation.out_avals[0].shape
    if mask is None or mask.shape != shape:
        return None
    chosen = mask == operand - 1
    if np.count_nonzero(chosen) >= _MOST_CHOSEN * chosen.size:
        return None
    return np.where(chosen, numbered(shape), -1)


def by_indices(
    equation: Equation, operand: int, known: Callable[[Any], np.ndarray | None]
) -> np.ndarray | None:
    """The places that a primitive moves an operand's elements to, if its indices are known.

    Returns:
      Flat index of the operand's element that each result element takes, -1 for none; for the
      updates that a scatter adds, the result that each is added to; None for primitives that do
      not take elements so.
    """
    name = equation.primitive.name
    if not takes(name):
        return None
    if adds(name) and operand == 0:
        return numbered(equation.in_avals[0].shape)
    first = {"dynamic_update_slice": 2}.get(name, 1)
    last = 2 if name == "scatter" or adds(name) else len(equation.inputs)
    indices = [known(a) for a in equation.inputs[first:last]]
    given = [i for i in indices if i is not None]
    if len(given) < len(indices):
        return None
    if name == "gather":
        return gathered(equation, given[0])
    if name == "dynamic_slice":
        return sliced(equation, given)
    if name == "dynamic_update_slice":
        return updated(equation, given, operand)
    targets = scattered(equation, given[0])
    return targets if adds(name) else _set(equation, targets, operand)


def _set(equation: Equation, targets: np.ndarray, operand: int) -> np.ndarray | None:
    """As `by_indices` for a scatter that overwrites; None where it does so twice.

    Which of several updates of one element counts is the device's choice.
    """
    flat = targets.reshape(-1)
    put = np.flatnonzero(flat >= 0)
    if len(np.unique(flat[put])) < len(put):
        return None
    shape = equation.out_avals[0].shape
    found = numbered(shape) if operand == 0 else np.full(shape, -1)
    found.reshape(-1)[flat[put]] = -1 if operand == 0 else put
    return found
