"""Edges that hold values: the structure algebra, executed.

Each function here is the counterpart of one in `veenv.structure` and produces exactly the
structure that the algebra predicts.  Products are in `veenv.engine.product`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from veenv import _compat
from veenv.engine.masking import align, either, select, trivial
from veenv.linear.barrier import pin
from veenv.linear.linear_map import LinearMap, identity, widen
from veenv.linear.selection import Affine
from veenv.structure import structure as algebra
from veenv.structure.structure import FREE, Link, Structure

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
      mask: which values are not shut out by a select (`veenv.engine.masking`); None: all.
    """

    structure: Structure
    values: Array | None
    dtype: Any
    sign: int = 1
    link: LinearMap | None = None
    mask: Array | None = None


def with_mask(e: Edge) -> Edge:
    """The edge with a mask, which shuts nothing out if it had none.

    The zeros that are stored of it from then on, of its δs and its link, are masked.
    """
    return replace(e, mask=trivial(len(labels_of(e.structure)))) if e.mask is None else e


def moved(e: Edge, move: Callable[[Edge], Edge]) -> Edge:
    """`move` of an edge, which may only put its values into other places; its mask goes along."""
    result = move(replace(e, mask=None))
    if e.mask is None:
        return result
    shape = () if e.values is None else e.values.shape
    there = lax.broadcast_in_dim(e.mask, shape, range(len(shape))).astype(e.dtype)
    shadow = move(Edge(e.structure, there, e.dtype, 1, e.link))
    assert shadow.values is not None
    return replace(result, mask=lax.ne(shadow.values, jnp.zeros_like(shadow.values)))


Edges = dict[tuple[int, int], Edge]
"""Edges by (source, target)."""


def is_known(e: Edge) -> bool:
    """Whether the edge is a selection whose places are known when tracing."""
    selects = e.structure.link is Link.SELECTION
    return selects and e.link is not None and isinstance(e.link.name, Affine)


def places(e: Edge) -> Affine:
    """The selection of an edge for which `is_known` holds."""
    assert e.link is not None
    assert isinstance(e.link.name, Affine)
    return e.link.name


def labels_of(s: Structure) -> list[Label]:
    """Labels of the axes of a structure's values, in storage order."""
    labels: list[Label] = [("out", k) for k, v in enumerate(s.out_values) if v]
    if s.link_values:
        labels.append(("link", 0))
    return labels + [("in", j) for j, v in enumerate(s.in_values) if v]


def stored_values(e: Edge) -> Array:
    """The values with the sign applied; a unit edge gives one number."""
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    return -values if e.sign < 0 else values


def spread(x: Array, labels: Sequence[Label], target: Sequence[Label], sizes: Any) -> Array:
    """Broadcasts values over further labels and puts them in the target's order."""
    kept = [a for a in target if a in labels]
    x = x.transpose([labels.index(a) for a in kept])
    shape = [sizes[a] for a in target]
    return lax.broadcast_in_dim(x, shape, [target.index(a) for a in kept])


def sizes_of(s: Structure) -> dict[Label, int]:
    """Size of every label of a structure."""
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
    labels, sizes = labels_of(target), sizes_of(target)
    # A valued pair's values are stored under its out axis.
    x = spread(pin(stored_values(e)), labels_of(s), labels, sizes)
    mask = None if e.mask is None else align(e.mask, labels_of(s), labels)
    for k in axes:
        same = _equal(labels, sizes, ("out", k), ("in", s.pairs[k]))
        x = select(same, x, 0)
        mask = None if mask is None else mask & same
    return Edge(target, x, e.dtype, 1, e.link, mask)


def _equal(labels: list[Label], sizes: dict[Label, int], a: Label, b: Label) -> Array:
    """Mask over the labels that is true where the indices of `a` and `b` agree."""
    shape = [sizes[x] if x in (a, b) else 1 for x in labels]
    along = [lax.broadcasted_iota(jnp.int32, shape, labels.index(x)) for x in (a, b)]
    return lax.eq(*along)


def expand_link(e: Edge) -> Edge:
    """Stores the zeros of the link: its map applied to a diagonal of the link's values."""
    s = e.structure
    if s.link is Link.NONE:
        return e
    assert e.link is not None
    if is_known(e):
        target = algebra.expand_link(s)
        mask, x = placed(e, target)
        return Edge(target, select(mask, x, 0), e.dtype, mask=None if e.mask is None else mask)
    e = keep_diagonal(e)
    return expand_pairs(e, _broken(e.structure, algebra.expand_link(s)))


def diagonal_pairs(e: Edge) -> list[tuple[int, int]]:
    """(out axis, in axis) pairs along which the edge's link is diagonal."""
    s = e.structure
    return [] if e.link is None else [(s.link_out[a], s.link_in[b]) for a, b in e.link.diagonal]


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
    return Edge(target, y.transpose([have.index(a) for a in labels_of(target)]), e.dtype)


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


def placed(e: Edge, target: Structure) -> tuple[Array, Array]:
    """A selection whose places are known, stored as `target`: where it is, and its values there.

    Args:
      e: an edge whose link has an `Affine` name.
      target: a structure without link, to which the edge's expands.

    Returns:
      A mask, in which that of the edge is part, and values, both of the rank of target's values;
      the values are of its shape.  The mask is compared out of indices where it is used: kept, it
      could exceed the values.
    """
    e = expand_pairs(e, _broken(e.structure, target))
    s = e.structure
    outs, ins = [("out", k) for k in s.link_out], [("in", j) for j in s.link_in]
    labels, sizes = labels_of(target), sizes_of(target)
    have: list[Label] = []
    for a in labels_of(s):
        have += (outs if link_on_out(s) else ins) if a == ("link", 0) else [a]
    values = stored_values(e)
    if values.ndim:
        values = pin(values)
    shape = [sizes[a] if a in (*outs, *ins) else 1 for a in labels]
    size = places(e).out_size, places(e).in_size
    columns = lax.broadcast_in_dim(places(e).columns(), size, (0,))
    mask = lax.eq(columns, lax.broadcasted_iota(jnp.int32, size, 1))
    mask = mask.reshape(shape)
    if e.mask is not None:
        mask = mask & align(e.mask, have, labels)
    return mask, spread(values, have, labels, sizes)


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
    have = [*rest, ("link", 0)]
    x = x.transpose([have.index(a) for a in labels_of(target)])
    return Edge(target, x, e.dtype, 1, link)


def add(a: Edge, b: Edge) -> Edge:
    """Sum of two edges between the same nodes."""
    target = algebra.add(a.structure, b.structure)
    if a.mask is not None or b.mask is not None:
        # Zeros that are stored for this sum only are masked, too.
        a, b = (with_mask(e) if _has_zeros(e, target) else e for e in (a, b))
    return add_values(expand_to(a, target), expand_to(b, target))


def _has_zeros(e: Edge, target: Structure) -> bool:
    """Whether the edge, stored as `target`, stores zeros of a δ or a link."""
    return e.link is not None or bool(_broken(e.structure, target))


def add_values(x: Edge, y: Edge) -> Edge:
    """Sum of two edges of one valued structure and one link."""
    x_values, y_values = _common(x, y)
    dtype = x_values.dtype
    mask = either(x.mask, y.mask)
    if x.sign == y.sign:
        return Edge(x.structure, x_values + y_values, dtype, x.sign, x.link, mask)
    if x.sign < 0:
        x_values, y_values = y_values, x_values
    return Edge(x.structure, x_values - y_values, dtype, 1, x.link, mask)


def expand_to(e: Edge, target: Structure) -> Edge:
    """The edge stored as `target`, which has no δs, links or constant axes that it has not."""
    if e.structure == target:
        return e
    e = expand_link(e)
    return respread(expand_pairs(e, _broken(e.structure, target)), target)


def _broken(s: Structure, target: Structure) -> list[int]:
    """Out axes of the δs that the target has not."""
    return [k for k, j in enumerate(s.pairs) if j != FREE and target.pairs[k] == FREE]


def respread(e: Edge, target: Structure) -> Edge:
    """The edge with its values repeated along axes that only the target has valued.

    The link, if any, is left out; a target with link values stores them on the same side.
    """
    values = jnp.ones((), e.dtype) if e.values is None else e.values
    labels, have = labels_of(target), labels_of(e.structure)
    x = spread(values, have, labels, sizes_of(target))
    mask = None if e.mask is None else align(e.mask, have, labels)
    return Edge(target, x, e.dtype, e.sign, mask=mask)


def respread_entries(values: Array, s: Structure) -> Array:
    """Values repeated to every entry: along out axes, the link, then unpaired in axes."""
    target = replace(
        s,
        out_values=tuple(k not in s.link_out for k in range(len(s.out_shape))),
        in_values=tuple(j not in s.link_in and j not in s.pairs for j in range(len(s.in_shape))),
        link_values=s.link is not Link.NONE,
        unit=False,
    )
    return spread(values, labels_of(s), labels_of(target), sizes_of(target))


def _common(x: Edge, y: Edge) -> tuple[Array, Array]:
    assert x.values is not None
    assert y.values is not None
    if x.values.dtype == y.values.dtype:
        return x.values, y.values
    dtype = _compat.promoted(x.values.dtype, y.values.dtype)
    return x.values.astype(dtype), y.values.astype(dtype)


def transpose(e: Edge) -> Edge:
    """The edge with out and in exchanged."""
    s = e.structure
    # Equal sides: both orientations store on their out side, so the values change sides.
    across = s.link_values and link_on_out(s) == link_on_out(algebra.transpose(s))
    return moved(e, _transpose) if across else _transpose(e)


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
    x = e.values.transpose(order)
    mask = None if e.mask is None else e.mask.transpose(order)
    if s.link_values and link_on_out(s) == link_on_out(target):
        at = labels_of(target).index(("link", 0))
        assert e.link is not None
        y = x.reshape([*x.shape[:at], *e.link.out_shape, *x.shape[at + 1 :]])
        n = len(e.link.out_shape)
        y = e.link.along(y, range(at, at + n), transposed=True)
        moved = y.reshape([*y.shape[: x.ndim - 1], -1])
        order = list(range(x.ndim - 1))
        order.insert(at, x.ndim - 1)
        x = moved.transpose(order)
    return Edge(target, x, e.dtype, e.sign, flipped, mask)


def todense(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any) -> Array:
    """The partial as a dense array of shape ``out_shape + in_shape``."""
    e = expand_link(replace(e, mask=None))
    e = expand_pairs(e, [k for k, j in enumerate(e.structure.pairs) if j != FREE])
    s = e.structure
    full = replace(
        s, out_values=(True,) * len(s.out_shape), in_values=(True,) * len(s.in_shape), unit=False
    )
    x = spread(stored_values(e), labels_of(s), labels_of(full), sizes_of(s))
    return x.astype(dtype).reshape((*out_shape, *in_shape))
