"""Laying out an order anew, at the same cost, so that what depends on each other is close.

Two eliminations in a row of vertices that are no neighbours may change places: each costs what it
did, and the graph behind them is the same.  So an order stands for all those in which every vertex
comes behind those that were its neighbours when they went.
"""

from __future__ import annotations

import numpy as np

from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit, random_below
from veenv.search.kernels.kernels import eliminate
from veenv.search.kernels.scalar import PRED, SUCC
from veenv.search.problem import Problem


@compiled
def _later(core, bits, ids, order, starts, later):
    """Neighbours of each vertex of an order when it is eliminated; returns how many in all.

    Written are starts, int64 [n + 1], offsets into `later`, and later itself, int64, as far as
    there is room; (bits, ids) are the initial state, changed.
    """
    n, found = core.n, 0
    waits = core.before.shape[0] > 0
    alive = np.ones(n, np.bool_)
    for i in range(n):
        v = order[i]
        alive[v] = False
        starts[i] = found
        for k in range((n + 63) >> 6):
            rest = bits[PRED, v, k] | bits[SUCC, v, k]
            while rest != ZERO:
                u = (k << 6) + lowest_bit(rest)
                rest &= rest - ONE
                if u < n and alive[u]:  # an output that went before still has its in-edges
                    if found < later.shape[0]:
                        later[found] = u
                    found += 1
            rest = core.before[v, k] if waits else ZERO
            while rest != ZERO:  # those that went before: the other way round
                if found < later.shape[0]:
                    later[found] = -1 - ((k << 6) + lowest_bit(rest))
                found += 1
                rest &= rest - ONE
        eliminate(core, bits, ids, v)
    starts[n] = found
    return found


@compiled
def _incoming(order, starts, later, offsets, sources):
    """The same pairs by their later vertex: offsets int64 [n + 1], sources int64 [pairs]."""
    n = order.shape[0]
    offsets[:] = 0
    for i in range(n):
        for k in range(starts[i], starts[i + 1]):
            target = later[k] if later[k] >= 0 else order[i]
            offsets[target + 1] += 1
    for v in range(n):
        offsets[v + 1] += offsets[v]
    filled = offsets.copy()
    for i in range(n):
        for k in range(starts[i], starts[i + 1]):
            source = order[i] if later[k] >= 0 else -1 - later[k]
            target = later[k] if later[k] >= 0 else order[i]
            sources[filled[target]] = source
            filled[target] += 1


@compiled
def _depth_first(order, offsets, sources, rng, result):
    """An order in which every vertex comes right behind its `sources`, depth first, into `result`.

    Roots are taken from the end of `order`; offsets, int64 [n + 1], are into `sources`, by vertex.
    """
    n, filled = order.shape[0], 0
    for v in range(n):
        for i in range(offsets[v + 1] - 1, offsets[v], -1):
            j = offsets[v] + random_below(rng, i - offsets[v] + 1)
            sources[i], sources[j] = sources[j], sources[i]
    seen, at = np.zeros(n, np.bool_), offsets.copy()
    stack = np.zeros(n, np.int64)
    for root in range(n - 1, -1, -1):
        if seen[order[root]]:
            continue
        stack[0], depth = order[root], 1
        seen[order[root]] = True
        while depth > 0:
            v = stack[depth - 1]
            if at[v] < offsets[v + 1]:
                u = sources[at[v]]
                at[v] += 1
                if not seen[u]:
                    seen[u] = True
                    stack[depth] = u
                    depth += 1
            else:
                depth -= 1
                result[filled] = v
                filled += 1


def lay_out(problem: Problem, order: np.ndarray, rng: np.ndarray) -> np.ndarray:
    """An order of the same cost in which eliminations that depend on each other are close.

    Of a graph of arrays the cost can differ where sums of structures depend on their order.
    """
    core, n = problem.core, problem.n
    starts, later = np.zeros(n + 1, np.int64), np.zeros(16 * n, np.int64)
    found = _later(core, core.bits.copy(), core.ids.copy(), order, starts, later)
    if found > len(later):
        later = np.zeros(found, np.int64)
        _later(core, core.bits.copy(), core.ids.copy(), order, starts, later)
    offsets, sources = np.zeros(n + 1, np.int64), np.zeros(found, np.int64)
    _incoming(order, starts, later, offsets, sources)
    result = np.zeros(n, np.int64)
    _depth_first(order, offsets, sources, rng, result)
    return result
