"""Compiled vertex elimination on a `Core`: bitset rows for scalars, structure ids for arrays.

Node numbers are local (`veenv.search.problem`): the n eliminable vertices come first, then the
other nodes that carry an edge; N nodes in all, W = ceil(N / 64) words a bitset row.  A graph's
state is

    bits  uint64 [3, N, W]   0: successors, 1: predecessors, 2: successors by a valued edge
    ids   int32 [N, N]       structure id of edge (source, target), 0 for none ([1, 1] for scalars)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import objmode
from numba.extending import overload

from veenv.search.kernels import tables
from veenv.search.kernels.compilation import GOLDEN, ONE, ZERO, compiled, lowest_bit, popcount

SUCC, PRED, VALUED = 0, 1, 2


class ScalarCore(NamedTuple):
    """Constants of a scalar graph under one cost model."""

    n: int  # number of eliminable vertices
    bits: np.ndarray  # uint64 [3, N, W]; the initial state
    ids: np.ndarray  # int32 [1, 1]; not used
    is_output: np.ndarray  # bool [N]; outputs, which keep their in-edges
    # every edge carries a value, so an elimination takes in-degree times out-degree multiplications
    plain: bool
    additions: bool  # additions cost as multiplications do
    # uint64 [n, Wn]; the vertices that must go before each one, as bits; [0, Wn] if no vertex has
    # to wait
    before: np.ndarray


@compiled
def may_go(core, alive, v):
    """Returns whether all vertices that precede v are gone: `alive` (bool [n]) are those left."""
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
    """Counts predecessors (side `PRED`) or successors (`SUCC`) of node v."""
    total = 0
    for k in range(bits.shape[2]):
        total += popcount(bits[side, v, k])
    return total


@compiled
def scalar_cost(bits, v):
    """Counts multiplications to eliminate v: pairs of a valued in-edge and a valued out-edge."""
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
    """Counts additions to eliminate v: existing edges from a predecessor to a successor."""
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
def connect(bits, keep, v, valued):
    """Joins every predecessor of v to every successor, drops v's edges (not in-edges if `keep`)."""
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
                if not keep:
                    bits[VALUED, u, word] &= ~bit
            else:
                for j in range(words):
                    bits[SUCC, u, j] |= bits[SUCC, v, j]
            if not keep:
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
        if not keep:
            bits[PRED, v, k] = ZERO


@compiled
def scalar_eliminate(bits, keep, plain, additions, v):
    """Eliminates v from a scalar graph, and returns its cost."""
    count = scalar_additions(bits, v) if additions else 0
    if not plain:
        count += scalar_cost(bits, v)
        connect(bits, keep, v, True)
    else:
        count += degree(bits, PRED, v) * degree(bits, SUCC, v)
        connect(bits, keep, v, False)
    return count


@compiled
def scalar_price(bits, plain, additions, v):
    """Returns the cost of eliminating v from a scalar graph."""
    count = degree(bits, PRED, v) * degree(bits, SUCC, v) if plain else scalar_cost(bits, v)
    return count + scalar_additions(bits, v) if additions else count


_SHIFT = np.uint64(32)


class ArrayCore(NamedTuple):
    """Constants of an array graph under one cost model."""

    n: int  # number of eliminable vertices
    bits: np.ndarray  # uint64 [3, N, W]; the initial state (row 2 is not used)
    ids: np.ndarray  # int32 [N, N]; the initial state
    is_output: np.ndarray  # bool [N]; outputs, which keep their in-edges
    keys: np.ndarray  # uint64 [2, size]; see `tables.StructureTables`
    results: np.ndarray  # int32 [2, size]
    counts: np.ndarray  # int64 [2, size]
    handle: int  # number of the tables
    additions: bool  # additions cost as multiplications do
    before: np.ndarray  # uint64 [n, Wn]; see `ScalarCore`


@partial(compiled, nogil=False)
def miss(handle, first, second, kind):
    """Calls Python to compute and store a missing entry by the structure algebra."""
    with objmode():
        tables.fill(handle, first, second, kind)


@compiled
def lookup(keys, handle, first, second, kind):
    """Returns the index of the entry (first, second) in the product (kind 0) or sum (1) table."""
    key = (np.uint64(first) << _SHIFT) | np.uint64(second)
    mask = np.uint64(keys.shape[1] - 1)
    place = ((key * GOLDEN) >> _SHIFT) & mask
    while keys[kind, place] != key:
        if keys[kind, place] == ZERO:
            miss(handle, first, second, kind)
            place = ((key * GOLDEN) >> _SHIFT) & mask
        else:
            place = (place + ONE) & mask
    return place


@compiled
def array_eliminate(core, bits, ids, v, commit):
    """Returns the cost of eliminating v from an array graph; does so if `commit`."""
    words = bits.shape[2]
    keys, results, counts, handle = core.keys, core.results, core.counts, core.handle
    keep, additions = core.is_output[v], core.additions
    total = np.int64(0)
    for k in range(words):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            pre = ids[u, v]
            for j in range(words):
                succs = bits[SUCC, v, j]
                while succs != ZERO:
                    w = (j << 6) + lowest_bit(succs)
                    succs &= succs - ONE
                    place = lookup(keys, handle, ids[v, w], pre, 0)
                    total += counts[0, place]
                    if commit or additions:
                        new = results[0, place]
                        old = ids[u, w]
                        if old != 0:
                            low, high = min(old, new), max(old, new)
                            place = lookup(keys, handle, low, high, 1)
                            new = results[1, place]
                            total += counts[1, place]
                        if commit:
                            ids[u, w] = new
            if commit and not keep:
                ids[u, v] = 0
    if commit:
        for j in range(words):
            succs = bits[SUCC, v, j]
            while succs != ZERO:
                ids[v, (j << 6) + lowest_bit(succs)] = 0
                succs &= succs - ONE
        connect(bits, keep, v, False)
    return total


Core = ScalarCore | ArrayCore


def by_core(scalars: Callable[..., Any], arrays: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function for compiled callers that is specialised on the kind of core.

    A scalar graph's code must not mention the tables, whose reference counts would cost more than
    the elimination itself.  Both functions have names of their own, which compiled code is known
    by on disk.
    """

    def specialised(core: Any, *rest: Any) -> Any:
        raise TypeError("a function for compiled callers is called from compiled code only")

    @overload(specialised, strict=False)
    def choose(core: Any, *rest: Any) -> Any:
        return scalars if core.instance_class is ScalarCore else arrays

    return specialised


def _eliminate_scalar(core, bits, ids, v):
    return scalar_eliminate(bits, core.is_output[v], core.plain, core.additions, v)


def _eliminate_array(core, bits, ids, v):
    return array_eliminate(core, bits, ids, v, True)


eliminate = by_core(_eliminate_scalar, _eliminate_array)
"""Eliminates v in place, and returns its cost; for compiled callers."""


def _cost_of_scalar(core, bits, ids, v):
    return scalar_price(bits, core.plain, core.additions, v)


def _cost_of_array(core, bits, ids, v):
    return array_eliminate(core, bits, ids, v, False)


cost_of = by_core(_cost_of_scalar, _cost_of_array)
"""Returns the cost of eliminating v now, the state unchanged; for compiled callers."""


@compiled
def copy_flat(target, source):
    """Copies a contiguous array in one loop over all elements, which becomes a memcpy."""
    flat, values = target.reshape(target.size), source.reshape(source.size)
    for i in range(flat.shape[0]):
        flat[i] = values[i]


@compiled
def copy_state(target, target_ids, source, source_ids):
    """Copies a state."""
    copy_flat(target, source)
    copy_flat(target_ids, source_ids)


@compiled
def order_costs(core, order, costs):
    """Writes the cost of each elimination of `order` (int64 [n]) into `costs`."""
    bits, ids = core.bits.copy(), core.ids.copy()
    for i in range(order.shape[0]):
        costs[i] = eliminate(core, bits, ids, order[i])
