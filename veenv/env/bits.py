"""Sets of small integers as bits of 32-bit words, and looking up their members."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, UInt

WORD = 32


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


def count_in_sets(words: UInt[Array, "W R"], n: int) -> Int[Array, " n"]:
    """For each k < n, how many of the R sets (one a column of words) have k as a member.

    The sets are added in pairs, in binary, all bits side by side (bit k of plane p is bit p of
    the count of k), which is several times faster than summing the members one by one.
    """
    sets = max(1, 1 << (words.shape[1] - 1).bit_length())
    planes = [jnp.pad(words, ((0, 0), (0, sets - words.shape[1])))]
    while sets > 1:
        sets //= 2
        halves = [(plane[:, :sets], plane[:, sets:]) for plane in planes]
        carry, planes = jnp.zeros_like(halves[0][0]), []
        for x, y in halves:
            planes.append(x ^ y ^ carry)
            carry = (x & y) | (carry & (x ^ y))
        planes.append(carry)
    total = jnp.zeros(n, jnp.int32)
    for p, plane in enumerate(planes):
        total += spread(plane[:, 0], n) << p
    return total
