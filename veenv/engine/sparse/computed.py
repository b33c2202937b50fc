"""Matrices as entries whose places are computed with the values: indices that are arguments.

There are as many entries as index arrays say; some may be at one place, where they add up, and
some at none, where row and column are -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat
from veenv.engine.edge import Edge
from veenv.engine.edge import transpose as transposed_edge
from veenv.engine.sparse import indexed
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.sparse.summands import Term, strides_of, term
from veenv.structure.structure import FREE

Numbers: TypeAlias = np.ndarray | Array
"""Known when tracing if it is an array of NumPy."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Computed:
    """A matrix, or a summand of a sparse tensor, given by entries at computed places.

    Attributes:
      values: [n].
      rows: integers [n], flat out index of each entry, -1 for none; of NumPy if they are known.
      cols: integers [n], flat in index of each entry, likewise.
      out_shape: shape of the out axes.
      in_shape: shape of the in axes.

    Example:
      >>> import veenv
      >>> taken = veenv.jacve(lambda x, i: jnp.sin(x)[i], sparse_representation=True)
      >>> jax.jit(taken)(jnp.zeros(1000), jnp.array([5, 7])).pattern.cols.tolist()
      [5, 7]
    """

    values: Array
    rows: Numbers
    cols: Numbers
    out_shape: tuple[int, ...] = field(metadata={"static": True})
    in_shape: tuple[int, ...] = field(metadata={"static": True})

    @property
    def nse(self) -> int:
        """Number of entries."""
        return self.values.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch that `vmap` has made: () without one."""
        return jnp.shape(self.values)[:-1]

    @property
    def T(self) -> Computed:
        """Rows and columns exchanged."""
        return Computed(self.values, self.cols, self.rows, self.in_shape, self.out_shape)

    def astype(self, dtype: Any) -> Computed:
        """The matrix in another dtype."""
        return replace(self, values=self.values.astype(dtype))

    def entries(self) -> Array:
        """The value of every entry."""
        return self.values

    def coordinates(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Flat out and in index of every entry; None if they are being traced."""
        places = self.rows, self.cols
        if any(_compat.is_traced(x) or isinstance(x, jax.ShapeDtypeStruct) for x in places):
            return None
        return np.asarray(self.rows), np.asarray(self.cols)

    def traced_coordinates(self) -> tuple[Array, Array]:
        """As `coordinates`, as arrays of JAX."""
        return jnp.asarray(self.rows), jnp.asarray(self.cols)

    def dense(self, dtype: Any) -> Array:
        """The dense array of shape ``out_shape + in_shape``."""
        return self.times(jnp.eye(prod(self.in_shape), dtype=dtype)).reshape(
            self.out_shape + self.in_shape
        )

    def times(self, x: Array) -> Array:
        """The matrix times one of shape [columns, …]."""
        rows, cols = self.traced_coordinates()
        there = (rows >= 0) & (cols >= 0)
        # One past the last row is dropped.
        rows = jnp.where(there, rows, prod(self.out_shape))
        each = jnp.where(there, self.values, 0).astype(x.dtype)
        picked = x[jnp.maximum(cols, 0)] * each.reshape(-1, *[1] * (x.ndim - 1))
        zeros = jnp.zeros((prod(self.out_shape), *x.shape[1:]), x.dtype)
        return zeros.at[rows].add(picked, mode="drop")


Matrix: TypeAlias = Indexed | Computed


def moved(e: Edge, shapes: tuple[Sequence[int], Sequence[int]], *, adds: bool) -> Computed | None:
    """A partial that only moves numbers, to places that are computed.

    Args:
      e: the partial, unevaluated.
      shapes: of the result and the operand.
      adds: each operand element is added to one result; otherwise each result is one element.

    Returns:
      An entry for each result element, or operand element if it adds; None if its structure has
      further axes.
    """
    if adds:
        flipped = moved(transposed_edge(e), (shapes[1], shapes[0]), adds=False)
        return None if flipped is None else flipped.T
    s = e.structure
    free = [j for j in range(len(s.in_shape)) if j not in s.link_in and j not in s.pairs]
    if e.link is None or free or s.link_values or (e.values is not None and not s.unit):
        return None
    in_strides = strides_of(s.in_shape)
    size = prod(e.link.in_shape)
    with jax.ensure_compile_time_eval():
        numbers = jnp.arange(1, size + 1, dtype=jnp.float64 if size >= 2**24 else jnp.float32)
    taken = e.link.apply(numbers.reshape(e.link.in_shape)).astype(jnp.int32) - 1
    offsets = np.zeros(1, np.int32)
    for j in s.link_in:
        offsets = (offsets[:, None] + np.arange(s.in_shape[j]) * in_strides[j]).reshape(-1)
    on_link = [n if k in s.link_out else 1 for k, n in enumerate(s.out_shape)]
    cols = jnp.asarray(offsets, jnp.int32)[jnp.maximum(taken, 0)].reshape(on_link)
    for k, j in enumerate(s.pairs):
        if j != FREE:
            steps = np.arange(s.out_shape[k], dtype=np.int32) * in_strides[j]
            cols = cols + steps.reshape([1] * k + [-1] + [1] * (len(s.out_shape) - k - 1))
    cols = jnp.broadcast_to(jnp.where(taken.reshape(on_link) >= 0, cols, -1), s.out_shape)
    rows = np.arange(prod(s.out_shape), dtype=np.int32)
    values = jnp.full(rows.size, e.sign, e.dtype)
    return Computed(values, rows, cols.reshape(-1), tuple(shapes[0]), tuple(shapes[1]))


def one_hot(e: Edge, shapes: tuple[Sequence[int], Sequence[int]]) -> Computed | None:
    """A partial between an array and one number that is one of its elements, as one entry.

    Args:
      e: the partial, with a value for each element of the array, all zero but one at most.
      shapes: of the result and the operand.
    """
    if e.values is None or e.values.size != prod(shapes[0]) * prod(shapes[1]):
        return None
    flat = e.values.reshape(-1)
    at = jnp.argmax(flat != 0).reshape(1)
    far = jnp.where(flat[at] != 0, at, -1).astype(jnp.int32)
    near = np.zeros(1, np.int32)
    rows, cols = (far, near) if prod(shapes[1]) == 1 else (near, far)
    return Computed(e.sign * flat[at], rows, cols, tuple(shapes[0]), tuple(shapes[1]))


def of_edge(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int]) -> Matrix:
    """An edge of the engine, no operator, as entries."""
    found = indexed.of_edge(e, out_shape, in_shape)
    if found is not None:
        return found
    t: Term = term(e)
    rows, cols = t.traced_coordinates()
    values = jnp.where(rows >= 0, t.entries(), 0)
    return Computed(values, rows, cols, tuple(out_shape), tuple(in_shape))


def as_computed(x: Matrix) -> Computed:
    """A matrix with its places as arrays; what a select shuts out has no place."""
    if isinstance(x, Computed):
        return x
    p, rows = x.pattern, x.pattern.rows
    values = x.stored().astype(x.dtype)
    if x.mask is not None:
        rows, values = jnp.where(x.mask, rows, -1), jnp.where(x.mask, values, 0)
    return Computed(values, rows, p.cols, p.out_shape, p.in_shape)


def total(several: Sequence[Matrix]) -> Matrix:
    """The sum of at least one matrix of one shape."""
    known = [x for x in several if isinstance(x, Indexed)]
    if len(known) == len(several):
        return indexed.total(known)
    parts = [x for x in several if isinstance(x, Computed)]
    parts += [as_computed(indexed.total(known))] if known else []
    dtype = _compat.promoted(*(x.values.dtype for x in parts))
    first = parts[0]
    values = jnp.concatenate([x.values.astype(dtype) for x in parts])
    rows, cols = (_joined([getattr(x, k) for x in parts]) for k in ("rows", "cols"))
    return Computed(values, rows, cols, first.out_shape, first.in_shape)


def _joined(several: Sequence[Numbers]) -> Numbers:
    known = all(isinstance(x, np.ndarray) for x in several)
    return np.concatenate(several) if known else jnp.concatenate([*map(jnp.asarray, several)])


def multiply(post: Matrix, pre: Matrix, *, upper: bool = False) -> Matrix | None:
    """The product post · pre.

    Args:
      post: the left factor.
      pre: the right one.
      upper: both have known places, and nothing below the product's diagonal is asked for.

    Returns:
      Its entries; None where they are too many, or the places on both sides of what is between are
      computed.
    """
    if isinstance(post, Indexed) and isinstance(pre, Indexed):
        light = indexed.is_light(post, pre)
        return indexed.multiply(post, pre, upper=upper) if light else None
    left, right = as_computed(post), as_computed(pre)
    if isinstance(right.rows, np.ndarray):
        return _through(left, right)
    if isinstance(left.cols, np.ndarray):
        flipped = _through(right.T, left.T)
        return None if flipped is None else flipped.T
    return None


def _through(post: Computed, pre: Computed) -> Computed | None:
    """The product where the rows of `pre` are known: each entry of `post` meets one row of it."""
    assert isinstance(pre.rows, np.ndarray)
    table = _by_row(pre.rows, prod(pre.out_shape), len(pre.rows))
    size, most = post.nse, table.shape[1]
    if size * most > indexed.MOST_ENTRIES:
        return None
    dtype = _compat.promoted(post.values.dtype, pre.values.dtype)
    rows, cols = post.traced_coordinates()
    met = jnp.asarray(table)[jnp.maximum(cols, 0)]  # [size, most]
    there = ((rows >= 0) & (cols >= 0))[:, None] & (met < pre.nse)
    met = jnp.minimum(met, max(pre.nse - 1, 0))
    far = jnp.asarray(pre.cols)[met] if pre.nse else jnp.zeros((size, most), jnp.int32)
    there &= far >= 0
    near = jnp.where(there, post.values.astype(dtype)[:, None], 0)
    values = near * (jnp.where(there, pre.values.astype(dtype)[met], 0) if pre.nse else 0)
    return Computed(
        values.reshape(-1),
        jnp.where(there, rows[:, None], -1).reshape(-1),
        jnp.where(there, far, -1).reshape(-1),
        post.out_shape,
        pre.in_shape,
    )


def _by_row(rows: np.ndarray, size: int, none: int) -> np.ndarray:
    """int32 [size, k]: the numbers of the entries of each row, `none` where there are fewer."""
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    counts = np.bincount(rows[order], minlength=size)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.full((size, int(counts.max(initial=0))), none, np.int32)
    table[rows[order], np.arange(len(order)) - starts[rows[order]]] = order
    return table
