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

The sizes of the axes are not part of the code; products are given them
(`veenv.structure.packed_product`).  Sums and products use only integer arithmetic and loops over
axes, so that the same functions run on Python ints and on arrays of NumPy and JAX (elementwise).
A set of axes is an integer, bit k for axis k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veenv.structure.axis_sets import int32, nonzero, volume
from veenv.structure.structure import FREE, Link, Structure

MAX_RANK = 4

PRESENT, VALUED = 1, 2
PAIRS, OUT, IN, LINK_OUT, LINK_IN, OPERATOR = 2, 14, 18, 22, 26, 30
ALL = (1 << MAX_RANK) - 1


def pack(s: Structure) -> int:
    """Packs a structure into an integer; sizes do not enter.

    Args:
      s: the structure.

    Returns:
      A positive integer below 2³¹.

    Raises:
      ValueError: if a variable has more than four axes (of size other than one).

    Examples:
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
        code |= (0 if j == FREE else j + 1) << (PAIRS + 3 * k)
        code |= (s.out_values[k] or (s.link_values and k in s.link_out)) << (OUT + k)
    for j, valued in enumerate(s.in_values):
        code |= (valued or (s.link_values and j in s.link_in)) << (IN + j)
    code |= sum(1 << k for k in s.link_out) << LINK_OUT
    code |= sum(1 << j for j in s.link_in) << LINK_IN
    return code | (s.link is Link.OPERATOR) << OPERATOR


def unpack(code: int, out_shape: tuple[int, ...], in_shape: tuple[int, ...]) -> Structure:
    """Unpacks the structure of an integer (not 0) over shapes without axes of size one.

    Args:
      code: the integer.
      out_shape: sizes of the out axes.
      in_shape: sizes of the in axes.

    Examples:
      >>> from veenv.structure import diagonal
      >>> unpack(pack(diagonal((3,), valued=True)), (3,), (3,)).describe()
      'i,i:i'
    """
    outs, ins = range(len(out_shape)), range(len(in_shape))
    link_out = tuple(k for k in outs if code >> (LINK_OUT + k) & 1)
    link_in = tuple(j for j in ins if code >> (LINK_IN + j) & 1)
    flags_out = [bool(code >> (OUT + k) & 1) for k in outs]
    flags_in = [bool(code >> (IN + j) & 1) for j in ins]
    link = Link.OPERATOR if code >> OPERATOR & 1 else Link.SELECTION
    return Structure(
        out_shape,
        in_shape,
        tuple((code >> (PAIRS + 3 * k) & 7) - 1 for k in outs),
        tuple(v and k not in link_out for k, v in enumerate(flags_out)),
        tuple(v and j not in link_in for j, v in enumerate(flags_in)),
        not code & VALUED,
        link if link_out or link_in else Link.NONE,
        link_out,
        link_in,
        any(flags_out[k] for k in link_out),
    )


def num_values(
    code: Any,
    sizes_out: Any,
    sizes_in: Any,
    rank: int = MAX_RANK,
    counted: Callable[[Any], Any] = int32,
) -> Any:
    """Returns the number of values of a valued edge without link, such as a sum.

    Args:
      code: the integer of the edge u → w.
      sizes_out: sizes of w's axes, as for `multiply`.
      sizes_in: the same of u.
      rank: no variable has more axes.
      counted: as for `multiply`.

    Examples:
      >>> from veenv.structure import dense
      >>> int(num_values(pack(dense((2,), (3,))), (2, 1, 1, 1), (3, 1, 1, 1)))
      6
    """
    outs, ins = code >> OUT & ALL, code >> IN & ALL
    return counted(volume(outs, sizes_out, rank)) * volume(ins, sizes_in, rank)


def add(a: Any, b: Any, rank: int = MAX_RANK, links: bool = True) -> Any:
    """Adds two edges between the same nodes: `veenv.structure.add` on integers.

    Args:
      a: code of one edge.
      b: code of the other.
      rank: no variable has more axes.
      links: False if no edge of the graph is linked.

    Returns:
      The code of the sum. Meaningless if a code is 0.

    Examples:
      >>> from veenv.structure import dense, diagonal
      >>> code = add(pack(dense((3,), (3,))), pack(diagonal((3,), valued=True)))
      >>> unpack(int(code), (3,), (3,)).describe()
      'i,j:ij'
    """
    if links:
        a, b = expand_link(a), expand_link(b)
    values = (a | b) & (ALL << OUT | ALL << IN)
    pairs = a & 0
    for k in range(rank):
        x, y = a >> (PAIRS + 3 * k) & 7, b >> (PAIRS + 3 * k) & 7
        differ = nonzero(x ^ y)
        pairs |= (x * (1 - differ)) << (PAIRS + 3 * k)
        # A δ that only one term has is stored as zeros: both its axes vary.
        broken = ((1 << x | 1 << y) >> 1) * differ
        values |= broken << IN | nonzero(broken) << (OUT + k)
    return pairs | values | PRESENT | VALUED


def expand_link(code: Any) -> Any:
    """Stores the zeros of the link, if any: its axes become free and valued.

    Args:
      code: the integer of an edge.

    Returns:
      The integer of the same edge without link.

    Examples:
      >>> from veenv.structure import Link, make
      >>> piece = make((2,), (3,), unit=True, link=Link.SELECTION, link_out=(0,), link_in=(0,))
      >>> unpack(int(expand_link(pack(piece))), (2,), (3,)).describe()
      'i,j:ij'
    """
    link = code >> LINK_OUT & 255
    return code & ((1 << LINK_OUT) - 1) | link << OUT | nonzero(link) << 1
