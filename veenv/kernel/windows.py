"""Where a gather reads and a scatter writes, once its indices are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np

_OUTSIDE = -1


@dataclass(frozen=True)
class Windows:
    """How indices place windows in an array, as a gather's and a scatter's parameters say.

    Attributes:
      sizes: of a window along every axis of the array.
      dropped: axes of the array along which a window has no axis of its own.
      indexed: the axis of the array that each number of an index is for.
      shared: pairs of an axis of the array and one of the indices that go together.
      own: axes of the windows among those of the result (of a scatter: of the updates).
      clipped: a window that is not inside is moved there; otherwise it is left out.
    """

    sizes: tuple[int, ...]
    dropped: tuple[int, ...]
    indexed: tuple[int, ...]
    shared: tuple[tuple[int, int], ...]
    own: tuple[int, ...]
    clipped: bool

    def places(self, shape: Sequence[int], indices: np.ndarray) -> np.ndarray:
        """The row-major places in the array of the entries of the result; -1 for none.

        Args:
          shape: of the array.
          indices: integers [..., number of indexed axes].

        Example:
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
        found = np.zeros((*batch, *offsets.shape[1:]), np.int64)
        for axis, start in enumerate(starts):
            stride, last = prod(shape[axis + 1 :]), shape[axis] - self.sizes[axis]
            inside &= (start >= 0) & (start <= last)
            start = np.clip(start, 0, max(0, last))
            found += stride * start.reshape(batch + (1,) * len(window))
            if axis in window:
                found += stride * offsets[window.index(axis)]
        if not self.clipped:
            found[~inside] = _OUTSIDE
        return self._arranged(found, len(batch))

    def owners(self, shape: Sequence[int], batch: Sequence[int]) -> np.ndarray:
        """The number of the index that each entry of the result goes by; `batch` is their shape."""
        window = [self.sizes[axis] for axis in range(len(shape)) if axis not in self.dropped]
        numbers = np.arange(prod(batch)).reshape((*batch, *(1 for _ in window)))
        return self._arranged(np.broadcast_to(numbers, (*batch, *window)), len(batch))

    def _arranged(self, found: np.ndarray, count: int) -> np.ndarray:
        """With the axes of windows where the result has them; `count` are those of indices."""
        others, own = iter(range(count)), iter(range(count, found.ndim))
        return found.transpose([next(own if k in self.own else others) for k in range(found.ndim)])


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


def _mode(params: Any) -> Any:
    return jax.lax.GatherScatterMode.from_any(params["mode"])
