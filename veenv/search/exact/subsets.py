"""Exact costs of small scalar graphs by dynamic programming over all sets of vertices.

**The state of a scalar graph depends only on the set S eliminated.**  An edge u → w is there if
and only if a path from u to w leads through S only, and it is valued if and only if there are two
such paths or the only one has a valued edge.  Proof by induction over eliminations: eliminating v
joins to the paths u → w through S those through v, which are the pairs of a path u → v and a path
v → w.  Two paths in total: either both the old edge and the product are there, and sums are
valued; or one of them stands for two paths already, and is valued by induction (a product with a
valued factor is).  One path: a product is unit if and only if both factors are.  An eliminated
output loses its out-edges and keeps its in-edges, which changes no path to the others.  ∎

So cost-to-come f(S ∪ {v}) = min over v of f(S) + cost of v in the graph after S, for 2^n sets.
"""

from __future__ import annotations

import numpy as np

from veenv.search.budget import Tracker
from veenv.search.kernels.compilation import compiled, lowest_bit
from veenv.search.kernels.kernels import copy_state, cost_of, eliminate
from veenv.search.problem import Problem

MAX_VERTICES = 24
_CHUNK = 1 << 15


@compiled
def _sweep(core, bits, ids, begin, end, best, choice):
    """Extends every set numbered begin .. end - 1 by one vertex, in ascending order.

    Of bits, uint64 [n + 1, 3, N, W], entry j is the state after those of the set's vertices that
    are j or more (n: none); the part of set `begin` - 1 must be there.  Written are best, int64
    [2^n], the least cost to come, and choice, int8 [2^n], the last vertex of such an order.
    """
    n = core.n
    waits = core.before.shape[0] > 0
    for s in range(begin, end):
        low = n
        if s > 0:
            low = lowest_bit(np.uint64(s))
            above = n
            rest = np.uint64(s) & (np.uint64(s) - np.uint64(1))
            if rest != np.uint64(0):
                above = lowest_bit(rest)
            copy_state(bits[low], ids[low], bits[above], ids[above])
            eliminate(core, bits[low], ids[low], low)
        now, now_ids = bits[low], ids[low]
        here = best[s]
        for v in range(n):
            t = s | (1 << v)
            if t == s or (waits and core.before[v, 0] & ~np.uint64(s) != np.uint64(0)):
                continue
            total = here + cost_of(core, now, now_ids, v)
            if total < best[t]:
                best[t] = total
                choice[t] = v


def solve_subsets(problem: Problem, tracker: Tracker) -> bool:
    """Whether the optimum of a small scalar graph is proven within the budget."""
    n = problem.n
    if problem.tables is not None or n > MAX_VERTICES:
        raise ValueError(
            f"dynamic programming over sets needs a scalar graph of at most {MAX_VERTICES} "
            f"vertices, got {n} vertices{'' if problem.tables is None else ' of arrays'}"
        )
    core = problem.core
    bits = np.zeros((n + 1, *core.bits.shape), np.uint64)
    ids = np.zeros((n + 1, *core.ids.shape), np.int32)
    bits[n], ids[n] = core.bits, core.ids
    best = np.full(1 << n, np.iinfo(np.int64).max // 2, np.int64)
    choice = np.zeros(1 << n, np.int8)
    best[0] = 0
    for begin in range(0, 1 << n, _CHUNK):
        if tracker.spent():
            return False
        end = min(begin + _CHUNK, 1 << n)
        _sweep(core, bits, ids, begin, end, best, choice)
        tracker.add(end - begin)
    cost = int(best[-1])
    if cost < tracker.cost:
        order, s = [], (1 << n) - 1
        while s:
            order.append(int(choice[s]))
            s ^= 1 << order[-1]
        tracker.improve(np.array(order[::-1], np.int64), cost)
    tracker.raise_bound(cost)
    return True
