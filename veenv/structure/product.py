"""Products of structures: the chain rule along u → v → w, and its cost.

The product post · pre of two edges has a structure, and takes a number of scalar multiplications:
the product of the sizes of all labels that the two value arrays carry, zero if one of them is
unit.  Links that meet on the same axes compose; a link that meets free axes is applied to them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from veenv import limits
from veenv.structure.structure import (
    FREE,
    Link,
    Structure,
    absorb,
    expand_link,
    expand_pairs,
    transpose,
)

Label = tuple[str, int]
"""An axis of an edge's values: ("out", k), ("in", j) or ("link", 0)."""


def labels_of(s: Structure) -> list[Label]:
    """Returns labels of the axes of a structure's values, in storage order."""
    labels: list[Label] = [("out", k) for k, v in enumerate(s.out_values) if v]
    if s.link_values:
        labels.append(("link", 0))
    return labels + [("in", j) for j, v in enumerate(s.in_values) if v]


def sizes_of(s: Structure) -> dict[Label, int]:
    """Returns the size of every label of a structure."""
    sizes: dict[Label, int] = {("out", k): n for k, n in enumerate(s.out_shape)}
    sizes.update({("in", j): n for j, n in enumerate(s.in_shape)})
    if s.link is not Link.NONE:
        sizes[("link", 0)] = s.link_size
    return sizes


@dataclass(frozen=True, slots=True)
class Contraction:
    """The multiplication of two structures' values, links out of the way, and its cost."""

    post: Structure  # the left factor
    pre: Structure  # the right factor
    structure: Structure  # the product
    # product of the sizes of the middle axes along which both factors are constant; it scales
    # every entry
    scale: int
    multiplications: int  # scalar multiplications it takes
    additions: int  # scalar additions it takes

    def labels(self) -> tuple[list[Label], list[Label], list[Label]]:
        """Returns labels of the axes of post's, pre's and the product's values.

        Axes that a δ joins have one label; labels that the product has not are summed.
        """
        s, p, result = self.post, self.pre, self.structure
        outs: list[Label] = [("out", k) for k in range(len(s.out_shape))]
        ins: list[Label] = [("in", j) for j in range(len(p.in_shape))]
        for k, j in enumerate(result.pairs):
            if j != FREE:
                ins[j] = outs[k]
        middle: list[Label] = [("mid", m) for m in range(len(s.in_shape))]
        for k, m in enumerate(s.pairs):
            if m != FREE:
                middle[m] = outs[k]
        for m, j in enumerate(p.pairs):
            if j != FREE and middle[m][0] == "mid":
                middle[m] = ins[j]
        return (
            [outs[i] if side == "out" else middle[i] for side, i in labels_of(s)],
            [middle[i] if side == "out" else ins[i] for side, i in labels_of(p)],
            [ins[i] if side == "in" else (side, i) for side, i in labels_of(result)],
        )


def contract(post: Structure, pre: Structure) -> Contraction:
    """Multiplies two structures without links."""
    pairs, outs = [], []
    ins = [v and j not in pre.pairs for j, v in enumerate(pre.in_values)]
    for k, m in enumerate(post.pairs):
        value = post.out_values[k]
        if m == FREE:
            pairs.append(FREE)
        else:
            pairs.append(pre.pairs[m])
            value |= pre.out_values[m]
        outs.append(value)
    summed, scale = 1, 1
    diagonal_post = set(post.pairs)
    for m, n in enumerate(post.in_shape):
        if m in diagonal_post:
            continue
        if pre.pairs[m] != FREE:
            ins[pre.pairs[m]] = pre.out_values[m] or post.in_values[m]
        elif post.in_values[m] and pre.out_values[m]:
            summed *= n
        elif not post.in_values[m] and not pre.out_values[m]:
            scale *= n
    result = Structure(
        post.out_shape,
        pre.in_shape,
        tuple(pairs),
        tuple(outs),
        tuple(ins),
        post.unit and pre.unit and scale == 1,
    )
    count = 0
    if not (post.unit or pre.unit):
        count = result.num_values * summed + (post.num_values if scale != 1 else 0)
    elif scale != 1 and not (post.unit and pre.unit):
        count = result.num_values
    additions = _additions(post, pre, result, summed)
    return Contraction(post, pre, result, scale, count, additions)


def _additions(post: Structure, pre: Structure, result: Structure, summed: int) -> int:
    """Counts additions: axes valued in one factor are summed there, the others jointly."""
    total = 0
    middle = [m for m, j in enumerate(pre.pairs) if j == FREE and m not in post.pairs]
    valued = post.in_values, pre.out_values
    for factor, varies, other in ((post, *valued), (pre, *valued[::-1])):
        if not factor.unit:
            alone = prod(post.in_shape[m] for m in middle if varies[m] and not other[m])
            total += factor.num_values - factor.num_values // max(alone, 1)
    return total + (result.num_values * (summed - 1) if summed else 0)


class Way(enum.Enum):
    """The treatment of two factors' links before their values are multiplied."""

    CONTRACT = "neither factor has a link"
    COMPOSE = "both links meet and become one"
    PUSH_LEFT = "post's link is applied to pre"
    PUSH_RIGHT = "the transpose of pre's link is applied to post"


@dataclass(frozen=True, slots=True)
class Plan:
    """The execution plan of a product, with its cost."""

    structure: Structure  # structure of the product
    contraction: Contraction  # how the values are multiplied, links out of the way
    way: Way = Way.CONTRACT  # treatment of the links
    # the δs, out axes of post and of pre, that become part of links before they compose
    absorbed: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    # whether the zeros of post's link, and of pre's, are stored first
    expanded: tuple[bool, bool] = (False, False)

    @property
    def multiplications(self) -> int:
        """Number of scalar multiplications."""
        return self.contraction.multiplications

    @property
    def additions(self) -> int:
        """Number of scalar additions, without those of the linear maps of links."""
        return self.contraction.additions

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return self.multiplications + self.additions


Pairs = tuple[tuple[int, int], ...]


def absorbable(post: Structure, pre: Structure) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the δs to absorb so that the links of post and pre meet on the same middle axes.

    None if they cannot compose: a linked axis of one side is free on the other, an operator would
    have to carry values, or no linked axis would remain (an entry picked out of a piece put in
    elsewhere may be zero, so it is a value).
    """
    middle = {*post.link_in, *pre.link_out}
    post_axes = [k for k, m in enumerate(post.pairs) if m in middle]
    pre_axes = [m for m in sorted(middle - {*pre.link_out}) if pre.pairs[m] != FREE]
    if len(post_axes) + len(post.link_in) != len(middle):
        return None
    if len(pre_axes) + len(pre.link_out) != len(middle):
        return None
    if Link.OPERATOR in (post.link, pre.link) and (
        post.link_values
        or pre.link_values
        or any(post.out_values[k] for k in post_axes)
        or any(pre.out_values[m] for m in pre_axes)
    ):
        return None
    if not (post.link_out or post_axes or pre.link_in or pre_axes):
        return None
    return tuple(post_axes), tuple(pre_axes)


@lru_cache(limits.MANY * limits.REMEMBERED)
def multiply(
    post: Structure, pre: Structure, post_deltas: Pairs = (), pre_deltas: Pairs = ()
) -> Plan:
    """Returns the plan of post · pre: its structure, execution and cost.

    With `labels(s)` the sizes along which s's values vary, the count is the product of the sizes
    in labels(result) and of the summed middle axes along which both vary; zero if either is unit.
    A middle axis constant in both contributes its size as a factor, which is one multiplication
    of every value it scales.  Along the pairs `post_deltas` and `pre_deltas` links are known to be
    diagonal, which structures do not say: δs there stay δs.
    """
    if post.in_shape != pre.out_shape:
        raise ValueError(f"in shape {post.in_shape} of post is not out shape {pre.out_shape}")
    if post.link is Link.NONE and pre.link is Link.NONE:
        way, factors = Way.CONTRACT, (post, pre)
    else:
        axes = absorbable(post, pre)
        if axes is not None:
            return replace(compose(absorb(post, axes[0]), absorb(pre, axes[1])), absorbed=axes)
        if post.link is not Link.NONE and pre.link is not Link.NONE:
            if post.link is Link.OPERATOR:
                plan = multiply(post, expand_link(pre, pre_deltas), post_deltas)
                return replace(plan, expanded=(False, True))
            return replace(multiply(expand_link(post), pre, (), pre_deltas), expanded=(True, False))
        if post.link is not Link.NONE:
            way, factors = Way.PUSH_LEFT, push_left(post, pre, post_deltas)
        else:
            way, factors = Way.PUSH_RIGHT, push_right(post, pre, pre_deltas)
    contraction = contract(*factors)
    return Plan(contraction.structure, contraction, way)


def push_left(
    post: Structure, pre: Structure, deltas: Sequence[tuple[int, int]] = ()
) -> tuple[Structure, Structure]:
    """Applies post's link to pre's out axes: post keeps a δ on the link's out axes instead.

    Along the pairs `deltas` the link is diagonal, and pre's δs stay.
    """
    through = {k: pre.pairs[m] for k, m in deltas}
    stay = {m for _, m in deltas}
    broken = [m for m in post.link_in if pre.pairs[m] != FREE and m not in stay]
    pre = expand_pairs(pre, broken)
    keep = [m for m in range(len(pre.out_shape)) if m not in post.link_in]
    where = {m: i for i, m in enumerate(keep)}
    new_middle = {k: len(keep) + i for i, k in enumerate(post.link_out)}
    sizes = tuple(post.out_shape[k] for k in post.link_out)
    new_pre = replace(
        pre,
        out_shape=tuple(pre.out_shape[m] for m in keep) + sizes,
        pairs=tuple(pre.pairs[m] for m in keep)
        + tuple(through.get(k, FREE) for k in post.link_out),
        out_values=tuple(pre.out_values[m] for m in keep) + (True,) * len(sizes),
        unit=False,
    )
    new_post = replace(
        post,
        in_shape=new_pre.out_shape,
        pairs=tuple(
            new_middle[k] if k in new_middle else where.get(m, FREE)
            for k, m in enumerate(post.pairs)
        ),
        out_values=tuple(
            v or (k in new_middle and post.link_values) for k, v in enumerate(post.out_values)
        ),
        in_values=tuple(post.in_values[m] for m in keep) + (False,) * len(sizes),
        link=Link.NONE,
        link_out=(),
        link_in=(),
        link_values=False,
    )
    return new_post, new_pre


def push_right(
    post: Structure, pre: Structure, deltas: Sequence[tuple[int, int]] = ()
) -> tuple[Structure, Structure]:
    """Applies the transpose of pre's link to post's in axes: pre keeps a δ on its in axes."""
    flipped = [(j, m) for m, j in deltas]
    right, left = push_left(transpose(pre), transpose(post), flipped)
    return transpose(left), transpose(right)


def compose(post: Structure, pre: Structure) -> Plan:
    """Multiplies two structures whose links meet on the same middle axes.

    The two links become one, whose values lie on its smaller side; in the count that side is one
    more paired axis.
    """
    size = min(post.linked_sizes[0], pre.linked_sizes[1])
    inner = contract(link_as_axis(post, size), link_as_axis(pre, size))
    plain = inner.structure
    outs = [k for k in range(len(post.out_shape)) if k not in post.link_out]
    ins = [j for j in range(len(pre.in_shape)) if j not in pre.link_in]
    # The last axis of the plain product stands for the link.
    pairs = {k: ins[j] for k, j in zip(outs, plain.pairs[:-1], strict=True) if j != FREE}
    out_values = dict(zip(outs, plain.out_values[:-1], strict=True))
    in_values = dict(zip(ins, plain.in_values[:-1], strict=True))
    operator = Link.OPERATOR in (post.link, pre.link)
    result = Structure(
        post.out_shape,
        pre.in_shape,
        tuple(pairs.get(k, FREE) for k in range(len(post.out_shape))),
        tuple(out_values.get(k, False) for k in range(len(post.out_shape))),
        tuple(in_values.get(j, False) for j in range(len(pre.in_shape))),
        plain.unit,
        Link.OPERATOR if operator else Link.SELECTION,
        post.link_out,
        pre.link_in,
        plain.out_values[-1] and size != 1,
    )
    return Plan(result, inner, Way.COMPOSE)


def link_as_axis(s: Structure, size: int) -> Structure:
    """Replaces the linked axes by one last paired axis of `size`."""
    keep_out = [k for k in range(len(s.out_shape)) if k not in s.link_out]
    keep_in = [j for j in range(len(s.in_shape)) if j not in s.link_in]
    where = {j: i for i, j in enumerate(keep_in)}
    return Structure(
        tuple(s.out_shape[k] for k in keep_out) + (size,),
        tuple(s.in_shape[j] for j in keep_in) + (size,),
        tuple(where.get(s.pairs[k], FREE) for k in keep_out) + (len(keep_in),),
        tuple(s.out_values[k] for k in keep_out) + (s.link_values,),
        tuple(s.in_values[j] for j in keep_in) + (False,),
        s.unit,
    )
