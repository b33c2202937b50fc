"""Lists the members of many bit sets in one array, and sums along such lists.

Everything is laid out for vector instructions: sums are products with triangular matrices, a
member is looked up by few gathers of one number each, and nothing is sorted.
"""

from __future__ import annotations

import functools
import operator
from itertools import accumulate

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, UInt

from veenv._compat import barrier
from veenv.env.bits import WORD, bit_of_rank

UNIT = 4
"""Words of a unit, the part of a set that is listed at once."""

COUNT = 7
"""Bits for the number of members in the words of a unit before the last: at most 96."""

RUN = 16
"""Row length of a running sum."""

WHOLE = 64
"""Most numbers that are summed as one row."""


def members(
    sets: UInt[Array, "W S"], room: int
) -> tuple[Int[Array, " E"], Int[Array, " E"], Bool[Array, " E"], Int[Array, ""]]:
    """Lists the members of all sets, one set after another.

    Args:
      sets: the sets, one a column: bit k % 32 of word k // 32 says that k is a member.
      room: E; this and the number of members are below 2²⁴.

    Returns:
      Of each member its set and itself, 0 where there is none; which of the E there are; how
      many members there are.

    Examples:
      >>> sets = jnp.array([[0b101, 0, 0b10]], jnp.uint32)
      >>> owner, one, used, total = members(sets, 4)
      >>> owner.tolist(), one.tolist(), used.tolist(), int(total)
      ([0, 0, 2, 0], [0, 2, 1, 0], [True, True, True, False], 3)
    """
    num_words, num_sets = sets.shape
    blocks = -(-num_words // UNIT)
    upto = _counts(sets, blocks)
    ends = running_sum(upto[-1].astype(jnp.float32)).astype(jnp.int32)
    total, begin = ends[-1], ends - upto[-1]
    unit = barrier(units_at(ends, room))
    place = jnp.arange(room, dtype=jnp.int32)
    used = place < total
    # Packs the start of the unit and its partial counts of members into one number.
    small = room < 1 << (WORD - (UNIT - 1) * COUNT)
    shifted = [count.astype(jnp.uint32) << (COUNT * k) for k, count in enumerate(upto[:-1])]
    inner = functools.reduce(operator.or_, shifted)
    top = (UNIT - 1) * COUNT
    if small:
        inner = inner | jnp.minimum(begin, room).astype(jnp.uint32) << top
    inner, begin = barrier((inner, begin))
    packed = barrier(at(inner, unit))
    first = (packed >> top).astype(jnp.int32) if small else at(begin, unit)
    rank = jnp.where(used, place - first, 0)
    ends_of = [
        (packed >> (COUNT * k) & (1 << COUNT) - 1).astype(jnp.int32) for k in range(UNIT - 1)
    ]
    word, before = jnp.zeros_like(rank), jnp.zeros_like(rank)
    for end in ends_of:
        word, before = word + (rank >= end).astype(jnp.int32), jnp.where(rank >= end, end, before)
    owner, block = (unit, 0) if blocks == 1 else (unit // blocks, unit % blocks)
    word = jnp.minimum(word + UNIT * block, num_words - 1)
    owner, word, rank = barrier((owner, word, rank - before))
    bits = barrier(at(sets.reshape(-1), word * num_sets + owner))
    one = word * WORD + bit_of_rank(bits, rank, jnp.zeros(rank.shape, jnp.int32))
    return jnp.where(used, owner, 0), jnp.where(used, one, 0), used, total


def _counts(sets: UInt[Array, "W S"], blocks: int) -> list[Int[Array, " U"]]:
    """Counts the members in the first one, two, … words of each unit."""
    pad = blocks * UNIT - sets.shape[0]
    if blocks > 1 and pad:
        sets, pad = jnp.pad(sets, ((0, pad), (0, 0))), 0
    each = [
        lax.population_count(sets[k::UNIT].T.reshape(-1)).astype(jnp.int32)
        for k in range(UNIT - pad)
    ]
    counts = list(accumulate(each))
    return list(barrier(tuple(counts + counts[-1:] * pad)))


def units_at(ends: Int[Array, " U"], room: int) -> Int[Array, " E"]:
    """Finds for places 0, 1, … the first unit that ends behind each, or the last unit.

    Args:
      ends: int32 [U], where each unit ends; ascending, not negative.
      room: E, how many places.

    Examples:
      >>> units_at(jnp.array([2, 2, 3]), 5).tolist()
      [0, 0, 2, 2, 2]
    """
    if len(ends) == 1:
        return jnp.zeros(room, jnp.int32)
    rows = -(-room // RUN) * RUN
    ended = jnp.zeros(rows, jnp.float32).at[ends.astype(jnp.uint32)].add(1.0, mode="drop")
    passed = running_sum(ended)[:room].astype(jnp.int32)
    return jnp.minimum(passed, len(ends) - 1)


def at(numbers: Array, places: Int[Array, " E"]) -> Array:
    """Gathers numbers at valid indices, without the bounds tests that indexing adds."""
    return numbers.at[places.astype(jnp.uint32)].get(mode="clip")


def running_sum(numbers: Float[Array, " n"]) -> Float[Array, " n"]:
    """Sums the first 1, 2, … n whole numbers, exact up to 2²⁴, as products of matrices.

    Many times faster than `jnp.cumsum` for some hundreds of numbers, which makes as many passes
    as n has bits: rows of 16 are summed by themselves, then what stands before them.

    Examples:
      >>> running_sum(jnp.array([3.0, 0.0, 4.0])).tolist()
      [3.0, 3.0, 7.0]
    """
    num = len(numbers)
    if num <= WHOLE:
        return _product(numbers, np.triu(np.ones((num, num), np.float32)))
    rows = -(-num // RUN)
    table = jnp.pad(numbers, (0, rows * RUN - num)).reshape(rows, RUN)
    within = _product(table, np.triu(np.ones((RUN, RUN), np.float32)))
    last = within[:, -1]
    before = barrier(running_sum(last) - last)
    return (within + before[:, None]).reshape(-1)[:num]


def _product(left: Array, right: np.ndarray) -> Array:
    return jnp.dot(left, right, precision=lax.Precision.HIGHEST)
