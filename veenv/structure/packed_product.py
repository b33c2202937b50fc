"""Products of structures as integers, with their cost, computed without branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from veenv.structure.axis_sets import (
    break_in,
    break_out,
    contract,
    int32,
    nonzero,
    smaller,
    volume,
)
from veenv.structure.packed import (
    ALL,
    IN,
    LINK_IN,
    LINK_OUT,
    MAX_RANK,
    OPERATOR,
    OUT,
    PAIRS,
    PRESENT,
    expand_link,
)

_Sizes: TypeAlias = tuple[Any, Any, Any]
"""Sizes of the axes of w, v and u, as `multiply` has them."""


def multiply(
    post: Any,
    pre: Any,
    sizes_out: Any,
    sizes_mid: Any,
    sizes_in: Any,
    rank: int = MAX_RANK,
    links: bool = True,
    counted: Callable[[Any], Any] = int32,
) -> tuple[Any, Any, Any]:
    """Multiplies post · pre: `veenv.structure.product.multiply` on integers.

    Args:
      post: code of the edge v → w.
      pre: code of the edge u → v.
      sizes_out: ``sizes_out[k]`` is the size of axis k < rank of w, 1 if there is none.
      sizes_mid: the same of v.
      sizes_in: the same of u.
      rank: no variable has more axes.
      links: False if no edge of the graph is linked (then no product is).
      counted: makes what counts are kept in of an int32: numbers that int32 can be multiplied
        with, for counts that may pass it. The size of a variable may not.

    Returns:
      The code of the edge u → w, and the numbers of multiplications and of additions.
      Meaningless if a code is 0.

    Examples:
      >>> from veenv.structure import dense, diagonal
      >>> from veenv.structure.packed import pack, unpack
      >>> matrix, scale = pack(dense((2,), (3,))), pack(diagonal((3,), valued=True))
      >>> code, count, additions = multiply(matrix, scale, *((n, 1, 1, 1) for n in (2, 3, 3)))
      >>> unpack(int(code), (2,), (3,)).describe(), int(count), int(additions)
      ('i,j:ij', 6, 0)
    """
    sizes = sizes_out, sizes_mid, sizes_in
    if links:
        return _multiply_linked(post, pre, sizes, rank, counted)
    outs, ins = post >> OUT & ALL, pre >> IN & ALL
    outer = counted(volume(outs, sizes_out, rank))
    pre_outer = counted(volume(ins, sizes_in, rank))
    left = _Factor(post >> PAIRS, outs, post >> IN & ALL, outer, post >> 1 & 1)
    right = _Factor(pre >> PAIRS, ins, pre >> OUT & ALL, pre_outer, pre >> 1 & 1)
    unlinked = (post & 0) | ALL
    return _contract(left, right, unlinked, 1, sizes, rank, counted)


class _Factor(NamedTuple):
    """A factor of a product, its link (if any) applied to the other one or made an axis of both."""

    pairs: Any  # its δs
    # axes on its outer side (out of the left factor, in of the right) that values vary along
    ends: Any
    mids: Any  # middle axes that values vary along
    outer: Any  # number of values for each index of the middle axes
    valued: Any  # 1 if it has values


def _contract(
    left: _Factor,
    right: _Factor,
    unlinked: Any,
    link_values: Any,
    sizes: _Sizes,
    rank: int,
    counted: Callable[[Any], Any],
) -> tuple[Any, Any, Any]:
    """Returns code without link, multiplications and additions of a product.

    Args:
      left: the factor post.
      right: the factor pre.
      unlinked: the middle axes without a link.
      link_values: number of values that the product has along its link, 1 without one.
      sizes: those of w's, v's and u's axes.
      rank: no variable has more axes.
      counted: as for `multiply`.
    """
    sizes_out, sizes_mid, sizes_in = sizes
    pairs, outs, ins, summed, scale, unpaired = contract(
        left.pairs, left.ends, left.mids, right.pairs, right.mids, right.ends,
        unlinked, sizes_mid, rank,
    )  # fmt: skip
    scaled = nonzero(scale ^ 1)
    values = counted(volume(outs, sizes_out, rank)) * volume(ins, sizes_in, rank) * link_values
    both, one = left.valued & right.valued, left.valued ^ right.valued
    times = values * summed + left.outer * volume(left.mids, sizes_mid, rank) * scaled
    count = times * both + values * (one & scaled)
    additions = values * (summed - nonzero(summed)) * both
    for factor, other in ((left, right), (right, left)):
        # Along middle axes where the other is constant a factor is summed alone.
        alone = unpaired & ~other.mids
        before = volume(factor.mids, sizes_mid, rank)
        after = volume(factor.mids & ~alone, sizes_mid, rank)
        additions += factor.outer * ((before - after) * nonzero(before) * factor.valued)
    valued = both | one | scaled
    code = pairs << PAIRS | outs << OUT | ins << IN | valued << 1 | PRESENT
    return code, count, additions


def _multiply_linked(
    post: Any, pre: Any, sizes: _Sizes, rank: int, counted: Callable[[Any], Any]
) -> tuple[Any, Any, Any]:
    """Multiplies factors with links, which are composed where they meet, else pushed through."""
    sizes_out, _, sizes_in = sizes
    post, pre = _without_conflict(post, pre, rank)
    compose = _composable(post, pre, rank)
    push = 1 - compose
    outs, mids = post >> OUT & ALL, post >> IN & ALL
    pre_mids, ins = pre >> OUT & ALL, pre >> IN & ALL
    drop = (post >> LINK_IN | pre >> LINK_OUT) & ALL
    pairs, freed_out = break_out(post >> PAIRS, drop, rank)
    pre_pairs, freed_in = break_in(pre >> PAIRS, drop, rank)
    link_out, link_in = post >> LINK_OUT & ALL, pre >> LINK_IN & ALL
    # Axes at the ends of the product's link if it is composed, else dense.
    out, into = link_out | freed_out, link_in | freed_in
    end_out, end_in = out * compose, into * compose
    size = smaller(volume(end_out, sizes_out, rank), volume(end_in, sizes_in, rank))
    on_post = nonzero(outs & end_out | mids & drop * compose)
    on_pre = nonzero(pre_mids & drop * compose | ins & end_in)
    # A link that is pushed leaves its values where they are; the other factor varies along its end.
    outer = counted(volume(outs & ~end_out | freed_out * push, sizes_out, rank))
    outer *= volume(link_in * push, sizes_in, rank) * (1 + (size - 1) * on_post)
    pre_outer = counted(volume(ins & ~end_in | freed_in * push, sizes_in, rank))
    pre_outer *= volume(link_out * push, sizes_out, rank) * (1 + (size - 1) * on_pre)
    valued = post >> 1 & 1 | push & nonzero(pre >> LINK_OUT & 255)
    pre_valued = pre >> 1 & 1 | push & nonzero(post >> LINK_OUT & 255)
    code, count, additions = _contract(
        _Factor(pairs, outs & ~out | out * push, mids & ~drop, outer, valued),
        _Factor(pre_pairs, ins & ~into | into * push, pre_mids & ~drop, pre_outer, pre_valued),
        ALL & ~drop, 1 + (size - 1) * (on_post | on_pre), sizes, rank, counted,
    )  # fmt: skip
    carries = (on_post | on_pre) & nonzero(size ^ 1)
    link = end_out << LINK_OUT | end_in << LINK_IN
    link |= carries * (end_out << OUT | end_in << IN)
    link |= ((post | pre) >> OPERATOR & nonzero(end_out | end_in)) << OPERATOR
    return code | link, count, additions


def _without_conflict(post: Any, pre: Any, rank: int) -> tuple[Any, Any]:
    """Expands one of two links that do not compose, and returns the factors."""
    both = nonzero(post >> LINK_OUT & 255) & nonzero(pre >> LINK_OUT & 255)
    conflict = both & ~_composable(post, pre, rank)
    operator = post >> OPERATOR & 1
    post += (expand_link(post) - post) * (conflict & ~operator)
    pre += (expand_link(pre) - pre) * (conflict & operator)
    return post, pre


def _composable(post: Any, pre: Any, rank: int) -> Any:
    """Returns 1 where the links, if any, become one (`product.absorbable`), else 0."""
    post_link, pre_link = post >> LINK_IN & ALL, pre >> LINK_OUT & ALL
    middle = post_link | pre_link
    covered_post, covered_pre, absorbed_out = post_link, pre_link, post & 0
    for k in range(rank):
        m = post >> (PAIRS + 3 * k) & 7
        covered_post |= (1 << m) >> 1
        absorbed_out |= ((middle << 1) >> m & 1) << k
        covered_pre |= nonzero(pre >> (PAIRS + 3 * k) & 7) << k
    # A link's values are flagged on both of its sides.
    values = post >> OUT & absorbed_out | post >> IN & post_link | pre >> OUT & middle
    operator = (post | pre) >> OPERATOR & 1
    uncovered = middle & ~(covered_post & covered_pre)
    ends = absorbed_out | middle & ~pre_link | post >> LINK_OUT & ALL | pre >> LINK_IN & ALL
    fails = nonzero(uncovered) | operator & nonzero(values) | nonzero(middle) & ~nonzero(ends)
    return 1 - fails
