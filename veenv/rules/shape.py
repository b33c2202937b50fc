"""Primitives that move, drop, repeat or join axes: unit partials under both counts.

Where the map only relabels axes, the structure says it all; axes that it cuts, joins or shifts
form a selection link, whose linear map is the primitive itself on just those axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from veenv.linear.linear_map import (
    Action,
    Affine,
    LinearMap,
    Selection,
    canonical,
    drop_ones,
    squeezed,
)
from veenv.rules.base import Partial, Row, Site, Values, register
from veenv.structure.structure import Link, make


def relabelled(out_shape: Sequence[int], in_shape: Sequence[int], pairs: Any) -> Partial:
    """A unit partial that pairs axes; the others are constant."""
    unit = make(out_shape, in_shape, list(pairs), unit=True)
    return Partial(unit, unit)


def selected(
    out_shape: Sequence[int],
    in_shape: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    action: Action | Affine,
    kind: Link = Link.SELECTION,
) -> Partial:
    """A unit partial whose unpaired axes are linked by an action, or a selection along one axis."""
    return linked(out_shape, in_shape, pairs, lambda _: action, kind)


def linked(
    out_shape: Sequence[int],
    in_shape: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    action_at: Callable[[Values], Action | Affine],
    kind: Link = Link.SELECTION,
) -> Partial:
    """A unit partial as of `selected`, with an action that depends on the operands' values."""
    outs = [k for k in range(len(out_shape)) if k not in {p[0] for p in pairs}]
    ins = [j for j in range(len(in_shape)) if j not in {p[1] for p in pairs}]
    unit = make(out_shape, in_shape, pairs, unit=True, link=kind, link_out=outs, link_in=ins)
    if unit.link is Link.NONE:
        return Partial(unit, unit)
    in_sizes, out_sizes = [in_shape[j] for j in ins], [out_shape[k] for k in outs]

    def link(values: Values, _outs: Values) -> LinearMap:
        action = action_at(values)
        if isinstance(action, Affine):
            return Selection(action, drop_ones(out_sizes), drop_ones(in_sizes))
        return squeezed(action, in_sizes, out_sizes)

    return Partial(unit, unit, link=link)


def same_axes(out: Sequence[int], touched: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs of the axes that an operation on the axes `touched` leaves alone."""
    return [(k, k) for k in range(len(out)) if k not in touched]


@register("broadcast_in_dim")
def broadcast_in_dim(site: Site) -> Sequence[Row]:
    """Broadcasting: the new axes are constant."""
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    pairs = [
        (k, j) for j, k in enumerate(site.params["broadcast_dimensions"]) if shape[j] == out[k]
    ]
    return [[relabelled(out, shape, pairs)] + [None] * (len(site.in_avals) - 1)]


@register("transpose")
def transpose(site: Site) -> Sequence[Row]:
    """Permutation of axes."""
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    return [[relabelled(out, shape, enumerate(site.params["permutation"]))]]


@register("squeeze", "expand_dims")
def squeeze(site: Site) -> Sequence[Row]:
    """Axes of size one come or go."""
    return [[_reshape(site.out_avals[0].shape, site.in_avals[0].shape)]]


@register("reshape")
def reshape(site: Site) -> Sequence[Row]:
    """Merging and splitting of axes, those of equal size around them kept apart."""
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    order = site.params["dimensions"]
    if order is None or tuple(order) == tuple(range(len(shape))):
        row: list[Partial | None] = [_reshape(out, shape)]
    else:  # a transpose first, as numpy's order="F" makes it
        row = [selected(out, shape, (), lambda x: lax.reshape(x, out, order))]
    return [row + [None] * (len(site.in_avals) - 1)]


def _reshape(out: Sequence[int], shape: Sequence[int]) -> Partial:
    outs = [k for k, n in enumerate(out) if n != 1]
    ins = [j for j, n in enumerate(shape) if n != 1]
    pairs: list[tuple[int, int]] = []
    # Beside an axis of size 0 others may have any size: what remains must contain it on both sides.
    while outs and ins and out[outs[0]] == shape[ins[0]] > 0:
        pairs.append((outs.pop(0), ins.pop(0)))
    while outs and ins and out[outs[-1]] == shape[ins[-1]] > 0:
        pairs.append((outs.pop(), ins.pop()))
    target = [out[k] for k in range(len(out)) if k not in {p[0] for p in pairs}]
    return selected(out, shape, pairs, lambda x: x.reshape(target))


@register("slice")
def slice_(site: Site) -> Sequence[Row]:
    """Static slices: linked on the axes they cut."""
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    start, limit = site.params["start_indices"], site.params["limit_indices"]
    strides = site.params["strides"] or (1,) * len(shape)
    touched = [k for k in range(len(shape)) if out[k] != shape[k]]

    def cut(x: Array) -> Array:
        pick = [[int(v[k]) for k in touched] for v in (start, limit, strides)]
        return lax.slice(x, *pick)

    action: Action | Affine = cut
    if len(touched) == 1:
        k = touched[0]
        action = canonical(out[k], shape[k], 0, 1, int(start[k]), int(strides[k]), out[k])
    return [[selected(out, shape, same_axes(out, touched), action)]]


@register("rev")
def rev(site: Site) -> Sequence[Row]:
    """Reversal of axes."""
    shape = site.out_avals[0].shape
    touched = sorted(site.params["dimensions"])
    pairs, every = same_axes(shape, touched), tuple(range(len(touched)))
    if len(touched) != 1:
        return [[selected(shape, shape, pairs, lambda x: lax.rev(x, every))]]
    n = shape[touched[0]]
    return [[selected(shape, shape, pairs, canonical(n, n, 0, 1, n - 1, -1, n))]]


@register("pad")
def pad(site: Site) -> Sequence[Row]:
    """Padding, interior and negative too; the padding value reaches every padded entry."""
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    # JAX's own transposes of strided slices pad by NumPy integers.
    config = [(int(low), int(high), int(gap)) for low, high, gap in site.params["padding_config"]]
    touched = [k for k in range(len(shape)) if config[k] != (0, 0, 0)]
    inner = [config[k] for k in touched]

    def padded(x: Array) -> Array:
        return lax.pad(x, jnp.zeros((), x.dtype), inner)

    def mask(_ins: Values, _outs: Values) -> Array:
        dtype = site.out_avals[0].dtype
        hole = lax.pad(jnp.zeros(shape, dtype), jnp.ones((), dtype), config)
        return hole.reshape([n for n in out if n != 1])

    def there(ins: Values, outs: Values) -> Array:
        return mask(ins, outs).astype(bool)

    by_value = make(out, (), out_values=range(len(out)))
    affine = _pad_places(out, shape, config, touched[0]) if len(touched) == 1 else None
    return [
        [
            selected(out, shape, same_axes(out, touched), affine or padded),
            Partial(by_value, by_value, mask, mask=there),
        ]
    ]


def _pad_places(out: Sequence[int], shape: Sequence[int], config: Any, axis: int) -> Affine | None:
    low, high, interior = config[axis]
    if low < 0 or high < 0:
        return None
    return canonical(out[axis], shape[axis], low, interior + 1, 0, 1, shape[axis])


@register("cumsum")
def cumsum(site: Site) -> Sequence[Row]:
    """Cumulative sum along one axis: an operator on it."""
    shape, axis = site.out_avals[0].shape, site.params["axis"]
    reverse = site.params["reverse"]

    def run(x: Array) -> Array:
        return lax.cumsum(x, axis=0, reverse=reverse)

    pairs = same_axes(shape, (axis,))
    return [[selected(shape, shape, pairs, run, Link.OPERATOR)]]


@register("tile")
def tile(site: Site) -> Sequence[Row]:
    """Repetition: an operator on the axes that are repeated."""
    out, shape = site.out_avals[0].shape, site.in_avals[0].shape
    touched = [k for k in range(len(shape)) if out[k] != shape[k]]
    pairs = same_axes(out, touched)
    if all(shape[k] == 1 for k in touched):
        return [[relabelled(out, shape, pairs)]]
    reps = [out[k] // shape[k] for k in touched]
    return [[selected(out, shape, pairs, lambda x: jnp.tile(x, reps), Link.OPERATOR)]]


@register("concatenate")
def concatenate(site: Site) -> Sequence[Row]:
    """Joining along one axis: each operand is a piece of it."""
    out, axis = site.out_avals[0].shape, site.params["dimension"]
    row, start = [], 0
    for aval in site.in_avals:
        size = aval.shape[axis]
        pairs = same_axes(out, () if size == out[axis] else (axis,))
        put = canonical(out[axis], size, start, 1, 0, 1, size)
        row.append(selected(out, aval.shape, pairs, put))
        start += size
    return [row]


@register("split")
def split(site: Site) -> Sequence[Row]:
    """Cutting one axis into pieces."""
    axis, shape = site.params["axis"], site.in_avals[0].shape
    rows, start = [], 0
    for aval in site.out_avals:
        size = aval.shape[axis]
        pairs = same_axes(shape, () if size == shape[axis] else (axis,))
        cut = canonical(size, shape[axis], 0, 1, start, 1, size)
        rows.append([selected(aval.shape, shape, pairs, cut)])
        start += size
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
