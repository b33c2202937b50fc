"""Compiled elimination on graphs of arrays: an edge is the number of a structure in tables."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import objmode

from veenv.search.kernels import tables
from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit
from veenv.search.kernels.scalar import PRED, SUCC, connect

_SHIFT = np.uint64(32)
_HASH = np.uint64(0x9E3779B97F4A7C15)


class ArrayCore(NamedTuple):
    """Constants of an array graph under one cost model."""

    n: int  # number of eliminable vertices
    bits: np.ndarray  # uint64 [3, N, W]; the initial state (row 2 is not used)
    ids: np.ndarray  # int32 [N, N]; the initial state
    kept: np.ndarray  # bool [N]; outputs, which keep their in-edges
    keys: np.ndarray  # uint64 [2, size]; see `tables.StructureTables`
    results: np.ndarray  # int32 [2, size]
    counts: np.ndarray  # int64 [2, size]
    handle: int  # number of the tables
    additions: bool  # additions cost as multiplications do
    before: np.ndarray  # uint64 [n, Wn]; see `ScalarCore`


@partial(compiled, nogil=False)
def miss(handle, first, second, kind):
    """Has the structure algebra, in Python, compute and store an entry that is missing."""
    with objmode():
        tables.fill(handle, first, second, kind)


@compiled
def lookup(keys, handle, first, second, kind):
    """Place of the entry (first, second) in the product (kind 0) or sum (kind 1) table."""
    key = (np.uint64(first) << _SHIFT) | np.uint64(second)
    mask = np.uint64(keys.shape[1] - 1)
    place = ((key * _HASH) >> _SHIFT) & mask
    while keys[kind, place] != key:
        if keys[kind, place] == ZERO:
            miss(handle, first, second, kind)
            place = ((key * _HASH) >> _SHIFT) & mask
        else:
            place = (place + ONE) & mask
    return place


@compiled
def array_eliminate(core, bits, ids, v, commit):
    """What eliminating v from an array graph costs; does so if `commit`."""
    words = bits.shape[2]
    keys, results, counts, handle = core.keys, core.results, core.counts, core.handle
    kept, additions = core.kept[v], core.additions
    total = np.int64(0)
    for k in range(words):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            pre = ids[u, v]
            for j in range(words):
                others = bits[SUCC, v, j]
                while others != ZERO:
                    w = (j << 6) + lowest_bit(others)
                    others &= others - ONE
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
            if commit and not kept:
                ids[u, v] = 0
    if commit:
        for j in range(words):
            others = bits[SUCC, v, j]
            while others != ZERO:
                ids[v, (j << 6) + lowest_bit(others)] = 0
                others &= others - ONE
        connect(bits, kept, v, False)
    return total
