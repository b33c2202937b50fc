"""Edges that hold values: sums, transposes and dense arrays of them.

Products are in `veenv.engine.product`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jax import Array, lax

from veenv import _compat
from veenv.engine.links import expand_link, link_on_out
from veenv.engine.masking import either
from veenv.engine.stored import (
    Edge,
    broken,
    expand_pairs,
    moved,
    respread,
    spread,
    stored_values,
    with_mask,
)
from veenv.structure import structure as algebra
from veenv.structure.contraction import Label, labels_of, sizes_of
from veenv.structure.structure import FREE, Structure


def add(a: Edge, b: Edge) -> Edge:
    """Sum of two edges between the same nodes."""
    target = algebra.add(a.structure, b.structure)
    if a.mask is not None or b.mask is not None:
        # Zeros that are stored for this sum only are masked, too.
        a, b = (with_mask(e) if _has_zeros(e, target) else e for e in (a, b))
    return add_values(expand_to(a, target), expand_to(b, target))


def _has_zeros(e: Edge, target: Structure) -> bool:
    """Whether the edge, stored as `target`, stores zeros of a δ or a link."""
    return e.link is not None or bool(broken(e.structure, target))


def add_values(x: Edge, y: Edge) -> Edge:
    """Sum of two edges of one valued structure and one link."""
    x_values, y_values = _common(x, y)
    dtype = x_values.dtype
    mask = either(x.mask, y.mask)
    if x.sign == y.sign:
        return Edge(x.structure, lax.add(x_values, y_values), dtype, x.sign, x.link, mask)
    if x.sign < 0:
        x_values, y_values = y_values, x_values
    return Edge(x.structure, lax.sub(x_values, y_values), dtype, 1, x.link, mask)


def expand_to(e: Edge, target: Structure) -> Edge:
    """The edge stored as `target`, which has no δs, links or constant axes that it has not."""
    if e.structure == target:
        return e
    e = expand_link(e)
    return respread(expand_pairs(e, broken(e.structure, target)), target)


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
