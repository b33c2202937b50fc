"""Sets of small integers as bits of 32-bit words, and looking up their members."""

from __future__ import annotations

import functools
import operator
from itertools import accumulate

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, UInt

WORD = 32

RUN = 16
"""Numbers of a row of a running sum."""


def _positions(rank: int) -> UInt[Array, "... 32"]:
    """0 to 31 along the last of `rank` axes."""
    return jnp.arange(WORD, dtype=jnp.uint32).reshape((1,) * (rank - 1) + (WORD,))


def num_words(n: int) -> int:
    """Words needed for n bits."""
    return -(-n // WORD)


def pack_flags(flags: Bool[Array, "*batch n"]) -> UInt[Array, "*batch W"]:
    """Flags as words: flag k is bit k % 32 of word k // 32."""
    words = num_words(flags.shape[-1])
    pad = [(0, 0)] * (flags.ndim - 1) + [(0, words * WORD - flags.shape[-1])]
    bits = jnp.pad(flags, pad).reshape(*flags.shape[:-1], words, WORD).astype(jnp.uint32)
    return (bits << _positions(bits.ndim)).sum(-1, dtype=jnp.uint32)


def count_bits(words: UInt[Array, "*batch W"]) -> Int[Array, "*batch"]:
    """Number of members."""
    return lax.population_count(words).astype(jnp.int32).sum(-1, dtype=jnp.int32)


def member(words: UInt[Array, "*batch W"], rank: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
    """The member of a given rank: 0 for the smallest, 1 for the next.

    Args:
      words: the set.
      rank: int32, less than the number of members (else the result means nothing, but lies in
        the range of the words).
    """
    index = jnp.zeros(rank.shape, jnp.int32)
    word = words[..., 0]
    before = jnp.zeros(rank.shape, jnp.int32)
    seen = jnp.zeros(rank.shape, jnp.int32)
    for w in range(words.shape[-1] - 1):
        seen += lax.population_count(words[..., w]).astype(jnp.int32)
        later = rank >= seen
        index = jnp.where(later, (w + 1) * WORD, index)
        word = jnp.where(later, words[..., w + 1], word)
        before = jnp.where(later, seen, before)
    rank -= before
    for half in (16, 8, 4, 2, 1):
        low = lax.population_count(word & jnp.uint32((1 << half) - 1)).astype(jnp.int32)
        later = rank >= low
        index += jnp.where(later, half, 0)
        rank -= jnp.where(later, low, 0)
        word = jnp.where(later, word >> half, word)
    return index


def spread(words: UInt[Array, "*batch W"], n: int) -> Int[Array, "*batch n"]:
    """The first n bits as int32 zeros and ones."""
    bits = (words[..., None] >> _positions(words.ndim + 1)) & 1
    return bits.reshape(*words.shape[:-1], -1)[..., :n].astype(jnp.int32)


def count_in_sets(words: Array, n: int) -> Int[Array, " n"]:
    """For each k < n, how many of the R sets (one a column of words) have k as a member.

    Counts grow in fields of a word, all members of a set side by side: eight sets are added in
    fields of four bits, up to thirty-one such sums in bytes, and these as integers. That is several
    times faster than summing the members one by one.
    """
    num = words.shape[0]
    blocks = -(-words.shape[1] // (8 * 31)) or 1
    groups = -(-words.shape[1] // (8 * blocks))
    padded = jnp.pad(words, ((0, 0), (0, 8 * blocks * groups - words.shape[1])))
    eighths = padded.reshape(num, 8, blocks, groups)
    nibbles = jnp.stack([_sum(eighths >> k & 0x11111111, 1) for k in range(4)], 1)
    halves = jnp.stack([nibbles & 0x0F0F0F0F, nibbles >> 4 & 0x0F0F0F0F], 1)
    in_bytes = lax.optimization_barrier(lax.optimization_barrier(halves).sum(-1, dtype=jnp.uint32))
    fields = jnp.stack([in_bytes >> 8 * byte & 0xFF for byte in range(4)], 1)
    # Bit k + 4 · half + 8 · byte of a word: fields [W, byte, half, k, blocks].
    return fields.sum(-1, dtype=jnp.uint32).reshape(-1)[:n].astype(jnp.int32)


def _sum(words: Array, axis: int) -> Array:
    """A sum over a short axis that is not the last, written out."""
    parts = [lax.index_in_dim(words, k, axis, keepdims=False) for k in range(words.shape[axis])]
    return functools.reduce(operator.add, parts)


def running_sum(numbers: Int[Array, " n"]) -> Int[Array, " n"]:
    """Sums of the first 1, 2, … n numbers: rows of 16 by themselves, then what stands before them.

    Several times faster than `jnp.cumsum` for some hundreds of numbers, which makes as many passes
    as n has bits.

    Example:
      >>> running_sum(jnp.array([3, 0, 4])).tolist()
      [3, 3, 7]
    """
    if len(numbers) <= RUN:
        return jnp.stack(list(accumulate(numbers)))
    rows = -(-len(numbers) // RUN)
    table = jnp.pad(numbers, (0, rows * RUN - len(numbers))).reshape(rows, RUN)
    within = list(accumulate(table[:, k] for k in range(RUN)))
    before = running_sum(within[-1]) - within[-1]
    return (jnp.stack(within, 1) + before[:, None]).reshape(-1)[: len(numbers)]
