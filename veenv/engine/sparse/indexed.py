"""Matrices as entries at known places, and their sums and products.

The places are NumPy arrays and known when a function is traced; only values are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add as add_arrays
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv import _compat
from veenv.engine.edge import Edge, both, respread_entries, select
from veenv.engine.sparse.numbers import Numbers, joined
from veenv.engine.sparse.pattern import Collection, Pattern, collected, meetings, num_meetings
from veenv.engine.sparse.summands import numbered_entries, term

MOST_ENTRIES = 1 << 25
"""Most entries of a matrix, and most products for one, that are held entry by entry."""

_MOST_SUMMANDS = 8
"""Most matrices that are kept one by one until their sum is asked for."""


@dataclass(frozen=True)
class Indexed:
    """A matrix given by its entries.

    Attributes:
      pattern: where they are.
      given: as many values as entries, or what they are the sum of; None if all are ones.
      dtype: dtype of the values, or what ones become when stored.
      mask: bool [nse], what is not shut out by a select (`veenv.engine.edge`); None: all.
    """

    pattern: Pattern
    given: Numbers | Sum | None
    dtype: Any
    mask: Array | None = None

    @cached_property
    def values(self) -> Numbers | None:
        """As many as entries, added up where somebody asks for them; None if all are ones."""
        return self.given.numbers(self.dtype) if isinstance(self.given, Sum) else self.given

    def numbers(self) -> Numbers:
        """The values, ones too."""
        if self.values is not None:
            return self.values
        return Numbers.ones(self.pattern.nse, self.dtype)

    def stored(self) -> Array:
        """The values [nse]."""
        return self.numbers().array()


@dataclass(frozen=True)
class Sum:
    """Values that are the sums of entries of matrices of one shape, none of which has a mask."""

    summands: tuple[Indexed, ...]
    collect: Collection

    def numbers(self, dtype: Any) -> Numbers:
        """They in a dtype."""
        return joined([x.numbers().astype(dtype) for x in self.summands]).collected(self.collect)


def selected(indices: np.ndarray, in_shape: Sequence[int], dtype: Any) -> Indexed:
    """The matrix that takes its results from the elements of an array.

    Args:
      indices: integers of the result's shape: the flat index of the element, below zero for none.
      in_shape: shape of the array.
      dtype: what its ones become when stored.
    """
    rows = np.arange(indices.size)
    pattern, _ = collected(rows, indices.reshape(-1), indices.shape, in_shape)
    return Indexed(pattern, None, dtype)


def taken(found: np.ndarray, shapes: Sequence[Sequence[int]], dtype: Any, *, adds: bool) -> Indexed:
    """The matrix of what takes elements, or adds them to results.

    Args:
      found: for each result the element that it is; with `adds`, for each element the result that
        it is added to; -1 for none.
      shapes: of the result and of what is taken from.
      dtype: of the entries.
      adds: see above.
    """
    out_shape, in_shape = shapes
    if adds:
        return transpose(selected(found.reshape(in_shape), out_shape, dtype))
    return selected(found.reshape(out_shape), in_shape, dtype)


def is_light(post: Indexed, pre: Indexed) -> bool:
    """Whether the product post · pre is better formed entry by entry than of dense matrices."""
    dense = post.pattern.sizes[0] * pre.pattern.sizes[1]
    return num_meetings(post.pattern, pre.pattern) <= min(MOST_ENTRIES, 4 * dense + (1 << 20))


def multiply(post: Indexed, pre: Indexed, *, upper: bool = False) -> Indexed:
    """The product post · pre; `upper`: of it what is on the diagonal and above it."""
    dtype = _compat.promoted(post.dtype, pre.dtype)
    left, right = meetings(post.pattern, pre.pattern)
    if upper:
        above = post.pattern.rows[left] <= pre.pattern.cols[right]
        left, right = left[above], right[above]
    pattern, collect = collected(
        post.pattern.rows[left],
        pre.pattern.cols[right],
        post.pattern.out_shape,
        pre.pattern.in_shape,
    )
    if collect.alone:  # put in order before they are multiplied, not after
        assert collect.table is not None
        left, right = left[collect.table], right[collect.table]
    values = _products(post, left, pre, right, dtype)
    if values is None and not collect.alone:
        values = Numbers.ones(len(left), dtype)
    masks = [None if m is None else m[at] for m, at in ((post.mask, left), (pre.mask, right))]
    mask = both(*masks)
    if values is not None and not collect.alone:
        values = values.collected(collect)
        mask = None if mask is None else collect(mask.astype(np.int32)) > 0
    return Indexed(pattern, values, dtype, mask)


def _products(
    post: Indexed, left: np.ndarray, pre: Indexed, right: np.ndarray, dtype: Any
) -> Numbers | None:
    """The products of entries that meet, what either shuts out zero; None if all are ones."""
    factors: list[Numbers] = []
    signs: np.ndarray | None = None
    for x, own, other, its in ((post, left, pre, right), (pre, right, post, left)):
        if x.values is None:
            continue
        value = x.values.astype(dtype).take(own)
        if x.values.unit:
            signs = value.signed(signs).signs
            continue
        if other.mask is not None:
            value = Numbers(select(other.mask[its], value.array(), 0))
        factors.append(value)
    if not factors:
        return None if signs is None else Numbers.ones(len(left), dtype, signs)
    if len(factors) == 1:
        return factors[0].signed(signs)
    return Numbers(factors[0].array() * factors[1].array())


def add(a: Indexed, b: Indexed) -> Indexed:
    """The sum of two matrices of one shape."""
    return total([a, b])


def total(several: Sequence[Indexed]) -> Indexed:
    """The sum of at least one matrix of one shape.

    It is formed when its values are asked for: until then a few more matrices may be added to it,
    so that all go to their places at once.
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
    rows, cols = (
        np.concatenate([getattr(x.pattern, k) for x in several]) for k in ("rows", "cols")
    )
    pattern, collect = collected(rows, cols, first.out_shape, first.in_shape)
    if collect.alone and all(x.given is None for x in several):
        return Indexed(pattern, None, dtype, _either(several, collect))
    found = Sum(several, collect)
    mask = _either(several, collect)
    return Indexed(pattern, found if mask is None else found.numbers(dtype), dtype, mask)


def _summands(several: Sequence[Indexed]) -> Sequence[Indexed]:
    """Matrices, and for sums that nobody asked for what they are the sums of, if those are few."""
    found: list[Indexed] = []
    for x in several:
        asked = "values" in x.__dict__
        found.extend(x.given.summands if isinstance(x.given, Sum) and not asked else [x])
    return found if len(found) <= _MOST_SUMMANDS else several


def _sum(several: Sequence[Indexed]) -> Indexed:
    """The sum of matrices of one pattern."""
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
    """The matrix with rows and columns exchanged."""
    p = x.pattern
    pattern, collect = collected(p.cols, p.rows, p.in_shape, p.out_shape)
    values = None if x.values is None else x.values.collected(collect)
    mask = None if x.mask is None else collect(x.mask)
    return Indexed(pattern, values, x.dtype, mask)


def upper(x: Indexed) -> Indexed:
    """What a square matrix has on its diagonal and above it."""
    return _taken(x, np.flatnonzero(x.pattern.rows <= x.pattern.cols))


def mirrored(x: Indexed) -> Indexed:
    """The symmetric matrix that is given by what it has on its diagonal and above it."""
    p = x.pattern
    above = np.flatnonzero(p.rows < p.cols)
    pattern, collect = collected(
        np.concatenate([p.rows, p.cols[above]]),
        np.concatenate([p.cols, p.rows[above]]),
        p.out_shape,
        p.in_shape,
    )
    assert collect.table is not None
    return _taken(x, np.append(np.arange(p.nse), above)[collect.table], pattern)


def only(x: Indexed, pattern: Pattern) -> Indexed | None:
    """The entries at the places of a pattern; None if those are all."""
    kept = np.flatnonzero(np.isin(x.pattern.keys, pattern.keys, assume_unique=True))
    if len(kept) == x.pattern.nse:
        return None
    return _taken(x, kept)


def _taken(x: Indexed, at: np.ndarray, pattern: Pattern | None = None) -> Indexed:
    """Some entries of a matrix, in the order of a pattern or in their own."""
    p = x.pattern
    pattern = pattern or Pattern(p.out_shape, p.in_shape, p.rows[at], p.cols[at])
    values = None if x.values is None else x.values.take(at)
    return Indexed(pattern, values, x.dtype, None if x.mask is None else x.mask[at])


def of_edge(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int]) -> Indexed | None:
    """An edge of the engine as entries; None if its places are not known when tracing.

    Args:
      e: the edge, no operator.
      out_shape: shape of the differentiated value.
      in_shape: shape of the variable.
    """
    t = term(e)
    found = t.coordinates()
    if found is None:
        return None
    pattern, collect = collected(*found, out_shape, in_shape)
    if e.values is None and e.sign > 0 and e.mask is None:
        return Indexed(pattern, None, e.dtype)
    mask = None
    if e.mask is not None:
        full = jnp.broadcast_to(e.mask, t.values.shape)
        mask = collect(respread_entries(full, t.structure).reshape(-1))
    if e.values is None and e.mask is None:
        minus = np.full(pattern.nse, -1, np.int8)
        return Indexed(pattern, Numbers.ones(pattern.nse, e.dtype, minus), e.dtype)
    own = Numbers(t.values.reshape(-1), numbered_entries(t.structure))
    return Indexed(pattern, own.collected(collect), e.dtype, mask)
