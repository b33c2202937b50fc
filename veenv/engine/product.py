"""Products of edges that hold values: plans of `veenv.structure.product`, executed.

Values of two edges are multiplied in `veenv.engine.factors.combine` and nowhere else, so a plan's
count is the number of multiplications in the emitted program.
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
from veenv.engine.edge import expand_to, transpose
from veenv.engine.factors import Factor, combine, sum_out
from veenv.engine.links import absorb, diagonal_pairs, expand_link, keep_diagonal, link_on_out
from veenv.engine.stored import Edge, arranged, expand_pairs, moved, spread, stored_values
from veenv.linear.linear_map import LinearMap, chain, identity
from veenv.structure import product
from veenv.structure.contraction import Contraction, Label, labels_of, sizes_of
from veenv.structure.product import Plan, Way
from veenv.structure.structure import FREE, Link, Structure

_FEWER = 2
"""How many times fewer passes are worth the multiplications by a diagonal."""


def multiply(post: Edge, pre: Edge, *, keep: bool = False) -> Edge:
    """Product post · pre of two edges that meet in one node.

    A structure does not say along which axes its link is diagonal, so the algebra stores zeros
    there. The product is executed without them in any case.

    Args:
      post: partial of w by v.
      pre: partial of v by u.
      keep: leave the zeros out of the result, too.

    Returns:
      The product; without `keep` of the structure that `veenv.structure.product.multiply` plans.
    """
    s, p = post.structure, pre.structure
    result = execute(product.multiply(s, p, diagonal_pairs(post), diagonal_pairs(pre)), post, pre)
    return result if keep else expand_to(result, product.multiply(s, p).structure)


def execute(plan: Plan, post: Edge, pre: Edge) -> Edge:
    """The product of two edges as a plan, made of their structures and links, says."""
    post = expand_link(post) if plan.expanded[0] else post
    pre = keep_diagonal(pre) if plan.expanded[1] else pre
    if plan.way is Way.COMPOSE:
        return _compose(plan, absorb(post, plan.absorbed[0]), absorb(pre, plan.absorbed[1]))
    if plan.way is Way.CONTRACT:
        return _contract(plan.contraction, post, pre)
    left = plan.way is Way.PUSH_LEFT
    with_link, other = (post, pre) if left else (transpose(pre), transpose(post))
    if _fewer_pulls(with_link, other):
        return expand_to(_scaled(post, pre), plan.structure)
    with_link, other = _push_left(with_link, other, pre if left else post)
    post, pre = (with_link, other) if left else (transpose(other), transpose(with_link))
    return _contract(plan.contraction, post, pre)


def _fewer_pulls(post: Edge, pre: Edge) -> bool:
    """Whether post's operator takes far fewer passes by its results than over a diagonal of pre.

    A diagonal that an operator meets is stored with its zeros and pushed through it, one pass for
    each entry.  Where the operator has few results it is pulled back from each of them instead, and
    the diagonal scales what comes out, inside of the operator as far as counts are concerned.

    Args:
      post: an edge with a link.
      pre: an edge without one.
    """
    s, p = post.structure, pre.structure
    if s.link is not Link.OPERATOR or s.link_values:
        return False
    pairs = diagonal_pairs(post)
    apart = [m for m in s.link_in if m not in {m for _, m in pairs} and p.pairs[m] != FREE]
    results = [k for k in s.link_out if k not in {k for k, _ in pairs}]
    passes = prod(p.out_shape[m] for m in apart)
    return _FEWER * prod(s.out_shape[k] for k in results) <= passes


def _scaled(post: Edge, pre: Edge) -> Edge:
    """The product of two edges, the zeros of their links stored but where they are diagonal."""
    post, pre = keep_diagonal(post), keep_diagonal(pre)
    plan = product.multiply(post.structure, pre.structure)
    return _contract(plan.contraction, post, pre)


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
    spread_to = tuple(v or m in s.link_in for m, v in enumerate(p.out_values))
    full = labels_of(replace(p, out_values=spread_to))
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
    target = labels_of(new_pre)
    mask = None if mask is None else arranged(mask, have, target)
    pre = Edge(new_pre, arranged(x, have, target), pre.dtype, 1, pre.link, mask)
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
    y = arranged(post.values, labels, [*others, ("link", 0)])
    y = _on_side(y, link, stored_on_out=link_on_out(s), want_out=True)
    have = [*others, *(("out", k) for k in s.link_out)]
    # Middle axes were renumbered; linked ones are gone.
    kept_in = {m: i for i, m in enumerate(m for m in range(len(s.in_shape)) if m not in s.link_in)}
    have = [("in", kept_in[a[1]]) if a[0] == "in" else a for a in have]
    return Edge(target, arranged(y, have, labels_of(target)), post.dtype, post.sign)


def _on_side(x: Array, link: LinearMap, *, stored_on_out: bool, want_out: bool) -> Array:
    """Unfolds values stored flat along the last axis to the axes of one side of a link."""
    shape = link.out_shape if stored_on_out else link.in_shape
    x = x.reshape([*x.shape[:-1], *shape])
    if stored_on_out == want_out:
        return x
    n = x.ndim - len(shape)
    return link.along(x, range(n, x.ndim), transposed=stored_on_out)


def _compose(plan: Plan, post: Edge, pre: Edge) -> Edge:
    """Product of two edges whose links meet on the same middle axes."""
    s, p, result = post.structure, pre.structure, plan.structure
    out_map = post.link or identity([s.out_shape[k] for k in s.link_out])
    in_map = pre.link or identity([p.in_shape[j] for j in p.link_in])
    link = chain(out_map, in_map)
    out_size, in_size = s.linked_sizes[0], p.linked_sizes[1]
    want_out, size = out_size <= in_size, min(out_size, in_size)

    def left(e: Edge) -> Edge:
        x = _values_at_end(e)
        if x is not None:
            x = _on_side(x, out_map, stored_on_out=link_on_out(s), want_out=want_out)
            if not want_out:
                n = x.ndim - len(in_map.out_shape)
                x = in_map.along(x, range(n, x.ndim), transposed=True)
        return _link_as_axis(e, x, plan.contraction.post, size)

    def right(e: Edge) -> Edge:
        x = _values_at_end(e)
        if x is not None:
            x = _on_side(x, in_map, stored_on_out=link_on_out(p), want_out=want_out)
            if want_out:
                n = x.ndim - len(out_map.in_shape)
                x = out_map.along(x, range(n, x.ndim))
        return _link_as_axis(e, x, plan.contraction.pre, size)

    inner = _contract(plan.contraction, moved(post, left), moved(pre, right))
    if inner.values is None:
        return Edge(result, None, inner.dtype, inner.sign, link)
    x, mask = inner.values, inner.mask
    if inner.structure.out_values[-1] and size == 1:
        at = sum(inner.structure.out_values) - 1
        x = lax.squeeze(x, (at,))
        mask = None if mask is None else lax.squeeze(mask, (at,))
    # The link's label already follows the out axes in storage order.
    return Edge(result, x, inner.dtype, inner.sign, link, mask)


def _values_at_end(e: Edge) -> Array | None:
    """Values with the link's label last; None if the link carries no values."""
    if not e.structure.link_values or e.values is None:
        return None
    labels = labels_of(e.structure)
    others = [a for a in labels if a != ("link", 0)]
    return arranged(e.values, labels, [*others, ("link", 0)])


def _link_as_axis(e: Edge, on_side: Array | None, target: Structure, size: int) -> Edge:
    """The edge with its link as one last paired axis; `on_side`: values on the storing side."""
    if on_side is None:
        return Edge(target, e.values, e.dtype, e.sign)
    others = [a for a in labels_of(e.structure) if a != ("link", 0)]
    x = on_side.reshape([*on_side.shape[: len(others)], size])
    # Storage order: out axes, then the new last out axis, then in axes.
    order = sorted([*others, ("link", 0)], key=lambda a: ("out", "link", "in").index(a[0]))
    return Edge(target, arranged(x, [*others, ("link", 0)], order), e.dtype, e.sign)


def _contract(plan: Contraction, post: Edge, pre: Edge) -> Edge:
    """Product of two edges without links."""
    result, sign = plan.structure, post.sign * pre.sign
    dtype = _compat.promoted(post.dtype, pre.dtype)
    if result.unit:
        return Edge(result, None, dtype, sign)
    post_labels, pre_labels, target = plan.labels()
    x, y = post.values, pre.values
    if plan.scale != 1:
        factor = np.asarray(plan.scale, dtype)
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
