"""Structure of a partial derivative: which axes are diagonal, and along which values vary.

A partial ∂v/∂u of arrays has v's axes (*out* axes) followed by u's axes (*in* axes) and is
almost never dense.  A `Structure` says, without holding any array:

* **paired** axes: out axis k and in axis j vary together (a Kronecker δ);
* **free** axes: everything else, each either *valued* (the stored values vary along it) or
  constant along it;
* one optional **link** between a group of out axes and a group of in axes.  A *selection* joins
  each index of one side to at most one index of the other (slice, pad, reshape, reverse, sort, a
  piece of a concatenation) and may carry one value for each index of its smaller side.  An
  *operator* is any other linear map, known only by its action (cumulative sum, gather, the
  linearised step of a scan); it never carries values;
* **unit**: there are no stored values at all, every entry the structure admits is +1 or -1 (or,
  through an operator, the entry of that fixed map).

Axes of size one carry no information and are left out.  Sums are here (`add`), products in
`veenv.structure.product`.

Reference: Griewank & Walther, *Evaluating Derivatives* (2008), chapters 9 and 10, for the
elimination rule; the labels are those of an einsum with Kronecker deltas.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from veenv import limits

FREE = -1


class Link(enum.Enum):
    """The kind of dependence between a group of out axes and a group of in axes."""

    NONE = "none"
    SELECTION = "selection"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Structure:
    """Structure of one partial derivative; axes of size one are not represented."""

    out_shape: tuple[int, ...]  # sizes of the out axes (those of the differentiated variable)
    in_shape: tuple[int, ...]  # sizes of the in axes
    pairs: tuple[int, ...]  # for each out axis the in axis it is paired with, or `FREE`
    # for each out axis, whether values vary along it (for a paired axis: along the pair). False on
    # linked axes.
    out_values: tuple[bool, ...]
    # for each in axis, whether values vary along it. False on paired and linked axes.
    in_values: tuple[bool, ...]
    unit: bool  # no values are stored
    link: Link = Link.NONE  # kind of the link, if any
    link_out: tuple[int, ...] = ()  # out axes of the link, ascending
    link_in: tuple[int, ...] = ()  # in axes of the link, ascending
    link_values: bool = False  # a selection carries one value per index of its smaller side

    @property
    def linked_sizes(self) -> tuple[int, int]:
        """Number of indices on the out side and on the in side of the link."""
        return (
            prod(self.out_shape[k] for k in self.link_out),
            prod(self.in_shape[j] for j in self.link_in),
        )

    @property
    def link_size(self) -> int:
        """Number of values a valued selection stores: one per index of its smaller side."""
        return min(self.linked_sizes)

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Shape of the stored values: valued out axes, then the link, then valued in axes."""
        return (
            tuple(n for n, v in zip(self.out_shape, self.out_values, strict=True) if v)
            + ((self.link_size,) if self.link_values else ())
            + tuple(n for n, v in zip(self.in_shape, self.in_values, strict=True) if v)
        )

    @property
    def num_values(self) -> int:
        """Number of stored values; zero for a unit structure."""
        return 0 if self.unit else prod(self.value_shape)

    @property
    def num_entries(self) -> int:
        """Number of entries that are not known to be zero or ±1; of an operator none is known."""
        if self.unit or self.link is Link.OPERATOR:
            return 0
        paired = {*self.pairs, *self.link_in}
        free = (n for j, n in enumerate(self.in_shape) if j not in paired)
        outs = (n for k, n in enumerate(self.out_shape) if k not in self.link_out)
        return prod(outs) * prod(free) * self.link_size

    def describe(self) -> str:
        """Returns a text ``out,in:values``: repeated letters are δs, ``[..]`` is a linked axis."""
        letters = iter("ijklmnopqrstuvwxyzabcdefgh")
        ins = [""] * len(self.in_shape)
        outs, values = "", ""
        for k, j in enumerate(self.pairs):
            name = f"[{next(letters)}]" if k in self.link_out else next(letters)
            outs += name
            values += name if self.out_values[k] else ""
            if j != FREE:
                ins[j] = name
        values += "t" if self.link_values else ""
        for j in range(len(self.in_shape)):
            if not ins[j]:
                ins[j] = f"[{next(letters)}]" if j in self.link_in else next(letters)
                values += ins[j] if self.in_values[j] else ""
        return f"{outs},{''.join(ins)}:{'unit' if self.unit else values or '()'}"


def make(
    out_shape: Sequence[int],
    in_shape: Sequence[int],
    pairs: Sequence[tuple[int, int]] = (),
    *,
    out_values: Sequence[int] = (),
    in_values: Sequence[int] = (),
    unit: bool = False,
    link: Link = Link.NONE,
    link_out: Sequence[int] = (),
    link_in: Sequence[int] = (),
) -> Structure:
    """Builds a structure over full shapes; axes of size one are dropped.

    Args:
      out_shape: shape of the differentiated variable.
      in_shape: shape of the variable it is differentiated by.
      pairs: (out axis, in axis) pairs of equal size that are diagonal.
      out_values: out axes (paired or free) along which values vary.
      in_values: free in axes along which values vary.
      unit: no stored values (then no axis is valued).
      link: kind of the link between `link_out` and `link_in`.
      link_out: linked out axes.
      link_in: linked in axes.

    Returns:
      The structure.

    Raises:
      ValueError: if a pair joins axes of different sizes, or a unit structure has valued axes.
    """
    partner = dict(pairs)
    for k, j in partner.items():
        if out_shape[k] != in_shape[j]:
            raise ValueError(
                f"paired axes must have one size, got out axis {k} of {tuple(out_shape)} and in "
                f"axis {j} of {tuple(in_shape)}"
            )
    outs = [k for k, n in enumerate(out_shape) if n != 1]
    ins = [j for j, n in enumerate(in_shape) if n != 1]
    out_flags = tuple(k in out_values for k in outs)
    in_flags = tuple(j in in_values for j in ins)
    if unit and (any(out_flags) or any(in_flags)):
        raise ValueError("a unit structure has no valued axes")
    linked_out = tuple(i for i, k in enumerate(outs) if k in link_out)
    linked_in = tuple(i for i, j in enumerate(ins) if j in link_in)
    return Structure(
        tuple(out_shape[k] for k in outs),
        tuple(in_shape[j] for j in ins),
        tuple(ins.index(partner[k]) if k in partner else FREE for k in outs),
        out_flags,
        in_flags,
        unit,
        link if linked_out or linked_in else Link.NONE,
        linked_out,
        linked_in,
    )


def diagonal(shape: Sequence[int], *, valued: bool) -> Structure:
    """Returns the structure of an elementwise map on `shape`: all axes paired; valued or unit."""
    axes = range(len(shape))
    return make(
        shape, shape, [(k, k) for k in axes], out_values=axes if valued else (), unit=not valued
    )


def scaled(shape: Sequence[int]) -> Structure:
    """Returns the structure of a multiplication by one number: all axes paired, one value."""
    return make(shape, shape, [(k, k) for k in range(len(shape))])


def dense(out_shape: Sequence[int], in_shape: Sequence[int]) -> Structure:
    """Returns the structure of a full matrix: every axis free and valued."""
    return make(
        out_shape, in_shape, out_values=range(len(out_shape)), in_values=range(len(in_shape))
    )


def stored(s: Structure) -> Structure:
    """Returns the structure with one stored value if it is unit."""
    return replace(s, unit=False)


def expand_pairs(s: Structure, axes: Sequence[int]) -> Structure:
    """Stores the zeros of the δs at out axes `axes`: both axes of each become free and valued."""
    if not axes:
        return s
    pairs, outs, ins = list(s.pairs), list(s.out_values), list(s.in_values)
    for k in axes:
        ins[pairs[k]] = True
        outs[k] = True
        pairs[k] = FREE
    return replace(s, pairs=tuple(pairs), out_values=tuple(outs), in_values=tuple(ins), unit=False)


def expand_link(s: Structure, deltas: Sequence[tuple[int, int]] = ()) -> Structure:
    """Stores the zeros of the link: its axes become free and valued, except `deltas`."""
    if s.link is Link.NONE:
        return s
    partner = dict(deltas)
    paired = {*partner.values()}
    return replace(
        s,
        pairs=tuple(partner.get(k, j) for k, j in enumerate(s.pairs)),
        out_values=tuple(v or k in s.link_out for k, v in enumerate(s.out_values)),
        in_values=tuple(
            v or (j in s.link_in and j not in paired) for j, v in enumerate(s.in_values)
        ),
        unit=False,
        link=Link.NONE,
        link_out=(),
        link_in=(),
        link_values=False,
    )


def absorb(s: Structure, axes: Sequence[int]) -> Structure:
    """Moves the δs at out axes `axes` into the link, as part of its selection."""
    if not axes:
        return s
    return replace(
        s,
        pairs=tuple(FREE if k in axes else j for k, j in enumerate(s.pairs)),
        out_values=tuple(v and k not in axes for k, v in enumerate(s.out_values)),
        link=Link.SELECTION if s.link is Link.NONE else s.link,
        link_out=tuple(sorted({*s.link_out, *axes})),
        link_in=tuple(sorted({*s.link_in, *(s.pairs[k] for k in axes)})),
        link_values=s.link_values or any(s.out_values[k] for k in axes),
    )


@lru_cache(limits.MANY * limits.REMEMBERED)
def add(a: Structure, b: Structure) -> Structure:
    """Returns the structure of the sum of two partials between the same two variables.

    The δs that both terms have stay; the other δs and every link become dense; an axis is valued
    if it is in either term.  A sum is never unit.
    """
    if (a.out_shape, a.in_shape) != (b.out_shape, b.in_shape):
        raise ValueError(f"cannot add partials of different shapes: {a} and {b}")
    a, b = expand_link(a), expand_link(b)
    differ = [k for k, (x, y) in enumerate(zip(a.pairs, b.pairs, strict=True)) if x != y]
    a = expand_pairs(a, [k for k in differ if a.pairs[k] != FREE])
    b = expand_pairs(b, [k for k in differ if b.pairs[k] != FREE])
    return replace(
        a,
        out_values=tuple(x or y for x, y in zip(a.out_values, b.out_values, strict=True)),
        in_values=tuple(x or y for x, y in zip(a.in_values, b.in_values, strict=True)),
        unit=False,
    )


def transpose(s: Structure) -> Structure:
    """Returns the structure with out and in exchanged."""
    partner = {j: k for k, j in enumerate(s.pairs) if j != FREE}
    return Structure(
        s.in_shape,
        s.out_shape,
        tuple(partner.get(j, FREE) for j in range(len(s.in_shape))),
        tuple(s.out_values[partner[j]] if j in partner else v for j, v in enumerate(s.in_values)),
        tuple(v and s.pairs[k] == FREE for k, v in enumerate(s.out_values)),
        s.unit,
        s.link,
        s.link_in,
        s.link_out,
        s.link_values,
    )
