"""Compiled elimination on graphs of scalars: an edge is a bit in rows of words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit, popcount

SUCC, PRED, VALUED = 0, 1, 2


class ScalarCore(NamedTuple):
    """Constants of a scalar graph under one cost model."""

    n: int  # number of eliminable vertices
    bits: np.ndarray  # uint64 [3, N, W]; the initial state
    ids: np.ndarray  # int32 [1, 1]; not used
    kept: np.ndarray  # bool [N]; outputs, which keep their in-edges
    # every edge carries a value, so an elimination takes in-degree times out-degree multiplications
    plain: bool
    additions: bool  # additions cost as multiplications do
    # uint64 [n, Wn]; the vertices that must go before each one, as bits; [0, Wn] if no vertex has
    # to wait
    before: np.ndarray


@compiled
def may_go(core, alive, v):
    """Whether what must go before v is gone: `alive` (bool [n]) are those left."""
    if core.before.shape[0] == 0:
        return True
    for k in range(core.before.shape[1]):
        rest = core.before[v, k]
        while rest != ZERO:
            if alive[(k << 6) + lowest_bit(rest)]:
                return False
            rest &= rest - ONE
    return True


@compiled
def degree(bits, side, v):
    """Number of predecessors (side `PRED`) or successors (`SUCC`) of node v."""
    total = 0
    for k in range(bits.shape[2]):
        total += popcount(bits[side, v, k])
    return total


@compiled
def scalar_cost(bits, v):
    """Multiplications to eliminate v: pairs of a valued in-edge and a valued out-edge."""
    total = 0
    for k in range(bits.shape[2]):
        total += popcount(bits[VALUED, v, k])
    count = 0
    word, bit = v >> 6, ONE << np.uint64(v & 63)
    for k in range(bits.shape[2]):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            if bits[VALUED, u, word] & bit:
                count += 1
    return count * total


@compiled
def scalar_additions(bits, v):
    """Additions to eliminate v: edges from a predecessor to a successor that are there already."""
    total = 0
    for k in range(bits.shape[2]):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            for j in range(bits.shape[2]):
                total += popcount(bits[SUCC, v, j] & bits[SUCC, u, j])
    return total


@compiled
def connect(bits, kept, v, valued):
    """Joins every predecessor of v to every successor and drops v's edges (in-edges if kept)."""
    words = bits.shape[2]
    word, bit = v >> 6, ONE << np.uint64(v & 63)
    for k in range(words):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            if valued:
                full = (bits[VALUED, u, word] & bit) != ZERO
                for j in range(words):
                    out = bits[SUCC, v, j]
                    new = out if full else bits[VALUED, v, j]
                    bits[VALUED, u, j] |= new | (out & bits[SUCC, u, j])
                    bits[SUCC, u, j] |= out
                if not kept:
                    bits[VALUED, u, word] &= ~bit
            else:
                for j in range(words):
                    bits[SUCC, u, j] |= bits[SUCC, v, j]
            if not kept:
                bits[SUCC, u, word] &= ~bit
    for k in range(words):
        rest = bits[SUCC, v, k]
        while rest != ZERO:
            w = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            for j in range(words):
                bits[PRED, w, j] |= bits[PRED, v, j]
            bits[PRED, w, word] &= ~bit
    for k in range(words):
        bits[SUCC, v, k] = ZERO
        bits[VALUED, v, k] = ZERO
        if not kept:
            bits[PRED, v, k] = ZERO


@compiled
def eliminate_two_words(bits, kept, v):
    """`eliminate` for plain scalars of at most 128 nodes: v's rows stay in registers."""
    last = bits.shape[2] - 1
    word, bit = v >> 6, ONE << np.uint64(v & 63)
    out_low, out_high = bits[SUCC, v, 0], bits[SUCC, v, last]
    in_low, in_high = bits[PRED, v, 0], bits[PRED, v, last]
    ins, outs = popcount(in_low), popcount(out_low)
    if last == 1:
        ins += popcount(in_high)
        outs += popcount(out_high)
    clear = ZERO if kept else bit
    for k in range(last + 1):
        rest = in_high if k == 1 else in_low
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            bits[SUCC, u, 0] |= out_low
            bits[SUCC, u, last] |= out_high
            bits[SUCC, u, word] &= ~clear
        rest = out_high if k == 1 else out_low
        while rest != ZERO:
            w = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            bits[PRED, w, 0] |= in_low
            bits[PRED, w, last] |= in_high
            bits[PRED, w, word] &= ~bit
    bits[SUCC, v, 0] = ZERO
    bits[SUCC, v, last] = ZERO
    if not kept:
        bits[PRED, v, 0] = ZERO
        bits[PRED, v, last] = ZERO
    return ins * outs


@compiled
def scalar_eliminate(bits, kept, plain, additions, v):
    """What eliminating v from a scalar graph costs; does so."""
    count = scalar_additions(bits, v) if additions else 0
    if not plain:
        count += scalar_cost(bits, v)
        connect(bits, kept, v, True)
    elif bits.shape[2] <= 2:
        count += eliminate_two_words(bits, kept, v)
    else:
        count += degree(bits, PRED, v) * degree(bits, SUCC, v)
        connect(bits, kept, v, False)
    return count


@compiled
def scalar_price(bits, plain, additions, v):
    """What eliminating v from a scalar graph would cost."""
    count = degree(bits, PRED, v) * degree(bits, SUCC, v) if plain else scalar_cost(bits, v)
    return count + scalar_additions(bits, v) if additions else count
