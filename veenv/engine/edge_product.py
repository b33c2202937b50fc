"""Multiplies edges that hold values, as the plans of `veenv.structure.product` say.

In: two `Edge`s that meet in a node. Out: their product, an `Edge`. Values of two edges are
multiplied in `combine` and nowhere else, so a plan's count is the number of multiplications in the
emitted program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import _compat, limits
from veenv.engine.edge import (
    Edge,
    absorb,
    align,
    arranged,
    both,
    diagonal_pairs,
    expand_link,
    expand_pairs,
    expand_to,
    keep_diagonal,
    link_on_out,
    reduce_mask,
    relayout,
    select,
    spread,
    stored_values,
    transpose,
)
from veenv.linear.linear_map import LinearMap, Same, chain, identity
from veenv.structure import product
from veenv.structure.product import Contraction, Label, Plan, Way, labels_of, sizes_of
from veenv.structure.structure import FREE, Link, Structure

_SMALL = limits.MANY * limits.SMALL
"""Most products of a sum that are masked one by one."""


def multiply(post: Edge, pre: Edge, *, keep: bool = False) -> Edge:
    """Multiplies two edges that meet in one node: post · pre.

    A structure does not say along which axes its link is diagonal, so the algebra stores zeros
    there. They are never computed; with `keep` they are not stored either.
    """
    s, p = post.structure, pre.structure
    result = execute(product.multiply(s, p, diagonal_pairs(post), diagonal_pairs(pre)), post, pre)
    return result if keep else expand_to(result, product.multiply(s, p).structure)


def execute(plan: Plan, post: Edge, pre: Edge) -> Edge:
    """Multiplies two edges as a plan says, which is made of their structures and links."""
    post = expand_link(post) if plan.expanded[0] else post
    pre = keep_diagonal(pre) if plan.expanded[1] else pre
    if plan.way is Way.COMPOSE:
        return _compose(plan, absorb(post, plan.absorbed[0]), absorb(pre, plan.absorbed[1]))
    if plan.way is Way.CONTRACT:
        return _contract(plan.contraction, post, pre)
    left = plan.way is Way.PUSH_LEFT
    with_link, other = (post, pre) if left else (transpose(pre), transpose(post))
    if _fewer_pulls(with_link, other):
        post, pre = keep_diagonal(post), keep_diagonal(pre)
        scaled = product.multiply(post.structure, pre.structure)
        return expand_to(_contract(scaled.contraction, post, pre), plan.structure)
    with_link, other = _push_left(with_link, other, pre if left else post)
    post, pre = (with_link, other) if left else (transpose(other), transpose(with_link))
    return _contract(plan.contraction, post, pre)


def _fewer_pulls(post: Edge, pre: Edge) -> bool:
    """Returns whether post's operator takes far fewer passes by results than over pre's diagonal.

    A diagonal before an operator is stored with its zeros and pushed through, one pass for each
    entry. An operator with few results is pulled back from each result instead, and the diagonal
    scales the pulled rows; counts treat the scaling as a part of the operator.
    """
    s, p = post.structure, pre.structure
    if s.link is not Link.OPERATOR or s.link_values:
        return False
    pairs = diagonal_pairs(post)
    apart = [m for m in s.link_in if m not in {m for _, m in pairs} and p.pairs[m] != FREE]
    results = [k for k in s.link_out if k not in {k for k, _ in pairs}]
    passes = prod(p.out_shape[m] for m in apart)
    return limits.FEWER * prod(s.out_shape[k] for k in results) <= passes


def _push_left(post: Edge, pre: Edge, source: Edge) -> tuple[Edge, Edge]:
    """Applies post's link to pre's values; post keeps a δ on the link's out axes.

    `source` is the edge whose values `pre` holds, in whatever orientation: the passes through one
    equation for the same source are shared.
    """
    s, link = post.structure, post.link
    assert link is not None
    diagonal = [(k, m) for k, m in diagonal_pairs(post) if pre.structure.pairs[m] != FREE]
    stay = {m for _, m in diagonal}
    broken = [m for m in s.link_in if pre.structure.pairs[m] != FREE and m not in stay]
    pre = expand_pairs(pre, broken)
    new_post, new_pre = product.push_left(s, pre.structure, diagonal)
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
        mask = align(pre.mask, labels_of(p), full)
        mask = _mask_through(link, mask, at, x.shape)
    x = link.along(x, at, key=key)
    x = x if mask is None else select(mask, x, 0)
    keep = [m for m in range(len(p.out_shape)) if m not in s.link_in]
    where = {("out", m): ("out", i) for i, m in enumerate(keep)}
    have = [where.get(a, a) for a in rest]
    have += [("out", len(keep) + i) for i in range(len(s.link_out))]
    target = labels_of(new_pre)
    mask = None if mask is None else arranged(mask, have, target)
    pre = Edge(new_pre, arranged(x, have, target), pre.dtype, 1, pre.link, mask)
    if not s.link_values:
        return Edge(new_post, post.values, post.dtype, post.sign, mask=post.mask), pre
    return relayout(post, lambda e: _unlinked(e, new_post)), pre


def _mask_through(link: LinearMap, mask: Array, axes: Sequence[int], shape: Sequence[int]) -> Array:
    """Returns the mask of a link's results from masked values along some of their axes.

    An operator with values passes a mask on along its diagonal axes only.
    """
    if link.counts:
        there = lax.broadcast_in_dim(mask, shape, range(len(shape))).astype(jnp.float32)
        passed = link.along(there, axes)
        return lax.ne(passed, jnp.zeros_like(passed))
    labels = list(range(len(shape)))
    rest = [a for a in labels if a not in axes]
    through = {k: axes[j] for k, j in link.diagonal}
    labels_out = [*rest, *(through.get(k, -1 - k) for k in range(len(link.out_shape)))]
    return align(reduce_mask(mask, labels, labels_out), labels, labels_out)


def _unlinked(post: Edge, target: Structure) -> Edge:
    """Returns a left factor without its link, which has been applied to the right factor."""
    s, link = post.structure, post.link
    y = _values_at_end(post)
    assert y is not None
    assert link is not None
    plain = [a for a in labels_of(s) if a != ("link", 0)]
    y = _on_side(y, link, stored_on_out=link_on_out(s), want_out=True)
    have = [*plain, *(("out", k) for k in s.link_out)]
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
    """Multiplies two edges whose links meet on the same middle axes."""
    s, p, result = post.structure, pre.structure, plan.structure
    out_map = post.link or identity([s.out_shape[k] for k in s.link_out])
    in_map = pre.link or identity([p.in_shape[j] for j in p.link_in])
    link = chain(out_map, in_map)
    out_size, in_size = s.linked_sizes[0], p.linked_sizes[1]
    want_out, size = out_size <= in_size, min(out_size, in_size)

    def on_axis(e: Edge, link_map: LinearMap, other: LinearMap | None, target: Structure) -> Edge:
        x = _values_at_end(e)
        if x is not None:
            stored_on_out = link_on_out(e.structure)
            x = _on_side(x, link_map, stored_on_out=stored_on_out, want_out=want_out)
            if other is not None:
                n = x.ndim - len(other.in_shape if want_out else other.out_shape)
                x = other.along(x, range(n, x.ndim), transposed=not want_out)
        return _link_as_axis(e, x, target, size)

    contraction = plan.contraction
    left = relayout(
        post, lambda e: on_axis(e, out_map, None if want_out else in_map, contraction.post)
    )
    right = relayout(
        pre, lambda e: on_axis(e, in_map, out_map if want_out else None, contraction.pre)
    )
    inner = _contract(contraction, left, right)
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
    """Returns values with the link's label last; None if the link carries no values."""
    if not e.structure.link_values or e.values is None:
        return None
    labels = labels_of(e.structure)
    plain = [a for a in labels if a != ("link", 0)]
    return arranged(e.values, labels, [*plain, ("link", 0)])


def _link_as_axis(e: Edge, on_side: Array | None, target: Structure, size: int) -> Edge:
    """Returns the edge with its link as a last paired axis; `on_side`: values stored there."""
    if on_side is None:
        return Edge(target, e.values, e.dtype, e.sign)
    plain = [a for a in labels_of(e.structure) if a != ("link", 0)]
    x = on_side.reshape([*on_side.shape[: len(plain)], size])
    # Storage order: out axes, then the new last out axis, then in axes.
    order = sorted([*plain, ("link", 0)], key=lambda a: ("out", "link", "in").index(a[0]))
    return Edge(target, arranged(x, [*plain, ("link", 0)], order), e.dtype, e.sign)


def _contract(plan: Contraction, post: Edge, pre: Edge) -> Edge:
    """Multiplies two edges without links."""
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


class Factor(NamedTuple):
    """An operand of a contraction: values, the labels of their axes and their mask."""

    values: Array
    labels: list[Label]
    mask: Array | None


def sum_out(factor: Factor, keep: Sequence[Label]) -> Factor:
    """Sums over the labels not in `keep`; the labels of `keep` that the factor has remain."""
    x, labels, mask = factor
    summed = [i for i, a in enumerate(labels) if a not in keep]
    if summed:
        x = x.sum(axis=tuple(summed))
    remaining = [a for a in dict.fromkeys(keep) if a in labels]
    if mask is not None:
        mask = align(reduce_mask(mask, labels, remaining), labels, remaining)
    return Factor(arranged(x, [a for a in labels if a in keep], remaining), remaining, mask)


def combine(x: Factor, y: Factor, target: list[Label]) -> tuple[Array, Array | None]:
    """Multiplies the values of two edges: the values and mask of their product.

    Where the mask of one factor shuts an entry out, the other factor, which may be infinite, is set
    to zero before the product. In a large sum this is done only where a mask shuts out everything
    that an entry of the other factor meets.
    """
    x = sum_out(x, [*target, *y.labels])
    y = sum_out(y, [*target, *x.labels])
    dtype = _compat.promoted(x.values.dtype, y.values.dtype)
    x, y = (f._replace(values=jnp.asarray(f.values).astype(dtype)) for f in (x, y))
    summed = [a for a in x.labels if a not in target]
    if not summed:
        return _times(x, y, target)
    if _is_mixed(x, y) or _is_mixed(y, x):
        every = [*target, *summed]
        if prod(_sizes(x, y).values()) <= _SMALL:
            values, mask = _times(x, y, every)
            summed_factor = sum_out(Factor(values, every, mask), target)
            return summed_factor.values, summed_factor.mask
    masks = [_mask_for(f, target) for f in (x, y)]
    x, y = _shut_out(x, y), _shut_out(y, x)
    mask = both(*masks)
    return _dot(x.values, x.labels, y.values, y.labels, target), mask


def _sizes(*factors: Factor) -> dict[Label, int]:
    return {a: n for f in factors for a, n in zip(f.labels, f.values.shape, strict=True)}


def _is_mixed(x: Factor, y: Factor) -> bool:
    """Returns whether x's mask depends on more than y's labels."""
    shape = () if x.mask is None else x.mask.shape
    return any(n != 1 and a not in y.labels for a, n in zip(x.labels, shape, strict=False))


def _mask_for(x: Factor, target: Sequence[Label]) -> Array | None:
    """Returns a mask over the target's labels: true where x has any entry along its other ones."""
    if x.mask is None:
        return None
    return align(reduce_mask(x.mask, x.labels, target), x.labels, target)


def _shut_out(x: Factor, y: Factor) -> Factor:
    """Returns the factor x, zero where y's mask shuts out everything that it multiplies."""
    mask = _mask_for(y, x.labels)
    return x if mask is None else x._replace(values=select(mask, x.values, 0))


def _times(x: Factor, y: Factor, target: list[Label]) -> tuple[Array, Array | None]:
    """Multiplies two factors over the target's labels, without a sum."""
    sizes = _sizes(x, y)
    shape = [sizes[a] for a in target]
    full = []
    for f, other in ((x, y), (y, x)):
        v = arranged(f.values, f.labels, target)
        if list(v.shape) != shape:
            v = lax.broadcast_in_dim(v, shape, [k for k, a in enumerate(target) if a in f.labels])
        mask = _mask_for(other, target)
        full.append(v if mask is None else select(mask, v, 0))
    masks = [_mask_for(f, target) for f in (x, y)]
    return lax.mul(*full), both(*masks)


def _dot(
    x: Array, x_labels: list[Label], y: Array, y_labels: list[Label], target: list[Label]
) -> Array:
    """Sums over labels that both have and the target lacks; the larger operand is on the left."""
    if x.size < y.size:
        x, x_labels, y, y_labels = y, y_labels, x, x_labels
    summed = [a for a in x_labels if a not in target]
    joint = [a for a in target if a in x_labels and a in y_labels]
    free = [
        [a for a in target if a in labels and a not in joint] for labels in (x_labels, y_labels)
    ]
    left, right = [*joint, *free[0], *summed], [*joint, *summed, *free[1]]
    x, y = arranged(x, x_labels, left), arranged(y, y_labels, right)
    batch = tuple(range(len(joint)))
    at = [[labels.index(a) for a in summed] for labels in (left, right)]
    product = lax.dot_general(x, y, ((at[0], at[1]), (batch, batch)))
    return arranged(product, [*joint, *free[0], *free[1]], target)
