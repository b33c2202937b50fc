"""Links of edges: their zeros stored, δs made part of them, values brought to one side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv.engine.masking import SMALL, align, select
from veenv.engine.stored import (
    Edge,
    arranged,
    broken,
    expand_pairs,
    moved,
    spread,
    stored_values,
)
from veenv.linear.barrier import pin
from veenv.linear.linear_map import LinearMap, columns, identity, widen
from veenv.linear.selection import Selection
from veenv.structure import structure as algebra
from veenv.structure.contraction import Label, labels_of, sizes_of
from veenv.structure.structure import Link, Structure


def diagonal_pairs(e: Edge) -> tuple[tuple[int, int], ...]:
    """(out axis, in axis) pairs along which the edge's link is diagonal."""
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
    """Stores the zeros of the link but for the axes along which it is diagonal: they become δs.

    The link is applied to a basis: along the diagonal axes one vector of it serves all indices.
    """
    if e.link is None:
        return e
    if e.structure.link is not Link.OPERATOR:
        return moved(e, _keep_diagonal)
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
    # Where both sides are as large, a forward pass is the cheaper one through an operator.
    from_out = out_size < in_size if s.link is Link.OPERATOR else out_size <= in_size
    outs: list[Label] = [("out", k) for k in s.link_out]
    ins: list[Label] = [("in", j) for j in s.link_in]
    near, far = (outs, ins) if from_out else (ins, outs)
    same: dict[Label, Label] = {("in", j): ("out", k) for k, j in pairs}
    counted = [a for a in near if a not in same and a not in same.values()]
    x = _basis(e, near, counted)  # rest, basis vectors, near axes
    rest = [a for a in labels_of(s) if a[0] != "link"]
    n = len(rest)
    key = ("basis", from_out, e.sign, x.dtype, tuple(counted))
    y = e.link.along(x, range(n + 1, x.ndim), transposed=from_out, key=key)
    sizes = sizes_of(s)
    y = y.reshape([*y.shape[:n], *(sizes[a] for a in counted), *y.shape[n + 1 :]])
    have = [same.get(a, a) for a in (*rest, *counted, *far)]
    return Edge(target, arranged(y, have, labels_of(target)), e.dtype)


def _basis(e: Edge, near: Sequence[Label], counted: Sequence[Label]) -> Array:
    """The edge's values on one side of its link, as a basis of vectors.

    Args:
      e: an edge with a link.
      near: the axes of that side, where the values of the link are stored.
      counted: those of them that have a vector for each index; along the others the vectors are
        not zero at any.

    Returns:
      Array of the valued axes outside of the link, then the vectors, then the near axes.
    """
    s, sizes = e.structure, sizes_of(e.structure)
    rest = [a for a in labels_of(s) if a[0] != "link"]
    full = [sizes[a] for a in near]
    on_link = [("link", 0)] if s.link_values else []
    values = spread(stored_values(e), labels_of(s), [*rest, *on_link], sizes)
    n = len(rest)
    values = values.reshape([*values.shape[:n], 1, *(full if on_link else [1] * len(full))])
    number = jnp.arange(prod(sizes[a] for a in counted), dtype=jnp.int32)
    own = number.reshape([1, *(sizes[a] if a in counted else 1 for a in near)])
    mask = jnp.broadcast_to(number.reshape(-1, *(1 for _ in near)) == own, (number.size, *full))
    return select(mask.reshape((1,) * n + mask.shape), values, 0)


def is_placed(e: Edge) -> bool:
    """Whether an edge has a link whose places are known when tracing."""
    return isinstance(e.link, Selection) or (e.link is not None and e.link.taken is not None)


def places(e: Edge) -> np.ndarray:
    """The flat in index that each flat out index of an edge's link is joined to; -1 for none."""
    assert e.link is not None
    found = columns(e.link)
    assert found is not None
    return found.astype(np.int32)


def placed(e: Edge, target: Structure) -> tuple[Any, Array]:
    """A selection whose places are known, stored as `target`: where it is, and its values there.

    Args:
      e: an edge whose link's places are known.
      target: a structure without link, to which the edge's expands.

    Returns:
      A mask, in which that of the edge is part, and values, both of the rank of target's values;
      the values are of its shape.  A large mask is compared out of indices where it is used: kept,
      it could exceed the values.
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
    if prod(size) <= SMALL:
        mask = places(e)[:, None] == np.arange(size[1])
    else:
        rows = lax.broadcast_in_dim(places(e), size, (0,))
        mask = lax.eq(rows, lax.broadcasted_iota(jnp.int32, size, 1))
    mask = mask.reshape(shape)
    if e.mask is not None:
        mask = mask & align(*_unfolded(e.mask, e), labels)
    return mask, spread(values, have, labels, sizes)


def _unfolded(x: Array, e: Edge) -> tuple[Array, list[Label]]:
    """Values or mask of an edge with an axis for each axis of its link, and all their labels."""
    s = e.structure
    side, axes = ("out", s.link_out) if link_on_out(s) else ("in", s.link_in)
    sizes, have, shape = sizes_of(s), [], []
    for a, n in zip(labels_of(s), x.shape, strict=True):
        own = [(side, k) for k in axes] if a == ("link", 0) else [a]
        have += own
        shape += [n] if len(own) == 1 else [1 if n == 1 else sizes[b] for b in own]
    return x if x.shape == tuple(shape) else x.reshape(shape), have


def absorb(e: Edge, axes: Sequence[int]) -> Edge:
    """Moves the δs at out axes `axes` into the link."""
    return moved(e, lambda e: _absorb(e, axes)) if axes else e


def _absorb(e: Edge, axes: Sequence[int]) -> Edge:
    s = e.structure
    target = algebra.absorb(s, tuple(axes))
    base = identity(()) if e.link is None else e.link
    extra = [(k, s.pairs[k]) for k in axes]
    link = widen(base, s.link_out, s.link_in, extra, [s.out_shape[k] for k in axes])
    if not target.link_values:
        return Edge(target, e.values, e.dtype, e.sign, link)
    # Lay the values out along the linked axes of the side that stores them now, then move them.
    on_out = link_on_out(s)
    side = "out" if on_out else "in"
    own = s.link_out if on_out else s.link_in
    alias = {("out", k): (side, k if on_out else s.pairs[k]) for k in axes}
    linked = sorted([(side, a) for a in own] + list(alias.values()))
    x, labels = stored_values(e), labels_of(s)
    if s.link_values:
        at = labels.index(("link", 0))
        shape = base.out_shape if on_out else base.in_shape
        x = x.reshape([*x.shape[:at], *shape, *x.shape[at + 1 :]])
        labels = [*labels[:at], *((side, a) for a in own), *labels[at + 1 :]]
    rest = [a for a in labels_of(target) if a != ("link", 0)]
    x = spread(x, [alias.get(a, a) for a in labels], [*rest, *linked], sizes_of(s))
    return _store_link(target, x, len(rest), link, on_out, e)


def link_on_out(s: Structure) -> bool:
    """Whether a link's values lie on the out side (the smaller one; out if equal)."""
    out_size, in_size = s.linked_sizes
    return out_size <= in_size


def _store_link(
    target: Structure, x: Array, num_rest: int, link: LinearMap, on_out: bool, e: Edge
) -> Edge:
    """Brings values on one side of a link (last axes of x) to the side that stores them."""
    if link_on_out(target) != on_out:
        x = link.along(x, range(num_rest, x.ndim), transposed=on_out)
    x = x.reshape([*x.shape[:num_rest], prod(x.shape[num_rest:])])
    rest = [a for a in labels_of(target) if a != ("link", 0)]
    x = arranged(x, [*rest, ("link", 0)], labels_of(target))
    return Edge(target, x, e.dtype, 1, link)
