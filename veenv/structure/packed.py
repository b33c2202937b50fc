"""Structures as single integers: the algebra of `veenv.structure` without branches.

A structure of variables with at most four axes (axes of size one left out, as always) is one
non-negative int32:

===== ==========================================================================================
bits  meaning
===== ==========================================================================================
0     1: there is an edge (so that 0 means none)
1     values are stored (not unit)
2-13  three bits for each out axis: 0 if free or linked, else 1 + the in axis it is paired with
14-17 for each out axis: values vary along it (if it is linked: the link carries values)
18-21 for each in axis: values vary along it (if it is linked: the link carries values)
22-25 for each out axis: it is linked
26-29 for each in axis: it is linked
30    the link is an operator (else a selection)
===== ==========================================================================================

The sizes of the axes are not part of the code; `multiply` is given them.  `multiply` and `add` use
only integer arithmetic and loops over axes, so that the same functions run on Python ints, on
arrays of NumPy and JAX (elementwise), and inside Numba (after `register_numba`).  A set of axes is
a *mask*, bit k for axis k.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from veenv.structure.axis_sets import break_in, break_out, contract, nonzero, smaller, volume
from veenv.structure.structure import FREE, Link, Structure

MAX_RANK = 4

PRESENT, VALUED = 1, 2
_PAIRS, _OUT, _IN, _LINK_OUT, _LINK_IN, _OPERATOR = 2, 14, 18, 22, 26, 30
_ALL = (1 << MAX_RANK) - 1


def pack(s: Structure) -> int:
    """The integer of a structure; sizes do not enter.

    Args:
      s: the structure.

    Returns:
      A positive integer below 2³¹.

    Raises:
      ValueError: if a variable has more than four axes (of size other than one).

    Example:
      >>> from veenv.structure import diagonal
      >>> pack(diagonal((3,), valued=True)) == pack(diagonal((5,), valued=True))
      True
    """
    rank = max(len(s.out_shape), len(s.in_shape))
    if rank > MAX_RANK:
        raise ValueError(
            f"an edge is packed for at most {MAX_RANK} axes a variable, got {s.out_shape} by "
            f"{s.in_shape}"
        )
    code = PRESENT | (0 if s.unit else VALUED)
    for k, j in enumerate(s.pairs):
        code |= (0 if j == FREE else j + 1) << (_PAIRS + 3 * k)
        code |= (s.out_values[k] or (s.link_values and k in s.link_out)) << (_OUT + k)
    for j, valued in enumerate(s.in_values):
        code |= (valued or (s.link_values and j in s.link_in)) << (_IN + j)
    code |= sum(1 << k for k in s.link_out) << _LINK_OUT
    code |= sum(1 << j for j in s.link_in) << _LINK_IN
    return code | (s.link is Link.OPERATOR) << _OPERATOR


def unpack(code: int, out_shape: tuple[int, ...], in_shape: tuple[int, ...]) -> Structure:
    """The structure of an integer (not 0) over shapes without axes of size one.

    Args:
      code: the integer.
      out_shape: sizes of the out axes.
      in_shape: sizes of the in axes.

    Example:
      >>> from veenv.structure import diagonal
      >>> unpack(pack(diagonal((3,), valued=True)), (3,), (3,)).describe()
      'i,i:i'
    """
    outs, ins = range(len(out_shape)), range(len(in_shape))
    link_out = tuple(k for k in outs if code >> (_LINK_OUT + k) & 1)
    link_in = tuple(j for j in ins if code >> (_LINK_IN + j) & 1)
    flags_out = [bool(code >> (_OUT + k) & 1) for k in outs]
    flags_in = [bool(code >> (_IN + j) & 1) for j in ins]
    link = Link.OPERATOR if code >> _OPERATOR & 1 else Link.SELECTION
    return Structure(
        out_shape,
        in_shape,
        tuple((code >> (_PAIRS + 3 * k) & 7) - 1 for k in outs),
        tuple(v and k not in link_out for k, v in enumerate(flags_out)),
        tuple(v and j not in link_in for j, v in enumerate(flags_in)),
        not code & VALUED,
        link if link_out or link_in else Link.NONE,
        link_out,
        link_in,
        any(flags_out[k] for k in link_out) or any(flags_in[j] for j in link_in),
    )


def multiply(
    post: Any,
    pre: Any,
    sizes_out: Any,
    sizes_mid: Any,
    sizes_in: Any,
    rank: int = MAX_RANK,
    links: bool = True,
) -> tuple[Any, Any, Any]:
    """Product post · pre: `veenv.structure.product.multiply` on integers.

    Args:
      post: code of the edge v → w.
      pre: code of the edge u → v.
      sizes_out: ``sizes_out[k]`` is the size of axis k < rank of w, 1 if there is none.
      sizes_mid: the same of v.
      sizes_in: the same of u.
      rank: no variable has more axes.
      links: False if no edge of the graph is linked (then no product is).

    Returns:
      The code of the edge u → w, and the numbers of multiplications and of additions.
      Meaningless if a code is 0.

    Example:
      >>> from veenv.structure import dense, diagonal
      >>> matrix, scale = pack(dense((2,), (3,))), pack(diagonal((3,), valued=True))
      >>> code, count, additions = multiply(matrix, scale, *((n, 1, 1, 1) for n in (2, 3, 3)))
      >>> unpack(int(code), (2,), (3,)).describe(), int(count), int(additions)
      ('i,j:ij', 6, 0)
    """
    if links:
        return _multiply_linked(post, pre, sizes_out, sizes_mid, sizes_in, rank)
    outs, mids = post >> _OUT & _ALL, post >> _IN & _ALL
    pre_mids, ins = pre >> _OUT & _ALL, pre >> _IN & _ALL
    pairs, result_out, result_in, summed, scale, unpaired = contract(
        post >> _PAIRS, outs, mids, pre >> _PAIRS, pre_mids, ins,
        (post & 0) | _ALL, sizes_mid, rank,
    )  # fmt: skip
    scaled = nonzero(scale ^ 1)
    post_valued, pre_valued = post >> 1 & 1, pre >> 1 & 1
    values = volume(result_out, sizes_out, rank) * volume(result_in, sizes_in, rank)
    post_outer, pre_outer = volume(outs, sizes_out, rank), volume(ins, sizes_in, rank)
    post_values = post_outer * volume(mids, sizes_mid, rank)
    count = _count(post_valued, pre_valued, scaled, values, summed, post_values)
    additions = (
        post_valued * _summed_alone(post_outer, mids, pre_mids, unpaired, sizes_mid, rank)
        + pre_valued * _summed_alone(pre_outer, pre_mids, mids, unpaired, sizes_mid, rank)
        + (post_valued & pre_valued) * values * (summed - nonzero(summed))
    )
    valued = post_valued | pre_valued | scaled
    code = pairs << _PAIRS | result_out << _OUT | result_in << _IN | valued << 1 | PRESENT
    return code, count, additions


def _multiply_linked(
    post: Any, pre: Any, sizes_out: Any, sizes_mid: Any, sizes_in: Any, rank: int
) -> tuple[Any, Any, Any]:
    """`multiply` where there may be links: composed where they meet, else pushed through."""
    both = nonzero(post >> _LINK_OUT & 255) & nonzero(pre >> _LINK_OUT & 255)
    conflict = both & (1 - _composable(post, pre, rank))
    operator = post >> _OPERATOR & 1
    post += (expand_link(post) - post) * (conflict & (1 - operator))
    pre += (expand_link(pre) - pre) * (conflict & operator)
    compose = _composable(post, pre, rank)
    push = 1 - compose
    outs, post_mids = post >> _OUT & _ALL, post >> _IN & _ALL
    pre_mids, ins = pre >> _OUT & _ALL, pre >> _IN & _ALL
    drop = (post >> _LINK_IN | pre >> _LINK_OUT) & _ALL
    post_pairs, freed_out = break_out(post >> _PAIRS, drop, rank)
    pre_pairs, freed_in = break_in(pre >> _PAIRS, drop, rank)
    # Axes at the ends of the product's link if it is composed, else dense.
    end_out = post >> _LINK_OUT & _ALL | freed_out
    end_in = pre >> _LINK_IN & _ALL | freed_in
    post_link_values = nonzero(outs & end_out | post_mids & drop) & compose
    pre_link_values = nonzero(pre_mids & drop | ins & end_in) & compose
    post_mids, pre_mids = post_mids & ~drop, pre_mids & ~drop
    pairs, result_out, result_in, summed, scale, unpaired = contract(
        post_pairs, outs & ~end_out | end_out * push, post_mids,
        pre_pairs, pre_mids, ins & ~end_in | end_in * push,
        _ALL & ~drop, sizes_mid, rank,
    )  # fmt: skip
    end_out, end_in = end_out * compose, end_in * compose
    size = smaller(volume(end_out, sizes_out, rank), volume(end_in, sizes_in, rank))
    link_values = post_link_values | pre_link_values
    scaled = nonzero(scale ^ 1)
    post_valued = post >> 1 & 1 | push & nonzero(pre >> _LINK_OUT & 255)
    pre_valued = pre >> 1 & 1 | push & nonzero(post >> _LINK_OUT & 255)
    # A link that is pushed leaves its values where they are; the other factor varies along its end.
    post_outer = (
        volume(outs & ~end_out | freed_out * push, sizes_out, rank)
        * volume((pre >> _LINK_IN & _ALL) * push, sizes_in, rank)
        * (1 + (size - 1) * post_link_values)
    )
    pre_outer = (
        volume(ins & ~end_in | freed_in * push, sizes_in, rank)
        * volume((post >> _LINK_OUT & _ALL) * push, sizes_out, rank)
        * (1 + (size - 1) * pre_link_values)
    )
    post_values = post_outer * volume(post_mids, sizes_mid, rank)
    result_values = (
        volume(result_out, sizes_out, rank)
        * volume(result_in, sizes_in, rank)
        * (1 + (size - 1) * link_values)
    )
    count = _count(post_valued, pre_valued, scaled, result_values, summed, post_values)
    additions = (
        post_valued * _summed_alone(post_outer, post_mids, pre_mids, unpaired, sizes_mid, rank)
        + pre_valued * _summed_alone(pre_outer, pre_mids, post_mids, unpaired, sizes_mid, rank)
        + (post_valued & pre_valued) * result_values * (summed - nonzero(summed))
    )
    link_values &= nonzero(size ^ 1)
    linked = nonzero(end_out | end_in)
    code = (
        PRESENT
        | (post_valued | pre_valued | scaled) << 1
        | pairs << _PAIRS
        | (result_out | end_out * link_values) << _OUT
        | (result_in | end_in * link_values) << _IN
        | end_out << _LINK_OUT
        | end_in << _LINK_IN
        | ((post | pre) >> _OPERATOR & linked) << _OPERATOR
    )
    return code, count, additions


def _composable(post: Any, pre: Any, rank: int) -> Any:
    """1 where the links, if any, become one (`veenv.structure.product.absorbable`), else 0."""
    post_link, pre_link = post >> _LINK_IN & _ALL, pre >> _LINK_OUT & _ALL
    middle = post_link | pre_link
    covered_post, covered_pre, absorbed_out = post_link, pre_link, post & 0
    for k in range(rank):
        m = post >> (_PAIRS + 3 * k) & 7
        covered_post |= (1 << m) >> 1
        absorbed_out |= ((middle << 1) >> m & 1) << k
        covered_pre |= nonzero(pre >> (_PAIRS + 3 * k) & 7) << k
    values = (
        (post >> _OUT & (absorbed_out | post >> _LINK_OUT & _ALL))
        | (post >> _IN & post_link)
        | (pre >> _OUT & middle)
        | (pre >> _IN & pre >> _LINK_IN & _ALL)
    )
    operator = (post | pre) >> _OPERATOR & 1
    uncovered = middle & ~(covered_post & covered_pre)
    ends = absorbed_out | middle & ~pre_link | post >> _LINK_OUT & _ALL | pre >> _LINK_IN & _ALL
    fails = nonzero(uncovered) | operator & nonzero(values) | nonzero(middle) & (1 - nonzero(ends))
    return 1 - fails


def _count(
    post_valued: Any, pre_valued: Any, scaled: Any, values: Any, summed: Any, post_values: Any
) -> Any:
    """Multiplications of a product whose result has `values` values; none if both are unit."""
    both = values * summed + scaled * post_values
    return (post_valued & pre_valued) * both + ((post_valued ^ pre_valued) & scaled) * values


def _summed_alone(
    outer: Any, mids: Any, other_mids: Any, unpaired: Any, sizes_mid: Any, rank: int
) -> Any:
    """Additions that sum a factor over the middle axes along which the other is constant."""
    before = outer * volume(mids, sizes_mid, rank)
    after = outer * volume(mids & ~(unpaired & ~other_mids), sizes_mid, rank)
    return (before - after) * nonzero(before)


def num_values(code: Any, sizes_out: Any, sizes_in: Any, rank: int = MAX_RANK) -> Any:
    """Number of values of a valued edge without link, such as a sum.

    Args:
      code: the integer of the edge u → w.
      sizes_out: sizes of w's axes, as for `multiply`.
      sizes_in: the same of u.
      rank: no variable has more axes.

    Example:
      >>> from veenv.structure import dense
      >>> int(num_values(pack(dense((2,), (3,))), (2, 1, 1, 1), (3, 1, 1, 1)))
      6
    """
    outs, ins = code >> _OUT & _ALL, code >> _IN & _ALL
    return volume(outs, sizes_out, rank) * volume(ins, sizes_in, rank)


def add(a: Any, b: Any, rank: int = MAX_RANK, links: bool = True) -> Any:
    """Sum of two edges between the same nodes: `veenv.structure.add` on integers.

    Args:
      a: code of one edge.
      b: code of the other.
      rank: no variable has more axes.
      links: False if no edge of the graph is linked.

    Returns:
      The code of the sum. Meaningless if a code is 0.

    Example:
      >>> from veenv.structure import dense, diagonal
      >>> code = add(pack(dense((3,), (3,))), pack(diagonal((3,), valued=True)))
      >>> unpack(int(code), (3,), (3,)).describe()
      'i,j:ij'
    """
    if links:
        a, b = expand_link(a), expand_link(b)
    values = (a | b) & (_ALL << _OUT | _ALL << _IN)
    pairs = a & 0
    for k in range(rank):
        x, y = a >> (_PAIRS + 3 * k) & 7, b >> (_PAIRS + 3 * k) & 7
        differ = nonzero(x ^ y)
        pairs |= (x * (1 - differ)) << (_PAIRS + 3 * k)
        # A δ that only one term has is stored as zeros: both its axes vary.
        broken = ((1 << x | 1 << y) >> 1) * differ
        values |= broken << _IN | nonzero(broken) << (_OUT + k)
    return pairs | values | PRESENT | VALUED


def expand_link(code: Any) -> Any:
    """Stores the zeros of the link, if any: its axes become free and valued.

    Args:
      code: the integer of an edge.

    Returns:
      The integer of the same edge without link.

    Example:
      >>> from veenv.structure import Link, make
      >>> piece = make((2,), (3,), unit=True, link=Link.SELECTION, link_out=(0,), link_in=(0,))
      >>> unpack(int(expand_link(pack(piece))), (2,), (3,)).describe()
      'i,j:ij'
    """
    link = code >> _LINK_OUT & 255
    return code & ((1 << _LINK_OUT) - 1) | link << _OUT | nonzero(link) << 1


@cache
def register_numba() -> None:
    """Makes this algebra callable from functions that Numba compiles.

    Example:
      >>> import numba
      >>> register_numba()
      >>> numba.njit(lambda x: nonzero(x) + 1)(7)
      2
    """
    from numba.extending import register_jitable

    for function in (
        nonzero, smaller, volume, break_out, break_in, contract,
        expand_link, add, multiply, num_values,
        _multiply_linked, _composable, _count, _summed_alone,
    ):  # fmt: skip
        register_jitable(function)
