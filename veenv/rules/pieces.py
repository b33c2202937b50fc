"""Primitives that cut an array into pieces or make one of pieces: selections along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

from veenv.linear.linear_map import Action
from veenv.linear.selection import canonical
from veenv.rules.base import Partial, Row, Site, Values, register
from veenv.rules.shape import linked, relabelled, same_axes, selected


@register("concatenate")
def concatenate(site: Site) -> Sequence[Row]:
    """Joining along one axis: each operand is a piece of it."""
    out, axis = site.out_avals[0].shape, site.params["dimension"]
    row, start = [], 0
    for aval in site.in_avals:
        size = aval.shape[axis]
        if size == out[axis]:
            row.append(relabelled(out, aval.shape, same_axes(out, ())))
        else:
            put = canonical(out[axis], size, start, 1, 0, 1, size)
            row.append(selected(out, aval.shape, same_axes(out, (axis,)), put))
        start += size
    return [row]


@register("split")
def split(site: Site) -> Sequence[Row]:
    """Cutting one axis into pieces."""
    axis, shape = site.params["axis"], site.in_avals[0].shape
    rows, start = [], 0
    for aval, size in zip(site.out_avals, site.params["sizes"], strict=True):
        if aval.shape == shape:
            rows.append([relabelled(aval.shape, shape, same_axes(shape, ()))])
        else:
            cut = canonical(int(size), shape[axis], 0, 1, start, 1, int(size))
            rows.append([selected(aval.shape, shape, same_axes(shape, (axis,)), cut)])
        start += int(size)
    return rows


@register("dynamic_slice")
def dynamic_slice(site: Site) -> Sequence[Row]:
    """Slices at computed positions, which the primitive clamps; negative ones are clamped too."""
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    touched = [k for k in range(len(shape)) if out[k] != shape[k]]

    def cut_at(ins: Values) -> Action:
        starts, sizes = [ins[1 + k] for k in touched], [out[k] for k in touched]
        return lambda x: lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)

    row: list[Partial | None] = [linked(out, shape, same_axes(out, touched), cut_at)]
    return [row + [None] * (len(site.in_avals) - 1)]


@register("dynamic_update_slice")
def dynamic_update_slice(site: Site) -> Sequence[Row]:
    """The updated operand is cut out, the update put in."""
    out, piece = site.out_avals[0].shape, site.in_avals[1].shape
    touched = [k for k in range(len(out)) if out[k] != piece[k]]
    if not touched:
        return [[None, relabelled(out, piece, same_axes(out, ()))] + [None] * len(out)]
    sizes = [out[k] for k in touched]
    hole = [piece[k] for k in touched]

    def put_in(ins: Values, whole: Array, part: Array) -> Array:
        starts = [ins[2 + k] for k in touched]
        return lax.dynamic_update_slice(whole, part, starts, allow_negative_indices=False)

    def keep_at(ins: Values) -> Action:
        return lambda x: put_in(ins, x, jnp.zeros(hole, x.dtype))

    def put_at(ins: Values) -> Action:
        return lambda x: put_in(ins, jnp.zeros(sizes, x.dtype), x)

    pairs = same_axes(out, touched)
    row = [linked(out, out, pairs, keep_at), linked(out, piece, pairs, put_at)]
    return [row + [None] * (len(site.in_avals) - 2)]


@register("stack")
def stack(site: Site) -> Sequence[Row]:
    """Joining along a new axis: each operand is one index of it."""
    out, axis = site.out_avals[0].shape, site.params["axis"]
    if axis < 0:
        axis += len(out)
    row = []
    for index, aval in enumerate(site.in_avals):
        pairs = [(k, j) for j, k in enumerate(k for k in range(len(out)) if k != axis)]
        put = canonical(out[axis], 1, index, 1, 0, 1, 1)
        row.append(selected(out, aval.shape, pairs, put))
    return [row]


@register("unstack")
def unstack(site: Site) -> Sequence[Row]:
    """Taking one axis apart: each result is one index of it."""
    shape, axis = site.in_avals[0].shape, site.params["axis"]
    if axis < 0:
        axis += len(shape)
    rows = []
    for index, aval in enumerate(site.out_avals):
        pairs = list(enumerate(k for k in range(len(shape)) if k != axis))
        take = canonical(1, shape[axis], 0, 1, index, 1, 1)
        rows.append([selected(aval.shape, shape, pairs, take)])
    return rows
