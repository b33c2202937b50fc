"""Products of edges that hold values.

`multiply` does what `veenv.structure.product.multiply` predicts.  Values of two edges are
multiplied in `veenv.engine.factors.combine` and nowhere else, so the algebra's count is the number
of multiplications in the emitted program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import _compat
from veenv.engine import masking
from veenv.engine.edge import (
    Edge,
    Label,
    absorb,
    diagonal_pairs,
    expand_link,
    expand_pairs,
    keep_diagonal,
    labels_of,
    link_on_out,
    moved,
    sizes_of,
    spread,
    stored_values,
    transpose,
)
from veenv.engine.factors import Factor, combine, sum_out
from veenv.linear.linear_map import LinearMap, chain, identity
from veenv.structure import product
from veenv.structure.structure import FREE, Link, Structure


def multiply(post: Edge, pre: Edge, *, keep: bool = False) -> Edge:
    """Product post · pre of two edges that meet in one node.

    Args:
      post: partial of w by v.
      pre: partial of v by u.
      keep: keep the δs along which an operator is diagonal, which
        `veenv.structure.product.multiply`, that knows no operator's inside, does not predict.
    """
    result = _multiply(post, pre)
    if keep or Link.OPERATOR not in (post.structure.link, pre.structure.link):
        return result
    predicted = product.multiply(post.structure, pre.structure).structure
    pairs = zip(result.structure.pairs, predicted.pairs, strict=True)
    return expand_pairs(result, [k for k, (j, i) in enumerate(pairs) if j != FREE and i == FREE])


def _multiply(post: Edge, pre: Edge) -> Edge:
    if post.link is None and pre.link is None:
        return _contract(post, pre)
    axes = product.absorbable(post.structure, pre.structure)
    if axes is not None:
        return _compose(absorb(post, axes[0]), absorb(pre, axes[1]))
    if post.link is not None and pre.link is not None:
        if post.structure.link is Link.OPERATOR:
            return _multiply(post, keep_diagonal(pre))
        return _multiply(expand_link(post), pre)
    if post.link is not None:
        return _contract(*_push_left(post, pre, pre))
    left, right = _push_left(transpose(pre), transpose(post), post)
    return _contract(transpose(right), transpose(left))


class Same:
    """A key that is equal only for the same object."""

    def __init__(self, item: object):
        self.item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.item is other.item

    def __hash__(self) -> int:
        return id(self.item)


def _push_left(post: Edge, pre: Edge, source: Edge) -> tuple[Edge, Edge]:
    """Applies post's link to pre's values; post keeps a δ on the link's out axes.

    `source` is the edge whose values `pre` holds, in whatever orientation: the passes through one
    equation for the same source are shared.
    """
    s, link = post.structure, post.link
    assert link is not None
    kept = [(k, m) for k, m in diagonal_pairs(post) if pre.structure.pairs[m] != FREE]
    stay = {m for _, m in kept}
    broken = [m for m in s.link_in if pre.structure.pairs[m] != FREE and m not in stay]
    pre = expand_pairs(pre, broken)
    new_post, new_pre = product.push_left(s, pre.structure, kept)
    # pre: spread over the linked middle axes, then apply the map.
    p = pre.structure
    linked: list[Label] = [("out", m) for m in s.link_in]
    rest = [a for a in labels_of(p) if a not in linked]
    full = labels_of(replace(p, out_values=_with(p.out_values, s.link_in)))
    x = spread(stored_values(pre), labels_of(p), full, sizes_of(p))
    key = (Same(source), s.link_in, tuple(rest))
    at = [full.index(a) for a in linked]
    mask = None
    if pre.mask is not None:
        mask = masking.align(pre.mask, labels_of(p), full)
        mask = _mask_through(link, mask, at, x.shape, fixed=s.link is Link.SELECTION)
    x = link.along(x, at, key=key)
    x = x if mask is None else masking.select(mask, x, 0)
    keep = [m for m in range(len(p.out_shape)) if m not in s.link_in]
    where = {("out", m): ("out", i) for i, m in enumerate(keep)}
    have = [where.get(a, a) for a in rest]
    have += [("out", len(keep) + i) for i in range(len(s.link_out))]
    order = [have.index(a) for a in labels_of(new_pre)]
    mask = None if mask is None else mask.transpose(order)
    pre = Edge(new_pre, x.transpose(order), pre.dtype, 1, pre.link, mask)
    if not s.link_values:
        return Edge(new_post, post.values, post.dtype, post.sign, mask=post.mask), pre
    return moved(post, lambda e: _unlinked(e, new_post)), pre


def _mask_through(
    link: LinearMap, mask: Array, axes: Sequence[int], shape: Sequence[int], *, fixed: bool
) -> Array:
    """The mask of what a link makes of masked values.

    Args:
      link: the linear map.
      mask: mask of values of `shape`.
      axes: the axes that the map is applied along.
      shape: shape of the values.
      fixed: whether the map is a selection; of an operator only its diagonal axes are known.

    Returns:
      The mask of ``link.along(values, axes)``.
    """
    if fixed:
        there = lax.broadcast_in_dim(mask, shape, range(len(shape))).astype(jnp.float32)
        passed = link.along(there, axes)
        return lax.ne(passed, jnp.zeros_like(passed))
    labels = list(range(len(shape)))
    rest = [a for a in labels if a not in axes]
    through = {k: axes[j] for k, j in link.diagonal}
    kept = [*rest, *(through.get(k, -1 - k) for k in range(len(link.out_shape)))]
    return masking.align(masking.reduce(mask, labels, kept), labels, kept)


def _unlinked(post: Edge, target: Structure) -> Edge:
    """A left factor without its link, which has been applied to the right factor instead."""
    s, link = post.structure, post.link
    assert post.values is not None
    assert link is not None
    labels = labels_of(s)
    others = [a for a in labels if a != ("link", 0)]
    y = post.values.transpose([*(labels.index(a) for a in others), labels.index(("link", 0))])
    y = _on_side(y, link, stored_on_out=link_on_out(s), want_out=True)
    have = [*others, *(("out", k) for k in s.link_out)]
    # Middle axes were renumbered; linked ones are gone.
    kept_in = {m: i for i, m in enumerate(m for m in range(len(s.in_shape)) if m not in s.link_in)}
    have = [("in", kept_in[a[1]]) if a[0] == "in" else a for a in have]
    y = y.transpose([have.index(a) for a in labels_of(target)])
    return Edge(target, y, post.dtype, post.sign)


def _with(flags: Sequence[bool], axes: Sequence[int]) -> tuple[bool, ...]:
    return tuple(flag or k in axes for k, flag in enumerate(flags))


def _on_side(x: Array, link: LinearMap, *, stored_on_out: bool, want_out: bool) -> Array:
    """Unfolds values stored flat along the last axis to the axes of one side of a link."""
    shape = link.out_shape if stored_on_out else link.in_shape
    x = x.reshape([*x.shape[:-1], *shape])
    if stored_on_out == want_out:
        return x
    n = x.ndim - len(shape)
    return link.along(x, range(n, x.ndim), transposed=stored_on_out)


def _compose(post: Edge, pre: Edge) -> Edge:
    """Product of two edges whose links meet on the same middle axes."""
    s, p = post.structure, pre.structure
    result = product.compose(s, p).structure
    out_map = post.link or identity([s.out_shape[k] for k in s.link_out])
    in_map = pre.link or identity([p.in_shape[j] for j in p.link_in])
    link = chain(out_map, in_map)
    out_size, in_size = s.linked_sizes[0], p.linked_sizes[1]
    want_out = out_size <= in_size
    size = min(out_size, in_size)

    def left(e: Edge) -> Edge:
        x = _values_at_end(e, out_map)
        if x is not None:
            x = _on_side(x, out_map, stored_on_out=link_on_out(s), want_out=want_out)
            if not want_out:
                n = x.ndim - len(in_map.out_shape)
                x = in_map.along(x, range(n, x.ndim), transposed=True)
        return _link_as_axis(e, x, s.link_out, s.link_in, size)

    def right(e: Edge) -> Edge:
        x = _values_at_end(e, in_map)
        if x is not None:
            x = _on_side(x, in_map, stored_on_out=link_on_out(p), want_out=want_out)
            if want_out:
                n = x.ndim - len(out_map.in_shape)
                x = out_map.along(x, range(n, x.ndim))
        return _link_as_axis(e, x, p.link_out, p.link_in, size)

    inner = _contract(moved(post, left), moved(pre, right))
    if inner.values is None:
        return Edge(result, None, inner.dtype, inner.sign, link)
    x, mask = inner.values, inner.mask
    if inner.structure.out_values[-1] and size == 1:
        at = [a for a in labels_of(inner.structure) if a[0] == "out"].index(
            ("out", len(inner.structure.out_shape) - 1)
        )
        x = x.reshape([*x.shape[:at], *x.shape[at + 1 :]])
        mask = None if mask is None else lax.squeeze(mask, (at,))
    # The link's label already follows the out axes in storage order.
    return Edge(result, x, inner.dtype, inner.sign, link, mask)


def _values_at_end(e: Edge, link: LinearMap) -> Array | None:
    """Values with the link's label last; None if the link carries no values."""
    if not e.structure.link_values or e.values is None:
        return None
    labels = labels_of(e.structure)
    others = [a for a in labels if a != ("link", 0)]
    return e.values.transpose([*(labels.index(a) for a in others), labels.index(("link", 0))])


def _link_as_axis(
    e: Edge, moved: Array | None, outs: Sequence[int], ins: Sequence[int], size: int
) -> Edge:
    """The edge with its link as one last paired axis; `moved`: values on the storing side."""
    s = e.structure
    target = product.link_as_axis(s, outs, ins, size)
    if moved is None:
        return Edge(target, e.values, e.dtype, e.sign)
    others = [a for a in labels_of(s) if a != ("link", 0)]
    x = moved.reshape([*moved.shape[: len(others)], size])
    have = [*others, ("link", 0)]
    # Storage order: out axes, then the new last out axis, then in axes.
    order = [a for a in have if a[0] == "out"] + [("link", 0)] + [a for a in have if a[0] == "in"]
    return Edge(target, x.transpose([have.index(a) for a in order]), e.dtype, e.sign)


def _contract(post: Edge, pre: Edge) -> Edge:
    """Product of two edges without links."""
    s, p = post.structure, pre.structure
    result, sign = product.contract(s, p).structure, post.sign * pre.sign
    dtype = _compat.promoted(post.dtype, pre.dtype)
    scale = prod(
        n
        for m, n in enumerate(s.in_shape)
        if m not in s.pairs and p.pairs[m] == FREE and not s.in_values[m] and not p.out_values[m]
    )
    if s.unit and p.unit and scale == 1:
        return Edge(result, None, dtype, sign)
    out_names: list[Label] = [("out", k) for k in range(len(s.out_shape))]
    in_names: list[Label] = [("in", j) for j in range(len(p.in_shape))]
    for k, j in enumerate(result.pairs):
        if j != FREE:
            in_names[j] = out_names[k]
    middle: list[Label] = [("mid", m) for m in range(len(s.in_shape))]
    for k, m in enumerate(s.pairs):
        if m != FREE:
            middle[m] = out_names[k]
    for m, j in enumerate(p.pairs):
        if j != FREE and middle[m][0] == "mid":
            middle[m] = in_names[j]
    post_labels = [out_names[i] if side == "out" else middle[i] for side, i in labels_of(s)]
    pre_labels = [middle[i] if side == "out" else in_names[i] for side, i in labels_of(p)]
    target = labels_of(result)
    target = [in_names[i] if side == "in" else (side, i) for side, i in target]
    x, y = post.values, pre.values
    factor = np.asarray(scale, dtype)
    if scale != 1:
        if x is None and y is None:
            return Edge(result, jnp.asarray(factor), dtype, sign)
        if x is not None and y is not None:
            x = x * factor
        elif x is None:
            x = jnp.asarray(factor)
        else:
            y = jnp.asarray(factor)
    left = None if x is None else Factor(x, post_labels, post.mask)
    right = None if y is None else Factor(y, pre_labels, pre.mask)
    if left is not None and right is not None:
        values, mask = combine(left, right, target)
    else:
        one = left or right
        assert one is not None
        values, _, mask = sum_out(one, target)
    return Edge(result, values, dtype, sign, mask=mask)
