"""Unit partials of primitives that move axes, or work on some and leave the others alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from veenv.linear.linear_map import Action, LinearMap, drop_ones, squeezed
from veenv.linear.selection import Affine, Selection
from veenv.rules.base import Partial, Values
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
    """A unit partial whose unpaired axes are linked.

    Args:
      out_shape: shape of the result.
      in_shape: shape of the operand.
      pairs: (out axis, in axis) pairs.
      action: the map on just the other axes, or its places where it selects along one axis.
      kind: what it is.
    """
    return linked(out_shape, in_shape, pairs, lambda _: action, kind)


def linked(
    out_shape: Sequence[int],
    in_shape: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    action_at: Callable[[Values], Action | Affine],
    kind: Link = Link.SELECTION,
) -> Partial:
    """As `selected`, with an action that depends on the values of the operands."""
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
