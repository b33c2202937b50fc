"""Index maps: which element goes where in equations that move elements, by NumPy.

`move_elements` moves arrays of anything as an equation does: values, flags, operations of a
kernel, or the numbers of the elements themselves, which say where each comes from.  `Windows` are
the places that gathers read and scatters write, once their indices are known.  A place of -1 is
none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np

from veenv.rules import walk
from veenv.rules.table import facts


def numbered(shape: Sequence[int], start: int = 0) -> np.ndarray:
    """An array of a shape whose elements are numbered, row by row."""
    return np.arange(start, start + prod(shape)).reshape(shape)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the distance in flat index between neighbours along each axis."""
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


def move_elements(
    name: str, params: Any, ins: Sequence[np.ndarray], shape: Sequence[int]
) -> list[np.ndarray] | None:
    """Returns the results of a primitive that moves elements as shapes say; None of any other.

    Examples:
      >>> move_elements("rev", {"dimensions": (0,)}, [np.array(["a", "b"])], (2,))[0].tolist()
      ['b', 'a']
    """
    x = ins[0] if ins else np.zeros(0)
    match name:
        case "broadcast_in_dim":
            expanded = np.ones(len(shape), int)
            expanded[list(params["broadcast_dimensions"])] = x.shape
            return [np.broadcast_to(x.reshape(tuple(expanded)), tuple(shape))]
        case "reshape" | "squeeze" | "expand_dims":
            order = params.get("dimensions") if name == "reshape" else None
            return [(x if order is None else x.transpose(order)).reshape(tuple(shape))]
        case "transpose":
            return [x.transpose(params["permutation"])]
        case "rev":
            return [np.flip(x, params["dimensions"])]
        case "slice":
            steps = params["strides"] or (1,) * x.ndim
            cut = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
            return [x[tuple(slice(*c) for c in cut)]]
        case "concatenate":
            return [np.concatenate(ins, params["dimension"])]
        case "stack":
            return [np.stack(ins, params["axis"])]
        case "split":
            ends = np.cumsum(params["sizes"])[:-1]
            return [*map(np.asarray, np.split(x, ends, params["axis"]))]
        case "unstack":
            return [*map(np.asarray, np.moveaxis(x, params["axis"], 0))]
        case "tile":
            return [np.tile(x, params["reps"])]
        case "pad":
            return [_padded(x, ins[1], params["padding_config"], shape)]
    return None


def _padded(x: np.ndarray, fill: np.ndarray, config: Any, shape: Sequence[int]) -> np.ndarray:
    result = np.full(shape, fill[()], x.dtype)
    source, target = [], []
    for size, wide, (low, _, interior) in zip(x.shape, shape, config, strict=True):
        places = low + np.arange(size) * (interior + 1)
        inside = (places >= 0) & (places < wide)
        source.append(np.flatnonzero(inside))
        target.append(places[inside])
    result[np.ix_(*target)] = x[np.ix_(*source)]
    return result


@dataclass(frozen=True)
class Windows:
    """The windows of an array that a gather reads or a scatter writes, as its parameters say."""

    sizes: tuple[int, ...]  # of a window along every axis of the array
    dropped: tuple[int, ...]  # axes of the array along which a window has no axis of its own
    indexed: tuple[int, ...]  # the axis of the array that each number of an index is for
    # pairs of an axis of the array and one of the indices that go together
    shared: tuple[tuple[int, int], ...]
    # axes of the windows among those of the result (of a scatter: of the updates)
    window_axes: tuple[int, ...]
    clipped: bool  # a window that is not inside is moved there; otherwise it is left out

    def places(self, shape: Sequence[int], indices: np.ndarray) -> np.ndarray:
        """Returns the row-major place in the array of each entry of the result; -1 for none.

        Examples:
          >>> rows = Windows((1, 3), (0,), (0,), (), (1,), clipped=False)
          >>> rows.places((2, 3), np.array([[1], [0], [2]])).tolist()
          [[3, 4, 5], [0, 1, 2], [-1, -1, -1]]
        """
        batch = indices.shape[:-1]
        starts = [np.zeros(batch, np.int64) for _ in shape]
        for k, axis in enumerate(self.indexed):
            starts[axis] = indices[..., k].astype(np.int64)
        for axis, other in self.shared:
            starts[axis] = np.indices(batch)[other]
        window = [axis for axis in range(len(shape)) if axis not in self.dropped]
        offsets = np.indices([self.sizes[axis] for axis in window])
        inside = np.ones(batch, bool)
        places = np.zeros((*batch, *offsets.shape[1:]), np.int64)
        for axis, start in enumerate(starts):
            stride, last = prod(shape[axis + 1 :]), shape[axis] - self.sizes[axis]
            inside &= (start >= 0) & (start <= last)
            start = np.clip(start, 0, max(0, last))
            places += stride * start.reshape(batch + (1,) * len(window))
            if axis in window:
                places += stride * offsets[window.index(axis)]
        if not self.clipped:
            places[~inside] = -1
        return self._arranged(places, len(batch))

    def alike(self, shape: Sequence[int], rank: int) -> list[tuple[int, int, int | None]]:
        """Returns the axes of the result along which each index reads its own index of the array.

        Of each (axis of the result, of the array, of the indices); the last is None where windows
        have the whole axis. The result (of a scatter: the updates) has `rank` axes.
        """
        batch = [k for k in range(rank) if k not in self.window_axes]
        window = [j for j in range(len(shape)) if j not in self.dropped]
        whole = [
            (k, j, None)
            for k, j in zip(self.window_axes, window, strict=True)
            if j not in self.indexed and self.sizes[j] == shape[j]
        ]
        return [*((batch[i], j, i) for j, i in self.shared), *whole]

    def row_numbers(self, shape: Sequence[int], indices: np.ndarray) -> tuple[int, int, int] | None:
        """Finds a component of the indices that only counts along one of their axes.

        Returns (component, axis of the array it is for, axis of the indices), or None. `indices`
        are -1 where not known.

        Examples:
          >>> entries = Windows((1, 1), (0, 1), (0, 1), (), (), clipped=False)
          >>> entries.row_numbers((3, 9), np.array([[0, -1], [1, -1], [2, -1]]))
          (0, 0, 0)
        """
        shared_index_axes = {i for _, i in self.shared}
        for k, j in enumerate(self.indexed):
            for i, n in enumerate(indices.shape[:-1]):
                numbers = np.arange(n).reshape(-1, *(1 for _ in indices.shape[i + 1 : -1]))
                fits = n == shape[j] > 1 and j in self.dropped and i not in shared_index_axes
                if fits and (indices[..., k] == numbers).all():
                    return k, j, i
        return None

    def owners(self, shape: Sequence[int], batch: Sequence[int]) -> np.ndarray:
        """Returns the number of the index that places each entry; `batch` is the indices' shape."""
        window = [self.sizes[axis] for axis in range(len(shape)) if axis not in self.dropped]
        numbers = np.arange(prod(batch)).reshape((*batch, *(1 for _ in window)))
        return self._arranged(np.broadcast_to(numbers, (*batch, *window)), len(batch))

    def _arranged(self, entries: np.ndarray, count: int) -> np.ndarray:
        """Moves the axes of windows (behind `count` others) to where the result has them."""
        index, window = iter(range(count)), iter(range(count, entries.ndim))
        rank = range(entries.ndim)
        return entries.transpose([next(window if k in self.window_axes else index) for k in rank])


def joined_axis(e: Any) -> int | None:
    """Returns the axis along which an equation joins its operands; None of any other equation."""
    return e.params["dimension"] if e.primitive.name == "concatenate" else None


def without_row_numbers(params: Any, number: int, axis: int, rows: int) -> dict[str, Any]:
    """Returns the parameters of a gather or scatter without the component of `Windows.row_numbers`.

    The axis of the array becomes a batch axis, together with an axis of the indices.
    """
    d = params["dimension_numbers"]
    window, dropped, indexed, *shared = d
    pairs = sorted([*zip(*shared, strict=True), (axis, rows)])
    numbers = type(d)(
        window,
        tuple(j for j in dropped if j != axis),
        (*indexed[:number], *indexed[number + 1 :]),
        *(tuple(several) for several in zip(*pairs, strict=True)),
    )
    return {**params, "dimension_numbers": numbers, "indices_are_sorted": False}


def of_gather(params: Any) -> Windows:
    """The windows of a gather."""
    d = params["dimension_numbers"]
    shared = tuple(zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True))
    return Windows(
        tuple(params["slice_sizes"]),
        (*d.collapsed_slice_dims, *d.operand_batching_dims),
        tuple(d.start_index_map),
        shared,
        tuple(d.offset_dims),
        clipped=_mode(params) != jax.lax.GatherScatterMode.FILL_OR_DROP,
    )


def of_scatter(params: Any, rank: int, updates: Sequence[int]) -> Windows:
    """The windows of a scatter into an array of so many axes, with updates of this shape."""
    d = params["dimension_numbers"]
    dropped = (*d.inserted_window_dims, *d.operand_batching_dims)
    sizes = iter([updates[axis] for axis in d.update_window_dims])
    return Windows(
        tuple(1 if axis in dropped else next(sizes) for axis in range(rank)),
        dropped,
        tuple(d.scatter_dims_to_operand_dims),
        tuple(zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True)),
        tuple(d.update_window_dims),
        clipped=_mode(params) == jax.lax.GatherScatterMode.CLIP,
    )


def windows_of(equation: Any) -> Windows:
    """The windows of a gather or scatter."""
    shapes = [a.shape for a in walk.in_avals(equation)]
    if facts(equation.primitive.name).form == "take":
        return of_gather(equation.params)
    return of_scatter(equation.params, len(shapes[0]), shapes[2])


def of_block(sizes: Sequence[int]) -> Windows:
    """The window of these sizes that begins at some starts, clamped into the array."""
    axes = tuple(range(len(sizes)))
    return Windows(tuple(sizes), (), axes, (), axes, clipped=True)


def _mode(params: Any) -> Any:
    return jax.lax.GatherScatterMode.from_any(params["mode"])


def adds(name: str) -> bool:
    """Returns whether a primitive adds updates to what is there."""
    return facts(name).combine == "add"


def takes(name: str) -> bool:
    """Returns whether a primitive only moves entries by indices: a gather, or a scatter."""
    known = facts(name)
    return known.form == "take" or (known.form == "put" and known.combine in (None, "add"))


def targets(equation: Any, known: Callable[[Any], np.ndarray | None]) -> np.ndarray | None:
    """Returns where a gather reads or a scatter writes, if its indices are known, else None.

    For each element of the result, or of the updates, the number of the first operand's element.
    """
    name, shapes = equation.primitive.name, [a.shape for a in equation.in_avals]
    indexed = "dimension_numbers" in equation.params
    first = 1 if indexed or facts(name).form == "take" else 2
    indices = [known(a) for a in equation.invars[first : 2 if indexed else None]]
    known_indices = [i for i in indices if i is not None]
    if len(known_indices) < len(indices):
        return None
    if indexed:
        return windows_of(equation).places(shapes[0], known_indices[0])
    block = equation.out_avals[0].shape if first == 1 else shapes[1]
    return of_block(block).places(shapes[0], np.array([int(i) for i in known_indices], np.int64))


def sources(equation: Any, known: Callable[[Any], np.ndarray | None]) -> list[np.ndarray] | None:
    """Returns for each element of each result the number of the operand's element that it is.

    The elements of all operands are numbered one after another. None of primitives that do
    something else, of indices that are not known, and of a scatter that overwrites an element
    twice: which one counts is the device's choice.
    """
    name, shapes = equation.primitive.name, [a.shape for a in equation.in_avals]
    if facts(name).form == "move":
        starts = np.cumsum([0, *map(prod, shapes)])
        numbers = list(map(numbered, shapes, starts.tolist()))
        return move_elements(name, equation.params, numbers, equation.out_avals[0].shape)
    at = targets(equation, known) if takes(name) and not adds(name) else None
    if at is None or facts(name).form == "take":
        return at if at is None else [at]
    flat, updates = at.reshape(-1), facts(name).updates or 0
    put = np.flatnonzero(flat >= 0)
    if len(np.unique(flat[put])) < len(put):
        return None
    elements = numbered(shapes[0])
    elements.reshape(-1)[flat[put]] = put + sum(map(prod, shapes[:updates]))
    return [elements]


def sources_in(
    equation: Any, operand: int, known: Callable[[Any], np.ndarray | None]
) -> np.ndarray | None:
    """Returns `sources` within one operand, of an equation with one result; -1 for other operands.

    For the updates that a scatter adds, it is the result's element that each is added to.
    """
    shapes = [a.shape for a in equation.in_avals]
    if adds(equation.primitive.name):
        return numbered(shapes[0]) if operand == 0 else targets(equation, known)
    numbers = sources(equation, known)
    if numbers is None or len(numbers) > 1:
        return None
    places = numbers[0] - sum(map(prod, shapes[:operand]))
    return np.where((places >= 0) & (places < prod(shapes[operand])), places, -1)
