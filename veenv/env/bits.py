"""Sets of small integers as bits of 32-bit words: packing, counting and looking up members."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, UInt

from veenv._compat import barrier

WORD = 32

FIELD, GROUPS = 15, 16
"""Flags that fit into a field of four bits, and sums of so many that fit into a byte: 240."""


def _positions(rank: int) -> UInt[Array, "... 32"]:
    """Returns 0 to 31 along the last of `rank` axes."""
    return jnp.arange(WORD, dtype=jnp.uint32).reshape((1,) * (rank - 1) + (WORD,))


def num_words(n: int) -> int:
    """Returns the number of words that n bits need."""
    return -(-n // WORD)


def pack_flags(flags: Bool[Array, "*batch n"]) -> UInt[Array, "*batch W"]:
    """Packs flags into words: flag k is bit k % 32 of word k // 32."""
    words = num_words(flags.shape[-1])
    pad = [(0, 0)] * (flags.ndim - 1) + [(0, words * WORD - flags.shape[-1])]
    bits = jnp.pad(flags, pad).reshape(*flags.shape[:-1], words, WORD).astype(jnp.uint32)
    return (bits << _positions(bits.ndim)).sum(-1, dtype=jnp.uint32)


def count_bits(words: UInt[Array, "*batch W"]) -> Int[Array, "*batch"]:
    """Returns the number of members."""
    return lax.population_count(words).astype(jnp.int32).sum(-1, dtype=jnp.int32)


def count_columns(sets: UInt[Array, "W S"]) -> Int[Array, " S"]:
    """Counts the members of each set (a column of words) by adding whole rows."""
    counts = lax.population_count(sets).astype(jnp.int32)
    return _added([counts[w] for w in range(len(counts))])


def member(words: UInt[Array, "*batch W"], rank: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
    """Returns the member of a given rank: 0 for the smallest, 1 for the next.

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
    return bit_of_rank(word, rank - before, index)


def bit_of_rank(
    words: UInt[Array, "*batch"], rank: Int[Array, "*batch"], first: Int[Array, "*batch"]
) -> Int[Array, "*batch"]:
    """Returns the number of the set bit of a given rank, 0 for the lowest.

    Args:
      words: the words.
      rank: int32, less than the number of set bits (else the result means nothing, but lies in
        [first, first + 32)).
      first: int32, the number of each word's lowest bit.

    Examples:
      >>> word, rank = jnp.array([0b1101000], jnp.uint32), jnp.array([1])
      >>> bit_of_rank(word, rank, jnp.array([32])).tolist()
      [37]
    """
    for half in (16, 8, 4, 2, 1):
        low = lax.population_count(words & jnp.uint32((1 << half) - 1)).astype(jnp.int32)
        later = rank >= low
        first = first + jnp.where(later, half, 0)
        rank = rank - jnp.where(later, low, 0)
        words = jnp.where(later, words >> half, words)
    return first


def spread(words: UInt[Array, "*batch W"], n: int) -> Int[Array, "*batch n"]:
    """Returns the first n bits as int32 zeros and ones."""
    bits = (words[..., None] >> _positions(words.ndim + 1)) & 1
    return bits.reshape(*words.shape[:-1], -1)[..., :n].astype(jnp.int32)


def count_in_sets(words: UInt[Array, "W R"], n: int) -> Int[Array, " n"]:
    """Counts for each k < n how many of the R sets (columns of words) have k as a member.

    Counts grow in fields of a word, all members of a set side by side: up to fifteen sets are
    added in fields of four bits, up to sixteen such sums in bytes, and these as integers. That is
    several times faster than summing the members one by one.
    """
    num, sets = words.shape
    blocks = -(-sets // (GROUPS * FIELD)) or 1
    size = GROUPS * blocks
    parts = [words[:, k : k + size] for k in range(0, sets, size)]
    parts[-1] = barrier(_widened(parts[-1], size))
    bit = _steps(1, (1, 4, 1))
    nibbles = _added([part[:, None] >> bit & 0x11111111 for part in parts])
    nibbles = barrier(nibbles).reshape(num, 4, 1, blocks, GROUPS)
    half = _steps(4, (1, 1, 2, 1))
    in_bytes = _added([nibbles[..., k] >> half & 0x0F0F0F0F for k in range(GROUPS)])
    in_bytes = barrier(in_bytes).swapaxes(1, 2)
    byte = _steps(8, (1, 4, 1, 1, 1))
    # Bit k + 4 · half + 8 · byte of a word: fields [W, byte, half, k, blocks].
    fields = _added([(in_bytes[:, None] >> byte & 0xFF)[..., k] for k in range(blocks)])
    return fields.reshape(-1)[:n].astype(jnp.int32)


def upper_product(x: UInt[Array, "*shape"], y: UInt[Array, "*shape"]) -> UInt[Array, "*shape"]:
    """Returns the upper 32 bits of the products of words.

    Examples:
      >>> int(upper_product(jnp.uint32(2**31), jnp.uint32(6)))
      3
    """
    a, b, c, d = x >> 16, x & 0xFFFF, y >> 16, y & 0xFFFF
    middle = (b * d >> 16) + (a * d & 0xFFFF) + (b * c & 0xFFFF)
    return a * c + (a * d >> 16) + (b * c >> 16) + (middle >> 16)


def _steps(step: int, shape: tuple[int, ...]) -> Array:
    """Returns 0, step, 2 · step, … along the only axis of a shape."""
    return (step * jnp.arange(max(shape), dtype=jnp.uint32)).reshape(shape)


def _widened(words: Array, size: int) -> Array:
    """Appends columns of zeros to the words."""
    return jnp.pad(words, ((0, 0), (0, size - words.shape[1])))


def _added(parts: Sequence[Array]) -> Array:
    """Adds terms in a written-out sum, where a reduction would go element by element."""
    return functools.reduce(operator.add, parts)
