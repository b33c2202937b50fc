"""Edges that hold values: the structure algebra, executed.

Each function here is the counterpart of one in `veenv.structure` and produces exactly the
structure that the algebra predicts; multiplications of edges happen in `_combine` and nowhere
else, so the algebra's count is the number of multiplications in the emitted program.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import structure as algebra
from veenv.linear import LinearMap, chain, identity, widen
from veenv.structure import FREE, Link, Structure

Label = tuple[str, int]


@dataclass(frozen=True)
class Edge:
    """A partial derivative: its structure, values, sign and linear map.

    Attributes:
      structure: what the values mean.
      values: array of shape ``structure.value_shape``; None if the structure is unit.
      dtype: dtype of the values, or what a unit edge becomes when stored.
      sign: +1 or -1, a factor of every entry (kept aside: a sign is no multiplication).
      link: the linear map of the link, on the linked axes; None without link.
    """

    structure: Structure
    values: Array | None
    dtype: Any
    sign: int = 1
    link: LinearMap | None = None


def _labels(s: Structure) -> list[Label]:
    """Labels of the axes of a structure's values, in storage order."""
    labels: list[Label] = [("out", k) for k, v in enumerate(s.out_values) if v]
    if s.link_values:
        labels.append(("link", 0))
    return labels + [("in", j) for j, v in enumerate(s.in_values) if v]


def _stored(e: Edge) -> Array:
    """The values with the sign applied; a unit edge gives one number."""
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    return -values if e.sign < 0 else values


def _spread(x: Array, labels: Sequence[Label], target: Sequence[Label], sizes: Any) -> Array:
    """Broadcasts values over further labels and puts them in the target's order."""
    kept = [a for a in target if a in labels]
    x = x.transpose([labels.index(a) for a in kept])
    shape = [sizes[a] for a in target]
    return lax.broadcast_in_dim(x, shape, [target.index(a) for a in kept])


def _sizes(s: Structure) -> dict[Label, int]:
    sizes: dict[Label, int] = {("out", k): n for k, n in enumerate(s.out_shape)}
    sizes.update({("in", j): n for j, n in enumerate(s.in_shape)})
    if s.link is not Link.NONE:
        sizes[("link", 0)] = s.link_size
    return sizes


def expand_pairs(e: Edge, axes: Sequence[int]) -> Edge:
    """Stores the zeros of the δs at out axes `axes`."""
    s = e.structure
    if not axes:
        return e
    target = algebra.expand_pairs(s, tuple(axes))
    labels, sizes = _labels(target), _sizes(target)
    # A valued pair's values are stored under its out axis.
    x = _spread(_stored(e), _labels(s), labels, sizes)
    for k in axes:
        same = _equal(labels, sizes, ("out", k), ("in", s.pairs[k]))
        x = jnp.where(same, x, jnp.zeros((), x.dtype))
    return Edge(target, x, e.dtype, 1, e.link)


def _equal(labels: list[Label], sizes: dict[Label, int], a: Label, b: Label) -> np.ndarray:
    """Mask over the labels that is true where the indices of `a` and `b` agree."""
    shape = [sizes[x] if x in (a, b) else 1 for x in labels]
    eye = np.eye(sizes[a], dtype=bool)
    return (eye if labels.index(a) < labels.index(b) else eye.T).reshape(shape)


def expand_link(e: Edge) -> Edge:
    """Stores the zeros of the link: its map applied to a diagonal of the link's values."""
    s = e.structure
    if s.link is Link.NONE:
        return e
    assert e.link is not None
    out_size, in_size = s.linked_sizes
    # Where both sides are as large, a forward pass is the cheaper one through an operator.
    from_out = out_size < in_size if s.link is Link.OPERATOR else out_size <= in_size
    size = min(out_size, in_size)
    rest = [a for a in _labels(s) if a[0] != "link"]
    sizes = _sizes(s)
    labels = [*rest, ("link", 0), ("copy", 0)]
    sizes[("link", 0)] = sizes[("copy", 0)] = size
    x = _spread(_stored(e), _labels(s), labels, sizes)
    x = jnp.where(_equal(labels, sizes, ("link", 0), ("copy", 0)), x, jnp.zeros((), x.dtype))
    n = len(rest)
    kept_shape = (
        [s.out_shape[k] for k in s.link_out] if from_out else [s.in_shape[j] for j in s.link_in]
    )
    x = x.reshape([*x.shape[: n + 1], *kept_shape])
    key = ("basis", from_out, e.sign, x.dtype)
    y = e.link.along(x, range(n + 1, x.ndim), transposed=from_out, key=key)
    # y: rest, kept side (flat), moved side (its axes)
    y = y.reshape([*y.shape[:n], *kept_shape, *y.shape[n + 1 :]])
    outs = [("out", k) for k in s.link_out]
    ins = [("in", j) for j in s.link_in]
    have = rest + (outs + ins if from_out else ins + outs)
    target = algebra.expand_link(s)
    y = y.transpose([have.index(a) for a in _labels(target)])
    return Edge(target, y, e.dtype)


def absorb(e: Edge, axes: Sequence[int]) -> Edge:
    """Moves the δs at out axes `axes` into the link."""
    s = e.structure
    if not axes:
        return e
    target = algebra.absorb(s, tuple(axes))
    base = identity(()) if e.link is None else e.link
    extra = [(k, s.pairs[k]) for k in axes]
    link = widen(base, s.link_out, s.link_in, extra, [s.out_shape[k] for k in axes])
    if not target.link_values:
        return Edge(target, e.values, e.dtype, e.sign, link)
    # Lay the values out along the linked axes of the side that stores them now, then move them.
    on_out = _link_side(s)
    side = "out" if on_out else "in"
    own = s.link_out if on_out else s.link_in
    alias = {("out", k): (side, k if on_out else s.pairs[k]) for k in axes}
    linked = sorted([(side, a) for a in own] + list(alias.values()))
    x, labels = _stored(e), _labels(s)
    if s.link_values:
        at = labels.index(("link", 0))
        shape = base.out_shape if on_out else base.in_shape
        x = x.reshape([*x.shape[:at], *shape, *x.shape[at + 1 :]])
        labels = [*labels[:at], *((side, a) for a in own), *labels[at + 1 :]]
    rest = [a for a in _labels(target) if a != ("link", 0)]
    x = _spread(x, [alias.get(a, a) for a in labels], [*rest, *linked], _sizes(s))
    return _store_link(target, x, len(rest), link, on_out, e)


def _link_side(s: Structure) -> bool:
    """Whether a link's values lie on the out side (the smaller one; out if equal)."""
    out_size, in_size = s.linked_sizes
    return out_size <= in_size


def _store_link(
    target: Structure, x: Array, num_rest: int, link: LinearMap, on_out: bool, e: Edge
) -> Edge:
    """Brings values on one side of a link (last axes of x) to the side that stores them."""
    if _link_side(target) != on_out:
        x = link.along(x, range(num_rest, x.ndim), transposed=on_out)
    x = x.reshape([*x.shape[:num_rest], prod(x.shape[num_rest:])])
    rest = [a for a in _labels(target) if a != ("link", 0)]
    have = [*rest, ("link", 0)]
    x = x.transpose([have.index(a) for a in _labels(target)])
    return Edge(target, x, e.dtype, 1, link)


def add(a: Edge, b: Edge) -> Edge:
    """Sum of two edges between the same nodes."""
    target = algebra.add(a.structure, b.structure)
    x, y = expand_to(a, target), expand_to(b, target)
    x_values, y_values = _common(x, y)
    if x.sign == y.sign:
        return Edge(target, x_values + y_values, x_values.dtype, x.sign)
    if x.sign > 0:
        return Edge(target, x_values - y_values, x_values.dtype)
    return Edge(target, y_values - x_values, x_values.dtype)


def expand_to(e: Edge, target: Structure) -> Edge:
    """The edge stored as `target`, which has no δs, links or constant axes that it has not."""
    if e.structure == target:
        return e
    e = expand_link(e)
    broken = [k for k, j in enumerate(e.structure.pairs) if j != FREE and target.pairs[k] == FREE]
    e = expand_pairs(e, broken)
    return respread(e, target)


def respread(e: Edge, target: Structure) -> Edge:
    """The edge with its values repeated along axes that only the target has valued.

    The link, if any, is left out; a target with link values stores them on the same side.
    """
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    x = _spread(values, _labels(e.structure), _labels(target), _sizes(target))
    return Edge(target, x, e.dtype, e.sign)


def respread_entries(values: Array, s: Structure) -> Array:
    """Values repeated to every entry: along out axes, the link, then unpaired in axes."""
    target = replace(
        s,
        out_values=tuple(k not in s.link_out for k in range(len(s.out_shape))),
        in_values=tuple(j not in s.link_in and j not in s.pairs for j in range(len(s.in_shape))),
        link_values=s.link is not Link.NONE,
        unit=False,
    )
    return _spread(values, _labels(s), _labels(target), _sizes(target))


def _common(x: Edge, y: Edge) -> tuple[Array, Array]:
    assert x.values is not None
    assert y.values is not None
    if x.values.dtype == y.values.dtype:
        return x.values, y.values
    dtype = jnp.promote_types(x.values.dtype, y.values.dtype)
    return x.values.astype(dtype), y.values.astype(dtype)


def multiply(post: Edge, pre: Edge) -> Edge:
    """Product post · pre of two edges that meet in one node."""
    if post.link is None and pre.link is None:
        return _contract(post, pre)
    axes = algebra.absorbable(post.structure, pre.structure)
    if axes is not None:
        return _compose(absorb(post, axes[0]), absorb(pre, axes[1]))
    if post.link is not None and pre.link is not None:
        if post.structure.link is Link.OPERATOR:
            return multiply(post, expand_link(pre))
        return multiply(expand_link(post), pre)
    if post.link is not None:
        return _contract(*_push_left(post, pre, pre))
    left, right = _push_left(transpose(pre), transpose(post), post)
    return _contract(transpose(right), transpose(left))


def transpose(e: Edge) -> Edge:
    """The edge with out and in exchanged."""
    s = e.structure
    target = algebra.transpose(s)
    flipped = e.link.T if e.link is not None else None
    if e.values is None:
        return Edge(target, None, e.dtype, e.sign, flipped)
    names: dict[Label, Label] = {("link", 0): ("link", 0)}
    for k, j in enumerate(s.pairs):
        names[("out", k)] = ("in", k) if j == FREE else ("out", j)
    for j in range(len(s.in_shape)):
        names[("in", j)] = ("out", j)
    labels = [names[a] for a in _labels(s)]
    x = e.values.transpose([labels.index(a) for a in _labels(target)])
    if s.link_values and _link_side(s) == _link_side(target):
        # Equal sides: both orientations store on their out side, so the values change sides.
        at = _labels(target).index(("link", 0))
        assert e.link is not None
        y = x.reshape([*x.shape[:at], *e.link.out_shape, *x.shape[at + 1 :]])
        n = len(e.link.out_shape)
        y = e.link.along(y, range(at, at + n), transposed=True)
        moved = y.reshape([*y.shape[: x.ndim - 1], -1])
        order = list(range(x.ndim - 1))
        order.insert(at, x.ndim - 1)
        x = moved.transpose(order)
    return Edge(target, x, e.dtype, e.sign, flipped)


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
    pre = expand_pairs(pre, [m for m in s.link_in if pre.structure.pairs[m] != FREE])
    new_post, new_pre = algebra.push_left(s, pre.structure)
    # pre: spread over the linked middle axes, then apply the map.
    p = pre.structure
    linked: list[Label] = [("out", m) for m in s.link_in]
    rest = [a for a in _labels(p) if a not in linked]
    sizes = _sizes(p)
    x = _spread(_stored(pre), _labels(p), [*rest, *linked], sizes)
    key = (Same(source), s.link_in, tuple(rest))
    x = link.along(x, range(len(rest), x.ndim), key=key)
    keep = [m for m in range(len(p.out_shape)) if m not in s.link_in]
    where = {("out", m): ("out", i) for i, m in enumerate(keep)}
    have = [where.get(a, a) for a in rest]
    have += [("out", len(keep) + i) for i in range(len(s.link_out))]
    x = x.transpose([have.index(a) for a in _labels(new_pre)])
    pre = Edge(new_pre, x, pre.dtype, 1, pre.link)
    if not s.link_values:
        return Edge(new_post, post.values, post.dtype, post.sign), pre
    assert post.values is not None
    labels = _labels(s)
    others = [a for a in labels if a != ("link", 0)]
    y = post.values.transpose([*(labels.index(a) for a in others), labels.index(("link", 0))])
    y = _on_side(y, link, stored_on_out=_link_side(s), want_out=True)
    have = [*others, *(("out", k) for k in s.link_out)]
    # Middle axes were renumbered; linked ones are gone.
    kept_in = {m: i for i, m in enumerate(m for m in range(len(s.in_shape)) if m not in s.link_in)}
    have = [("in", kept_in[a[1]]) if a[0] == "in" else a for a in have]
    y = y.transpose([have.index(a) for a in _labels(new_post)])
    return Edge(new_post, y, post.dtype, post.sign), pre


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
    result = algebra.compose(s, p).structure
    out_map = post.link or identity([s.out_shape[k] for k in s.link_out])
    in_map = pre.link or identity([p.in_shape[j] for j in p.link_in])
    link = chain(out_map, in_map)
    out_size, in_size = s.linked_sizes[0], p.linked_sizes[1]
    want_out = out_size <= in_size
    size = min(out_size, in_size)
    left = _values_at_end(post, out_map)
    if left is not None:
        left = _on_side(left, out_map, stored_on_out=_link_side(s), want_out=want_out)
        if not want_out:
            n = left.ndim - len(in_map.out_shape)
            left = in_map.along(left, range(n, left.ndim), transposed=True)
    right = _values_at_end(pre, in_map)
    if right is not None:
        right = _on_side(right, in_map, stored_on_out=_link_side(p), want_out=want_out)
        if want_out:
            n = right.ndim - len(out_map.in_shape)
            right = out_map.along(right, range(n, right.ndim))
    a = _link_as_axis(post, left, s.link_out, s.link_in, size)
    b = _link_as_axis(pre, right, p.link_out, p.link_in, size)
    inner = _contract(a, b)
    if inner.values is None:
        return Edge(result, None, inner.dtype, inner.sign, link)
    x = inner.values
    if inner.structure.out_values[-1] and size == 1:
        at = [a for a in _labels(inner.structure) if a[0] == "out"].index(
            ("out", len(inner.structure.out_shape) - 1)
        )
        x = x.reshape([*x.shape[:at], *x.shape[at + 1 :]])
    # The link's label already follows the out axes in storage order.
    return Edge(result, x, inner.dtype, inner.sign, link)


def _values_at_end(e: Edge, link: LinearMap) -> Array | None:
    """Values with the link's label last; None if the link carries no values."""
    if not e.structure.link_values or e.values is None:
        return None
    labels = _labels(e.structure)
    others = [a for a in labels if a != ("link", 0)]
    return e.values.transpose([*(labels.index(a) for a in others), labels.index(("link", 0))])


def _link_as_axis(
    e: Edge, moved: Array | None, outs: Sequence[int], ins: Sequence[int], size: int
) -> Edge:
    """The edge with its link as one last paired axis; `moved`: values on the storing side."""
    s = e.structure
    target = algebra.link_as_axis(s, outs, ins, size)
    if moved is None:
        return Edge(target, e.values, e.dtype, e.sign)
    others = [a for a in _labels(s) if a != ("link", 0)]
    x = moved.reshape([*moved.shape[: len(others)], size])
    have = [*others, ("link", 0)]
    # Storage order: out axes, then the new last out axis, then in axes.
    order = [a for a in have if a[0] == "out"] + [("link", 0)] + [a for a in have if a[0] == "in"]
    return Edge(target, x.transpose([have.index(a) for a in order]), e.dtype, e.sign)


def _contract(post: Edge, pre: Edge) -> Edge:
    """Product of two edges without links."""
    s, p = post.structure, pre.structure
    product = algebra.contract(s, p)
    result, sign = product.structure, post.sign * pre.sign
    dtype = jnp.promote_types(post.dtype, pre.dtype)
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
    post_labels = [out_names[i] if side == "out" else middle[i] for side, i in _labels(s)]
    pre_labels = [middle[i] if side == "out" else in_names[i] for side, i in _labels(p)]
    target = _labels(result)
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
    if x is None or y is None:
        one, labels = (y, pre_labels) if x is None else (x, post_labels)
        assert one is not None
        return Edge(result, _sum_out(one, labels, target)[0], dtype, sign)
    return Edge(result, _combine(x, post_labels, y, pre_labels, target), dtype, sign)


def _sum_out(x: Array, labels: list[Label], keep: Sequence[Label]) -> tuple[Array, list[Label]]:
    """Sums the labels not in `keep`; what remains is in keep's order."""
    gone = [i for i, a in enumerate(labels) if a not in keep]
    if gone:
        x = x.sum(axis=tuple(gone))
        labels = [a for a in labels if a in keep]
    order = [labels.index(a) for a in dict.fromkeys(keep) if a in labels]
    return (x if order == sorted(order) else x.transpose(order)), [labels[i] for i in order]


def _combine(
    x: Array, x_labels: list[Label], y: Array, y_labels: list[Label], target: list[Label]
) -> Array:
    """The one place where two edges' values are multiplied."""
    x, x_labels = _sum_out(x, x_labels, [*target, *y_labels])
    y, y_labels = _sum_out(y, y_labels, [*target, *x_labels])
    x, y = jnp.asarray(x), jnp.asarray(y)
    if x.dtype != y.dtype:
        dtype = jnp.promote_types(x.dtype, y.dtype)
        x, y = x.astype(dtype), y.astype(dtype)
    summed = [a for a in x_labels if a not in target]
    if not summed:
        sizes = dict(zip(x_labels, x.shape, strict=True)) | dict(
            zip(y_labels, y.shape, strict=True)
        )
        shape = [sizes[a] for a in target]
        full = [
            lax.broadcast_in_dim(v, shape, [target.index(a) for a in names])
            if list(v.shape) != shape
            else v
            for v, names in ((_ordered(x, x_labels, target)), (_ordered(y, y_labels, target)))
        ]
        return lax.mul(*full)
    letters = dict(zip(dict.fromkeys([*x_labels, *y_labels]), string.ascii_letters, strict=False))
    spec = ["".join(letters[a] for a in names) for names in (x_labels, y_labels, target)]
    return jnp.einsum(f"{spec[0]},{spec[1]}->{spec[2]}", x, y)


def _ordered(x: Array, labels: list[Label], target: list[Label]) -> tuple[Array, list[Label]]:
    kept = [a for a in target if a in labels]
    order = [labels.index(a) for a in kept]
    return (x if order == sorted(order) else x.transpose(order)), kept


def todense(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any) -> Array:
    """The partial as a dense array of shape ``out_shape + in_shape``."""
    e = expand_link(e)
    e = expand_pairs(e, [k for k, j in enumerate(e.structure.pairs) if j != FREE])
    s = e.structure
    full = replace(
        s, out_values=(True,) * len(s.out_shape), in_values=(True,) * len(s.in_shape), unit=False
    )
    x = _spread(_stored(e), _labels(s), _labels(full), _sizes(s))
    return x.astype(dtype).reshape((*out_shape, *in_shape))
