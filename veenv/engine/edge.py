"""Defines edges, partials that hold values: their storage, masks, links and sums.

A function with a counterpart in `veenv.structure` returns exactly the structure that it predicts.

A select passes nothing on where it takes another case. As a factor 0 it would turn an infinite
factor into NaN, so the zeros that it makes are masked, and a masked zero times anything is zero. A
mask is a boolean array of the rank of the values, of size one along the axes on which it does not
depend, False where an entry is shut out; the values are zero there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import _compat, limits
from veenv._support import setting
from veenv.linear.barrier import pin
from veenv.linear.linear_map import LinearMap, Same, Selection, columns, identity, widen
from veenv.structure import structure as algebra
from veenv.structure.product import Label, labels_of, sizes_of
from veenv.structure.structure import FREE, Link, Structure


@dataclass(frozen=True)
class Edge:
    """A partial derivative: its structure, values, sign and linear map."""

    structure: Structure  # what the values mean
    values: Array | None  # array of shape ``structure.value_shape``; None if the structure is unit
    dtype: Any  # dtype of the values, or what a unit edge becomes when stored
    sign: int = 1  # +1 or -1, a factor of every entry (apart, as a sign is no multiplication)
    # the linear map of the link, on the linked axes; None without link
    link: LinearMap | None = None
    # which values are not shut out by a select (see the module); None: all
    mask: Array | None = None


Edges = dict[tuple[int, int], Edge]
"""Edges by (source, target)."""


def with_mask(e: Edge) -> Edge:
    """Returns the edge with a mask for zeros of its δs and link, stored from then on."""
    mask = np.ones((1,) * len(labels_of(e.structure)), bool) if e.mask is None else e.mask
    return replace(e, mask=mask)


_meets_infinity: ContextVar[bool] = ContextVar("meets_infinity", default=False)


def meeting_infinity(may: bool) -> AbstractContextManager[None]:
    """Has sums mask the zeros that they store, if partials may be infinite (a context)."""
    return setting(_meets_infinity, may)


def with_zeros(several: Sequence[Edge], target: Structure) -> list[Edge]:
    """Returns terms of a sum, each with a mask where `target` may store zeros beside infinity."""
    no_infinity = not _meets_infinity.get() and all(e.mask is None for e in several)
    if no_infinity or target.link is not Link.NONE:
        return list(several)
    return [with_mask(e) if e.link or broken(e.structure, target) else e for e in several]


def relayout(e: Edge, move: Callable[[Edge], Edge]) -> Edge:
    """Applies `move`, which may only put values into other places, to values and mask."""
    result = move(replace(e, mask=None))
    if e.mask is None:
        return result
    shape = () if e.values is None else e.values.shape
    there = lax.broadcast_in_dim(e.mask, shape, range(len(shape))).astype(e.dtype)
    shadow = move(Edge(e.structure, there, e.dtype, link=e.link))
    assert shadow.values is not None
    return replace(result, mask=lax.ne(shadow.values, jnp.zeros_like(shadow.values)))


def stored_values(e: Edge) -> Array:
    """Returns the values with the sign applied; of a unit edge one number."""
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    return -values if e.sign < 0 else values


def arranged(x: Array, labels: Sequence[Label], target: Sequence[Label]) -> Array:
    """Transposes values, whose axes have `labels`, into the order of the target's."""
    order = [labels.index(a) for a in target if a in labels]
    return x if order == sorted(order) else lax.transpose(x, order)


def spread(x: Array, labels: Sequence[Label], target: Sequence[Label], sizes: Any) -> Array:
    """Broadcasts values over further labels and puts them in the target's order."""
    dimensions = [target.index(a) for a in target if a in labels]
    return lax.broadcast_in_dim(arranged(x, labels, target), [sizes[a] for a in target], dimensions)


def expand_pairs(e: Edge, axes: Sequence[int]) -> Edge:
    """Stores the zeros of the δs at out axes `axes`."""
    s = e.structure
    if not axes:
        return e
    target = algebra.expand_pairs(s, tuple(axes))
    labels, sizes = labels_of(target), sizes_of(target)
    # A valued pair's values are stored under its out axis.
    x = spread(pin(stored_values(e)), labels_of(s), labels, sizes)
    mask = None if e.mask is None else align(e.mask, labels_of(s), labels)
    for k in axes:
        same = _equal(labels, sizes, ("out", k), ("in", s.pairs[k]))
        x = select(same, x, 0)
        mask = None if mask is None else mask & same
    return Edge(target, x, e.dtype, 1, e.link, mask)


def _equal(labels: list[Label], sizes: dict[Label, int], a: Label, b: Label) -> Array | np.ndarray:
    """Returns a mask over the labels, true where the indices of `a` and `b` agree.

    Axes of other labels have size one; a small mask is a NumPy array.
    """
    shape = [sizes[x] if x in (a, b) else 1 for x in labels]
    if prod(shape) <= limits.SMALL:
        return np.eye(sizes[a], dtype=bool).reshape(shape)
    along = [lax.broadcasted_iota(jnp.int32, shape, labels.index(x)) for x in (a, b)]
    return lax.eq(*along)


def broken(s: Structure, target: Structure) -> list[int]:
    """Returns the out axes of the δs that the target lacks."""
    return [k for k, j in enumerate(s.pairs) if j != FREE and target.pairs[k] == FREE]


def respread(e: Edge, target: Structure) -> Edge:
    """Returns the edge with its values repeated along axes that only the target has valued.

    The link, if any, is left out; a target with link values stores them on the same side.
    """
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    labels, have = labels_of(target), labels_of(e.structure)
    x = spread(values, have, labels, sizes_of(target))
    mask = None if e.mask is None else align(e.mask, have, labels)
    return Edge(target, x, e.dtype, e.sign, mask=mask)


def entrywise(s: Structure) -> Structure:
    """Returns a structure with a value for each entry: by out axes, link, unpaired in axes."""
    return replace(
        s,
        out_values=tuple(k not in s.link_out for k in range(len(s.out_shape))),
        in_values=tuple(j not in s.link_in and j not in s.pairs for j in range(len(s.in_shape))),
        link_values=s.link is not Link.NONE,
    )


def respread_entries(values: Array, s: Structure) -> Array:
    """Repeats values to every entry, as `entrywise` has them."""
    return spread(values, labels_of(s), labels_of(entrywise(s)), sizes_of(s))


def diagonal_pairs(e: Edge) -> tuple[tuple[int, int], ...]:
    """Returns (out axis, in axis) pairs along which the edge's link is diagonal."""
    s = e.structure
    pairs = () if e.link is None else e.link.diagonal
    return tuple((s.link_out[a], s.link_in[b]) for a, b in pairs)


def expand_link(e: Edge) -> Edge:
    """Stores the zeros of the link: its map applied to a diagonal of the link's values."""
    s = e.structure
    if s.link is Link.NONE:
        return e
    if is_placed(e):
        target = algebra.expand_link(s)
        mask, x = placed(e, target)
        return Edge(target, select(mask, x, 0), e.dtype, mask=None if e.mask is None else mask)
    e = keep_diagonal(e)
    return expand_pairs(e, broken(e.structure, algebra.expand_link(s)))


def keep_diagonal(e: Edge) -> Edge:
    """Stores the zeros of the link, except along its diagonal axes, which become δs.

    The link is applied to a basis, in which one vector serves all indices of a diagonal axis.
    """
    if e.link is None:
        return e
    if e.structure.link is not Link.OPERATOR:
        return relayout(e, _keep_diagonal)
    result = _keep_diagonal(e)
    if e.mask is None:
        return result
    return replace(result, mask=align(e.mask, labels_of(e.structure), labels_of(result.structure)))


def _keep_diagonal(e: Edge) -> Edge:
    s = e.structure
    assert e.link is not None
    pairs = diagonal_pairs(e)
    target = algebra.expand_link(s, pairs)
    out_size, in_size = s.linked_sizes
    # At equal sizes a forward pass through an operator is cheaper.
    from_out = out_size < in_size if s.link is Link.OPERATOR else out_size <= in_size
    outs: list[Label] = [("out", k) for k in s.link_out]
    ins: list[Label] = [("in", j) for j in s.link_in]
    near, far = (outs, ins) if from_out else (ins, outs)
    same: dict[Label, Label] = {("in", j): ("out", k) for k, j in pairs}
    counted = [a for a in near if a not in same and a not in same.values()]
    x = _basis(e, near, counted)  # rest, basis vectors, near axes
    rest = [a for a in labels_of(s) if a[0] != "link"]
    n = len(rest)
    key = "basis", from_out, e.sign, x.dtype, tuple(map(near.index, counted)), Same(e.values)
    y = e.link.along(x, range(n + 1, x.ndim), transposed=from_out, key=key)
    sizes = sizes_of(s)
    y = y.reshape([*y.shape[:n], *(sizes[a] for a in counted), *y.shape[n + 1 :]])
    have = [same.get(a, a) for a in (*rest, *counted, *far)]
    return Edge(target, arranged(y, have, labels_of(target)), e.dtype)


def _basis(e: Edge, near: Sequence[Label], counted: Sequence[Label]) -> Array:
    """Returns values on one side of an edge's link as vectors [valued axes, vector, near axes].

    There is a vector for each index of the `counted` axes, zero at all others along them.
    """
    s, sizes = e.structure, sizes_of(e.structure)
    rest = [a for a in labels_of(s) if a[0] != "link"]
    full = [sizes[a] for a in near]
    on_link = [("link", 0)] if s.link_values else []
    values = spread(stored_values(e), labels_of(s), [*rest, *on_link], sizes)
    n = len(rest)
    values = values.reshape([*values.shape[:n], 1, *(full if on_link else [1] * len(full))])
    number = jnp.arange(prod(sizes[a] for a in counted), dtype=jnp.int32)
    position = number.reshape([1, *(sizes[a] if a in counted else 1 for a in near)])
    chosen = number.reshape(-1, *(1 for _ in near)) == position
    mask = jnp.broadcast_to(chosen, (number.size, *full))
    return select(mask.reshape((1,) * n + mask.shape), values, 0)


def is_placed(e: Edge) -> bool:
    """Returns whether an edge has a link whose places are known when tracing."""
    return isinstance(e.link, Selection) or (e.link is not None and e.link.gather is not None)


def places(e: Edge) -> np.ndarray:
    """Returns the flat in index joined to each flat out index of an edge's link; -1 for none."""
    assert e.link is not None
    partners = columns(e.link)
    assert partners is not None
    return partners.astype(np.int32)


def placed(e: Edge, target: Structure) -> tuple[Any, Array]:
    """Returns a selection of known places, stored as `target`: its mask, and its values.

    A large mask is computed from indices where it is used, as it could be larger than the values.
    """
    e = expand_pairs(e, broken(e.structure, target))
    s = e.structure
    outs, ins = [("out", k) for k in s.link_out], [("in", j) for j in s.link_in]
    labels, sizes = labels_of(target), sizes_of(target)
    values, have = _unfolded(stored_values(e), e)
    if values.ndim:
        values = pin(values)
    shape = [sizes[a] if a in (*outs, *ins) else 1 for a in labels]
    size = s.linked_sizes
    if prod(size) <= limits.SMALL:
        mask = places(e)[:, None] == np.arange(size[1])
    else:
        rows = lax.broadcast_in_dim(places(e), size, (0,))
        mask = lax.eq(rows, lax.broadcasted_iota(jnp.int32, size, 1))
    mask = mask.reshape(shape)
    if e.mask is not None:
        mask = mask & align(*_unfolded(e.mask, e), labels)
    return mask, spread(values, have, labels, sizes)


def _unfolded(x: Array, e: Edge) -> tuple[Array, list[Label]]:
    """Returns values or mask with an axis for each axis of the edge's link, and all labels."""
    s = e.structure
    side, axes = ("out", s.link_out) if link_on_out(s) else ("in", s.link_in)
    sizes, have, shape = sizes_of(s), [], []
    for a, n in zip(labels_of(s), x.shape, strict=True):
        unfolded = [(side, k) for k in axes] if a == ("link", 0) else [a]
        have += unfolded
        shape += [1 if n == 1 else sizes[b] for b in unfolded]
    return x if x.shape == tuple(shape) else x.reshape(shape), have


def absorb(e: Edge, axes: Sequence[int]) -> Edge:
    """Moves the δs at out axes `axes` into the link."""
    return relayout(e, lambda e: _absorb(e, axes)) if axes else e


def _absorb(e: Edge, axes: Sequence[int]) -> Edge:
    s = e.structure
    target = algebra.absorb(s, tuple(axes))
    base = identity(()) if e.link is None else e.link
    extra = [(k, s.pairs[k]) for k in axes]
    link = widen(base, s.link_out, s.link_in, extra, [s.out_shape[k] for k in axes])
    if not target.link_values:
        return Edge(target, e.values, e.dtype, e.sign, link)
    # Values are spread along the linked axes of the side that stores them, then moved.
    on_out = link_on_out(s)
    side = "out" if on_out else "in"
    linked_axes = s.link_out if on_out else s.link_in
    alias = {("out", k): (side, k if on_out else s.pairs[k]) for k in axes}
    linked = sorted([(side, a) for a in linked_axes] + list(alias.values()))
    x, labels = _unfolded(stored_values(e), e)
    rest = [a for a in labels_of(target) if a != ("link", 0)]
    n = len(rest)
    x = spread(x, [alias.get(a, a) for a in labels], [*rest, *linked], sizes_of(s))
    if link_on_out(target) != on_out:
        x = link.along(x, range(n, x.ndim), transposed=on_out)
    x = x.reshape([*x.shape[:n], prod(x.shape[n:])])
    x = arranged(x, [*rest, ("link", 0)], labels_of(target))
    return Edge(target, x, e.dtype, 1, link)


def link_on_out(s: Structure) -> bool:
    """Returns whether a link's values lie on the out side (the smaller one; out if equal)."""
    out_size, in_size = s.linked_sizes
    return out_size <= in_size


def add(a: Edge, b: Edge) -> Edge:
    """Adds two edges between the same nodes."""
    target = algebra.add(a.structure, b.structure)
    a, b = with_zeros((a, b), target)
    return add_values(expand_to(a, target), expand_to(b, target))


def add_values(x: Edge, y: Edge) -> Edge:
    """Adds two edges of one valued structure and one link."""
    assert x.values is not None
    assert y.values is not None
    x_values, y_values, mask = x.values, y.values, either(x.mask, y.mask)
    dtype = _compat.promoted(x_values.dtype, y_values.dtype)
    if x_values.dtype != y_values.dtype:
        x_values, y_values = x_values.astype(dtype), y_values.astype(dtype)
    if x.sign == y.sign:
        return Edge(x.structure, lax.add(x_values, y_values), dtype, x.sign, x.link, mask)
    if x.sign < 0:
        x_values, y_values = y_values, x_values
    return Edge(x.structure, lax.sub(x_values, y_values), dtype, 1, x.link, mask)


def expand_to(e: Edge, target: Structure) -> Edge:
    """Returns the edge stored as `target`, whose δs, links and constant axes it has, too."""
    if e.structure == target:
        return e
    e = expand_link(e)
    return respread(expand_pairs(e, broken(e.structure, target)), target)


def transpose(e: Edge) -> Edge:
    """Returns the edge with out and in exchanged."""
    s = e.structure
    # Equal sides: both orientations store on their out side, so the values change sides.
    across = s.link_values and link_on_out(s) == link_on_out(algebra.transpose(s))
    return relayout(e, _transpose) if across else _transpose(e)


def _transpose(e: Edge) -> Edge:
    s = e.structure
    target = algebra.transpose(s)
    flipped = e.link.T if e.link is not None else None
    if e.values is None:
        return Edge(target, None, e.dtype, e.sign, flipped, e.mask)
    names: dict[Label, Label] = {("link", 0): ("link", 0)}
    for k, j in enumerate(s.pairs):
        names[("out", k)] = ("in", k) if j == FREE else ("out", j)
    for j in range(len(s.in_shape)):
        names[("in", j)] = ("out", j)
    labels = [names[a] for a in labels_of(s)]
    order = [labels.index(a) for a in labels_of(target)]
    x = lax.transpose(e.values, order)
    mask = None if e.mask is None else e.mask.transpose(order)
    if s.link_values and link_on_out(s) == link_on_out(target):
        at = labels_of(target).index(("link", 0))
        assert e.link is not None
        y = x.reshape([*x.shape[:at], *e.link.out_shape, *x.shape[at + 1 :]])
        n = len(e.link.out_shape)
        y = e.link.along(y, range(at, at + n), transposed=True)
        rest = y.shape[: x.ndim - 1]
        x = jnp.moveaxis(y.reshape(*rest, prod(y.shape[len(rest) :])), -1, at)
    return Edge(target, x, e.dtype, e.sign, flipped, mask)


def todense(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any) -> Array:
    """Returns the partial as a dense array of shape ``out_shape + in_shape``."""
    e = expand_link(replace(e, mask=None))
    e = expand_pairs(e, [k for k, j in enumerate(e.structure.pairs) if j != FREE])
    x = respread_entries(stored_values(e), e.structure)
    return x.astype(dtype).reshape((*out_shape, *in_shape))


def select(mask: Array | np.ndarray, x: Array, other: Any) -> Array:
    """Selects like `jnp.where`, by a mask of x's rank, from an array or number, without a call."""
    shape = np.broadcast_shapes(mask.shape, x.shape)
    if not isinstance(other, Array):
        other = _filled(shape if prod(shape) <= limits.SMALL else (), other, x.dtype)
    full = (
        v if v.shape == shape else lax.broadcast_in_dim(v, shape, range(v.ndim))
        for v in (mask, x, other)
    )
    return lax.select(*full)


@functools.lru_cache(limits.REMEMBERED)
def _filled(shape: tuple[int, ...], value: float, dtype: Any) -> np.ndarray:
    filled = np.full(shape, value, dtype)
    filled.flags.writeable = False
    return filled


def align(mask: Any, labels: Sequence[Hashable], target: Sequence[Hashable]) -> Array:
    """Returns a mask, or numbers, in the target's order, of size one along labels it lacks.

    Labels that the target has not must be of size one.
    """
    absent = [i for i, a in enumerate(labels) if a not in target]
    if absent:
        mask, labels = lax.squeeze(mask, absent), [a for a in labels if a in target]
    shared = [a for a in target if a in labels]
    order = [labels.index(a) for a in shared]
    mask = mask if order == sorted(order) else mask.transpose(order)
    sizes = dict(zip(shared, mask.shape, strict=True))
    return mask.reshape([sizes.get(a, 1) for a in target])


def reduce_mask(mask: Array, labels: Sequence[Hashable], keep: Sequence[Hashable]) -> Array:
    """Reduces a mask by `any` along the labels that are not in `keep`, to size one."""
    reduced = [i for i, a in enumerate(labels) if a not in keep and mask.shape[i] != 1]
    return mask.any(axis=tuple(reduced), keepdims=True) if reduced else mask


def both(a: Array | None, b: Array | None) -> Array | None:
    """Returns the conjunction of two masks of one rank; None is no mask."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def either(a: Array | None, b: Array | None) -> Array | None:
    """Returns the disjunction of two masks of one rank; None is no mask."""
    return None if a is None or b is None else a | b
