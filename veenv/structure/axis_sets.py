"""Sets of axes as bits of an integer, and branch-free products of them.

A set of axes is an integer, bit k for axis k; pairs of axes are three bits for each out axis, as in
`veenv.structure.packed`, whose algebra is made of these functions.  They use only integer
arithmetic, so that they run on Python ints and on arrays of NumPy and JAX (elementwise).
"""

from __future__ import annotations

from typing import Any


def nonzero(x: Any) -> Any:
    """Returns 1 where x > 0, 0 where x = 0.

    Examples:
      >>> nonzero(0), nonzero(5)
      (0, 1)
    """
    return 1 - ((x - 1) >> 31 & 1)


def int32(count: Any) -> Any:
    """Returns a count as it is, for counts that fit int32."""
    return count


def smaller(a: Any, b: Any) -> Any:
    """Returns the smaller of two non-negative int32."""
    return a + (b - a) * ((b - a) >> 31 & 1)


def volume(mask: Any, sizes: Any, rank: int) -> Any:
    """Returns the product of the sizes of the axes in a mask."""
    product = 1 + (mask & 0)
    for k in range(rank):
        product *= 1 + (sizes[k] - 1) * (mask >> k & 1)
    return product


def break_out(pairs: Any, drop: Any, rank: int) -> tuple[Any, Any]:
    """Removes the pairs of a left factor with middle axes in `drop`; also the out axes freed."""
    left = freed = pairs & 0
    for k in range(rank):
        m = pairs >> 3 * k & 7
        hit = (drop << 1) >> m & 1
        left |= (m * (1 - hit)) << 3 * k
        freed |= hit << k
    return left, freed


def break_in(pairs: Any, drop: Any, rank: int) -> tuple[Any, Any]:
    """Removes the pairs of a right factor with middle axes in `drop`; also the in axes freed."""
    left = freed = pairs & 0
    for m in range(rank):
        j = pairs >> 3 * m & 7
        hit = drop >> m & 1
        left |= (j * (1 - hit)) << 3 * m
        freed |= ((1 << j) >> 1) * hit
    return left, freed


def contract(
    post_pairs: Any,
    outs: Any,
    post_mids: Any,
    pre_pairs: Any,
    pre_mids: Any,
    ins: Any,
    unlinked: Any,
    sizes_mid: Any,
    rank: int,
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Applies the einsum rule with Kronecker deltas (`veenv.structure.product.contract`) to masks.

    Pairs, valued out axes and valued in axes of the result; the product of the sizes of the middle
    axes that are summed, and of those that both factors are constant along; and the middle axes
    that are paired in neither factor.
    """
    pairs = diagonal = post_pairs & 0
    for k in range(rank):
        m = post_pairs >> 3 * k & 7
        pairs |= ((pre_pairs << 3) >> 3 * m & 7) << 3 * k
        outs |= ((pre_mids << 1) >> m & 1) << k
        diagonal |= (1 << m) >> 1
    summed = scale = 1 + (post_pairs & 0)
    unpaired = post_pairs & 0
    for m in range(rank):
        here = (unlinked & ~diagonal) >> m & 1
        j = pre_pairs >> 3 * m & 7
        either = (post_mids | pre_mids) >> m & 1
        ins |= ((1 << j) >> 1) * (here & either)
        free = here & (1 - nonzero(j))
        unpaired |= free << m
        summed *= 1 + (sizes_mid[m] - 1) * (free & post_mids >> m & pre_mids >> m & 1)
        scale *= 1 + (sizes_mid[m] - 1) * (free & (1 - either))
    return pairs, outs, ins, summed, scale, unpaired
