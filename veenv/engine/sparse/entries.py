"""Adds, multiplies and transposes matrices that are stored entry by entry.

`Indexed` has places that are known when a function is traced: only values are computed. `Entries`
has places that are computed with the values, where indices are arguments or results of a sort;
there are as many entries as index arrays say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import prod
from operator import add as add_arrays
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat, limits
from veenv.engine.edge import Edge, both, keep_diagonal, respread_entries, select
from veenv.engine.edge import transpose as transposed_edge
from veenv.engine.sparse.pattern import (
    Collection,
    Numbers,
    Pattern,
    collected,
    collection,
    joined,
    meetings,
    num_meetings,
    padded,
    placed,
)
from veenv.engine.sparse.summands import Term, numbered_entries, offsets_of, term
from veenv.rules.indexmap import strides_of
from veenv.structure.structure import FREE

Shapes: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""The shapes of the out axes and of the in axes."""


@dataclass(frozen=True)
class Indexed:
    """A matrix as entries at known places.

    Attributes:
      pattern: where they are.
      source: as many values as entries, or a sum that is not yet formed; None if all are ones.
      dtype: dtype of the values, or what ones become when stored.
      mask: bool [nse], what is not shut out by a select (`veenv.engine.edge`); None: all.
    """

    pattern: Pattern
    source: Numbers | SumOfEntries | None
    dtype: Any
    mask: Array | None = None

    @cached_property
    def values(self) -> Numbers | None:
        """The values, one for each entry, summed on first use; None if all are ones."""
        source = self.source
        return source.numbers(self.dtype) if isinstance(source, SumOfEntries) else source

    def numbers(self) -> Numbers:
        """Returns the values, ones too."""
        if self.values is not None:
            return self.values
        return Numbers.ones(self.pattern.nse, self.dtype)

    def stored(self) -> Array:
        """Returns the values [nse]."""
        return self.numbers().array()


@dataclass(frozen=True)
class SumOfEntries:
    """A sum of matrices without masks, whose entries are not yet added."""

    summands: tuple[Indexed, ...]
    collect: Collection

    def numbers(self, dtype: Any) -> Numbers:
        """Returns the sums, cast to `dtype`."""
        return joined([x.numbers().astype(dtype) for x in self.summands]).collected(self.collect)


def selected(indices: np.ndarray, in_shape: Sequence[int], dtype: Any) -> Indexed:
    """Returns the matrix that takes results from elements by flat indices, -1 for none."""
    rows = np.arange(indices.size)
    pattern, _ = collected(rows, indices.reshape(-1), indices.shape, in_shape)
    return Indexed(pattern, None, dtype)


def index_map(indices: np.ndarray, shapes: Shapes, dtype: Any, *, adds: bool) -> Indexed:
    """Returns the matrix that moves an element to each result, or `adds` each element to one."""
    out_shape, in_shape = shapes
    if adds:
        return transpose(selected(indices.reshape(in_shape), out_shape, dtype))
    return selected(indices.reshape(out_shape), in_shape, dtype)


def is_light(post: Indexed, pre: Indexed) -> bool:
    """Returns whether post · pre is better formed entry by entry than of dense matrices."""
    dense = post.pattern.sizes[0] * pre.pattern.sizes[1]
    most = min(limits.TABLE, limits.THIN * dense + limits.LISTED)
    return num_meetings(post.pattern, pre.pattern) <= most


def multiply_known(post: Indexed, pre: Indexed, *, upper: bool = False) -> Indexed:
    """Computes the product post · pre; `upper`: of it what is on the diagonal and above it."""
    dtype, p, q = _compat.promoted(post.dtype, pre.dtype), post.pattern, pre.pattern
    left, right = meetings(p, q)
    if upper:
        above = p.rows[left] <= q.cols[right]
        left, right = left[above], right[above]
    pattern, collect = collected(p.rows[left], q.cols[right], p.out_shape, q.in_shape)
    if collect.is_gather:  # ordered before the product, not after
        assert collect.table is not None
        left, right = left[collect.table], right[collect.table]
    values = _products(post, left, pre, right, dtype)
    if values is None and not collect.is_gather:
        values = Numbers.ones(len(left), dtype)
    masks = [None if m is None else m[at] for m, at in ((post.mask, left), (pre.mask, right))]
    mask = both(*masks)
    if values is not None and not collect.is_gather:
        values = values.collected(collect)
        mask = None if mask is None else collect(mask.astype(np.int32)) > 0
    return Indexed(pattern, values, dtype, mask)


def _products(
    post: Indexed, left: np.ndarray, pre: Indexed, right: np.ndarray, dtype: Any
) -> Numbers | None:
    """Multiplies entries that meet, zero where either is shut out; None if all are ones."""
    factors: list[Numbers] = []
    signs: np.ndarray | None = None
    for x, at, other, other_at in ((post, left, pre, right), (pre, right, post, left)):
        if x.values is None:
            continue
        value = x.values.astype(dtype).take(at)
        if x.values.unit:
            signs = value.signed(signs).signs
            continue
        if other.mask is not None:
            value = Numbers(select(other.mask[other_at], value.array(), 0))
        factors.append(value)
    if not factors:
        return None if signs is None else Numbers.ones(len(left), dtype, signs)
    if len(factors) == 1:
        return factors[0].signed(signs)
    return Numbers(factors[0].array() * factors[1].array())


def total_known(several: Sequence[Indexed]) -> Indexed:
    """Adds matrices of one shape, at least one.

    Values are added on first use. Until then a few more matrices may join the sum, so that one
    gather moves all values to their places.
    """
    if len(several) == 1:
        return several[0]
    alike: dict[Pattern, list[Indexed]] = {}
    for x in _summands(several):
        alike.setdefault(x.pattern, []).append(x)
    several = tuple(_sum(group) for group in alike.values())
    if len(several) == 1:
        return several[0]
    dtype = _compat.promoted(*(x.dtype for x in several))
    first = several[0].pattern
    rows = np.concatenate([x.pattern.rows for x in several])
    cols = np.concatenate([x.pattern.cols for x in several])
    pattern, collect = collected(rows, cols, first.out_shape, first.in_shape)
    mask = _either(several, collect)
    if collect.is_gather and all(x.source is None for x in several):
        return Indexed(pattern, None, dtype, mask)
    sums = SumOfEntries(several, collect)
    return Indexed(pattern, sums if mask is None else sums.numbers(dtype), dtype, mask)


def _summands(several: Sequence[Indexed]) -> Sequence[Indexed]:
    """Replaces sums not yet evaluated by their summands, if those are few."""
    summands: list[Indexed] = []
    for x in several:
        asked = "values" in x.__dict__
        summands.extend(
            x.source.summands if isinstance(x.source, SumOfEntries) and not asked else [x]
        )
    return summands if len(summands) <= limits.FEW else several


def _sum(several: Sequence[Indexed]) -> Indexed:
    """Adds matrices of one pattern."""
    if len(several) == 1:
        return several[0]
    dtype = _compat.promoted(*(x.dtype for x in several))
    values = reduce(add_arrays, (x.stored().astype(dtype) for x in several))
    return Indexed(several[0].pattern, Numbers(values), dtype, _either(several, None))


def _either(several: Sequence[Indexed], collect: Any) -> Array | None:
    if all(x.mask is None for x in several):
        return None
    masks = [jnp.ones(x.pattern.nse, bool) if x.mask is None else x.mask for x in several]
    if collect is None:
        return jnp.stack(masks).any(axis=0)
    return collect(jnp.concatenate(masks).astype(np.int32)) > 0


def transpose(x: Indexed) -> Indexed:
    """Returns the matrix with rows and columns exchanged."""
    p = x.pattern
    pattern, collect = collected(p.cols, p.rows, p.in_shape, p.out_shape)
    values = None if x.values is None else x.values.collected(collect)
    mask = None if x.mask is None else collect(x.mask)
    return Indexed(pattern, values, x.dtype, mask)


def upper(x: Indexed) -> Indexed:
    """Returns the upper triangle of a square matrix, with its diagonal."""
    return _selected(x, np.flatnonzero(x.pattern.rows <= x.pattern.cols))


def mirrored(x: Indexed) -> Indexed:
    """Returns the symmetric matrix of an upper triangle."""
    p = x.pattern
    above = np.flatnonzero(p.rows < p.cols)
    rows, cols = np.append(p.rows, p.cols[above]), np.append(p.cols, p.rows[above])
    pattern, collect = collected(rows, cols, p.out_shape, p.in_shape)
    assert collect.table is not None
    return _selected(x, np.append(np.arange(p.nse), above)[collect.table], pattern)


def only(x: Indexed, pattern: Pattern) -> Indexed | None:
    """Returns the entries at the places of a pattern; None if those are all."""
    numbers = np.flatnonzero(np.isin(x.pattern.keys, pattern.keys, assume_unique=True))
    if len(numbers) == x.pattern.nse:
        return None
    return _selected(x, numbers)


def _selected(x: Indexed, at: np.ndarray, pattern: Pattern | None = None) -> Indexed:
    """Selects entries of a matrix, in the order of a pattern or in their current one."""
    p = x.pattern
    pattern = pattern or Pattern(p.out_shape, p.in_shape, p.rows[at], p.cols[at])
    values = None if x.values is None else x.values.take(at)
    return Indexed(pattern, values, x.dtype, None if x.mask is None else x.mask[at])


def known_of_edge(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int]) -> Indexed | None:
    """Returns an edge, no operator, as entries; None if its places are not known when tracing."""
    t = term(e)
    places = t.coordinates()
    if places is None:
        return None
    pattern, collect = collected(*places, out_shape, in_shape)
    if e.values is None and e.mask is None:
        minus = np.full(pattern.nse, -1, np.int8)
        signs = None if e.sign > 0 else Numbers.ones(pattern.nse, e.dtype, minus)
        return Indexed(pattern, signs, e.dtype)
    mask = None
    if e.mask is not None:
        full = jnp.broadcast_to(e.mask, t.values.shape)
        mask = collect(respread_entries(full, t.structure).reshape(-1))
    entry_values = Numbers(t.values.reshape(-1), numbered_entries(t.structure))
    return Indexed(pattern, entry_values.collected(collect), e.dtype, mask)


Places: TypeAlias = np.ndarray | Array
"""Known when tracing if it is an array of NumPy."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Entries:
    """A summand of a sparse tensor as entries, at known or computed places.

    Some entries at computed places may be at one place, where they add up, and some at none, where
    row and column are -1.

    Attributes:
      values: [nse], row by row where a pattern says the places.
      pattern: the places of the entries; None if they are computed with the values.
      rows: integers [nse], flat out index of each entry where they are computed; of NumPy if known.
      cols: integers [nse], flat in index of each entry, likewise.
      shapes: of the out axes and of the in axes, where places are computed.

    Examples:
      >>> import veenv
      >>> taken = veenv.jacve(lambda x, i: jnp.sin(x)[i], sparse_representation=True)
      >>> taken(jnp.zeros(3), np.array([2, 0])).terms[0].pattern.cols.tolist()
      [2, 0]
      >>> jax.jit(taken)(jnp.zeros(1000), jnp.array([5, 7])).terms[0].cols.tolist()
      [5, 7]
    """

    values: Array
    pattern: Pattern | None = field(default=None, metadata={"static": True})
    rows: Any = None
    cols: Any = None
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = field(
        default=((), ()), metadata={"static": True}
    )

    @classmethod
    def at(cls, values: Array, rows: Places, cols: Places, *shapes: Sequence[int]) -> Entries:
        """Returns entries at computed places of a matrix of these out and in axes."""
        return cls(values, None, rows, cols, (tuple(shapes[0]), tuple(shapes[1])))

    @property
    def nse(self) -> int:
        """Number of entries."""
        return self.values.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch that `vmap` has made: () without one."""
        return jnp.shape(self.values)[:-1]

    @property
    def T(self) -> Entries:
        """The matrix with rows and columns exchanged."""
        if self.pattern is None:
            return replace(self, rows=self.cols, cols=self.rows, shapes=self.shapes[::-1])
        x = transpose(Indexed(self.pattern, Numbers(self.values), self.values.dtype))
        return Entries(x.stored(), x.pattern)

    def scaled(self, factor: Array) -> Entries:
        """Returns the entries times a number."""
        return replace(self, values=self.values * factor)

    def entries(self) -> Array:
        """Returns the value of every entry."""
        return self.values

    def key(self) -> Pattern | None:
        """Returns a key of the places of its entries; None if they are arrays."""
        return self.pattern

    def coordinates(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns flat out and in index of every entry; None if they are being traced."""
        rows, cols = self._places()
        if any(_compat.is_traced(x) or isinstance(x, jax.ShapeDtypeStruct) for x in (rows, cols)):
            return None
        return np.asarray(rows), np.asarray(cols)

    def traced_coordinates(self) -> tuple[Array, Array]:
        """Returns flat out and in index of every entry as arrays of JAX."""
        rows, cols = self._places()
        return jnp.asarray(rows), jnp.asarray(cols)

    def _places(self) -> tuple[Any, Any]:
        p: Any = self if self.pattern is None else self.pattern
        return p.rows, p.cols

    def dense(self, dtype: Any) -> Array:
        """Returns the dense matrix, flat out indices by flat in indices."""
        if self.pattern is None:
            rows, cols = self.traced_coordinates()
            there, sizes = (rows >= 0) & (cols >= 0), tuple(map(prod, self.shapes))
            rows = jnp.where(there, rows, sizes[0])  # one past the last row is dropped
            zeros, values = jnp.zeros(sizes, dtype), self.values.astype(dtype)
            return zeros.at[rows, cols].add(values, mode="drop")
        return placed(self.values.astype(dtype), self.pattern)

    def times(self, x: Array) -> Array:
        """Multiplies the matrix by one of shape [columns, …]."""
        p, ones = self.pattern, [1] * (x.ndim - 1)
        if p is None:
            rows, cols = self.traced_coordinates()
            there, size = (rows >= 0) & (cols >= 0), prod(self.shapes[0])
            rows = jnp.where(there, rows, size)  # one past the last row is dropped
            each = jnp.where(there, self.values, 0).astype(x.dtype).reshape(-1, *ones)
            zeros = jnp.zeros((size, *x.shape[1:]), x.dtype)
            return zeros.at[rows].add(x[jnp.maximum(cols, 0)] * each, mode="drop")
        values = self.values.astype(x.dtype).reshape(-1, *ones)
        sums = collection(np.arange(p.nse), p.rows, p.sizes[0], p.nse)  # row by row
        if sums.table is None:
            return sums(values * x[p.cols])
        # Short rows: products of all first entries, of all second ones, …
        table = sums.table.reshape(p.sizes[0], -1)
        columns = np.append(p.cols, p.sizes[1])[table]
        values, x = padded(values, table), padded(x, columns)
        products = [values[e] * x[c] for e, c in zip(table.T, columns.T, strict=True)]
        return sum(products[1:], products[0])


Matrix: TypeAlias = Indexed | Entries
"""Entries at known places, and at computed ones."""


def computed_map(e: Edge, shapes: Shapes, *, adds: bool) -> Entries | None:
    """Returns a partial that only moves numbers to computed places, as entries.

    There is one entry for each result element, or for each operand element if it `adds`. None if
    the structure has further axes.
    """
    if adds:
        flipped = computed_map(transposed_edge(e), (shapes[1], shapes[0]), adds=False)
        return None if flipped is None else flipped.T
    s = e.structure
    free = [j for j in range(len(s.in_shape)) if j not in s.link_in and j not in s.pairs]
    if e.link is None or free or s.link_values or (e.values is not None and not s.unit):
        return None
    in_strides = strides_of(s.in_shape)
    size = prod(e.link.in_shape)
    with jax.ensure_compile_time_eval():
        numbers = jnp.arange(1, size + 1, dtype=jnp.float64 if size >= 2**24 else jnp.float32)
    sources = e.link.apply(numbers.reshape(e.link.in_shape)).astype(jnp.int32) - 1
    offsets = offsets_of(s.in_shape, s.link_in)
    on_link = [n if k in s.link_out else 1 for k, n in enumerate(s.out_shape)]
    cols = jnp.asarray(offsets, jnp.int32)[jnp.maximum(sources, 0)].reshape(on_link)
    for k, j in enumerate(s.pairs):
        if j != FREE:
            steps = np.arange(s.out_shape[k], dtype=np.int32) * in_strides[j]
            cols = cols + steps.reshape([1] * k + [-1] + [1] * (len(s.out_shape) - k - 1))
    cols = jnp.broadcast_to(jnp.where(sources.reshape(on_link) >= 0, cols, -1), s.out_shape)
    rows = np.arange(prod(s.out_shape), dtype=np.int32)
    values = jnp.full(rows.size, e.sign, e.dtype)
    return Entries.at(values, rows, cols.reshape(-1), *shapes)


def blocks(e: Edge, shapes: Shapes) -> Indexed | None:
    """Returns a partial that moves numbers, with an entry at each place that may be reached.

    Places without an entry are masked, as their zeros could meet infinity.
    """
    x = known_of_edge(keep_diagonal(e), *shapes)
    return None if x is None else replace(x, mask=both(x.mask, x.stored() != 0))


def one_hot(e: Edge, shapes: Shapes) -> Entries | None:
    """Returns a partial between an array and one of its elements, as one entry."""
    if e.values is None or e.values.size != prod(shapes[0]) * prod(shapes[1]):
        return None
    flat = e.values.reshape(-1)
    at = jnp.argmax(flat != 0).reshape(1)
    far = jnp.where(flat[at] != 0, at, -1).astype(jnp.int32)
    near = np.zeros(1, np.int32)
    rows, cols = (far, near) if prod(shapes[1]) == 1 else (near, far)
    return Entries.at(e.sign * flat[at], rows, cols, *shapes)


def of_edge(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int]) -> Matrix:
    """Returns an edge of the engine, no operator, as entries."""
    known = known_of_edge(e, out_shape, in_shape)
    if known is not None:
        return known
    t: Term = term(e)
    rows, cols = t.traced_coordinates()
    values = jnp.where(rows >= 0, t.entries(), 0)
    return Entries.at(values, rows, cols, out_shape, in_shape)


def as_computed(x: Matrix, *, by_rows: bool = False) -> Entries:
    """Returns a matrix with its places as arrays; what a select shuts out has no place.

    Of a masked matrix the columns stay known, or the rows if `by_rows`.
    """
    if isinstance(x, Entries):
        return x
    p, values = x.pattern, x.stored().astype(x.dtype)
    rows: Places = p.rows
    cols: Places = p.cols
    if x.mask is not None:
        values = jnp.where(x.mask, values, 0)
        there = jnp.where(x.mask, cols if by_rows else rows, -1)
        rows, cols = (rows, there) if by_rows else (there, cols)
    return Entries.at(values, rows, cols, p.out_shape, p.in_shape)


def total(several: Sequence[Matrix]) -> Matrix:
    """Adds matrices of one shape, at least one."""
    known = [x for x in several if isinstance(x, Indexed)]
    if len(known) == len(several):
        return total_known(known)
    parts = [x for x in several if isinstance(x, Entries)]
    parts += [as_computed(total_known(known))] if known else []
    dtype = _compat.promoted(*(x.values.dtype for x in parts))
    first = parts[0]
    values = jnp.concatenate([x.values.astype(dtype) for x in parts])
    rows, cols = (_joined([getattr(x, k) for x in parts]) for k in ("rows", "cols"))
    return Entries.at(values, rows, cols, *first.shapes)


def _joined(several: Sequence[Places]) -> Places:
    known = all(isinstance(x, np.ndarray) for x in several)
    return np.concatenate(several) if known else jnp.concatenate([*map(jnp.asarray, several)])


def multiply(post: Matrix, pre: Matrix, *, upper: bool = False) -> Matrix | None:
    """Computes the product post · pre; `upper`: nothing below its diagonal is needed.

    None where entries are too many, or where post's columns and pre's rows are both computed.
    """
    if isinstance(post, Indexed) and isinstance(pre, Indexed):
        light = is_light(post, pre)
        return multiply_known(post, pre, upper=upper) if light else None
    left, right = as_computed(post), as_computed(pre, by_rows=True)
    if isinstance(right.rows, np.ndarray):
        return _through(left, right)
    if isinstance(left.cols, np.ndarray):
        flipped = _through(right.T, left.T)
        return None if flipped is None else flipped.T
    return None


def _through(post: Entries, pre: Entries) -> Entries | None:
    """Multiplies where the rows of `pre` are known: each entry of `post` meets one row of it."""
    assert isinstance(pre.rows, np.ndarray)
    table = _by_row(pre.rows, prod(pre.shapes[0]), len(pre.rows))
    size, most = post.nse, table.shape[1]
    if size * most > limits.TABLE:
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
    known = isinstance(post.rows, np.ndarray)  # rows stay known; column -1 means no entry
    return Entries.at(
        values.reshape(-1),
        np.repeat(post.rows, most) if known else jnp.where(there, rows[:, None], -1).reshape(-1),
        jnp.where(there, far, -1).reshape(-1),
        post.shapes[0],
        pre.shapes[1],
    )


def _by_row(rows: np.ndarray, size: int, none: int) -> np.ndarray:
    """Returns the numbers of the entries of each row, int32 [size, k], padded by `none`."""
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    counts = np.bincount(rows[order], minlength=size)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.full((size, int(counts.max(initial=0))), none, np.int32)
    table[rows[order], np.arange(len(order)) - starts[rows[order]]] = order
    return table
