"""Greedy orders: always the vertex of least score next, ties to the lowest id.

| rule | score |
| --- | --- |
| markowitz | in-degree × out-degree (Griewank & Reese 1991) |
| cost | what eliminating it now costs, under the cost model |
"""

from __future__ import annotations

import numpy as np

from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit
from veenv.search.kernels.kernels import PRED, SUCC, cost_of, degree, eliminate, may_go
from veenv.search.problem import Problem

RULES = "markowitz", "cost"


@compiled
def _score(core, bits, ids, by_cost, v):
    """Returns the score of eliminating v now."""
    if by_cost:
        return cost_of(core, bits, ids, v)
    return degree(bits, PRED, v) * degree(bits, SUCC, v)


@compiled
def first_choice(core, alive, scores):
    """Returns the vertex of least score that may go now, ties to the lowest id; -1 if none may.

    `alive`, bool [n], are the vertices that are not eliminated.
    """
    best = -1
    for v in range(core.n):
        if alive[v] and (best < 0 or scores[v] < scores[best]) and may_go(core, alive, v):
            best = v
    return best


@compiled
def mark_touched(bits, v, far, near):
    """Marks the nodes whose score eliminating v changes, as bits in near, uint64 [W].

    With `far` also those that stand between a predecessor and a successor of v: new edges between
    these change the fill-in and the additions of vertices that are no neighbours.
    """
    words = bits.shape[2]
    below, above = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    for k in range(words):
        rest = bits[PRED, v, k] if far else ZERO
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            for j in range(words):
                below[j] |= bits[SUCC, u, j]
        rest = bits[SUCC, v, k] if far else ZERO
        while rest != ZERO:
            w = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            for j in range(words):
                above[j] |= bits[PRED, w, j]
    for k in range(words):
        near[k] = bits[PRED, v, k] | bits[SUCC, v, k] | (below[k] & above[k])


@compiled
def _greedy(core, bits, ids, by_cost, order):
    """Writes a greedy order, int64 [n], and leaves the state after it."""
    n = core.n
    alive, scores = np.ones(n, np.bool_), np.zeros(n, np.int64)
    for v in range(n):
        scores[v] = _score(core, bits, ids, by_cost, v)
    near = np.zeros(bits.shape[2], np.uint64)
    for position in range(n):
        best = first_choice(core, alive, scores)
        mark_touched(bits, best, by_cost and core.additions, near)
        alive[best] = False
        order[position] = best
        eliminate(core, bits, ids, best)
        for v in range(n):
            if alive[v] and near[v >> 6] >> np.uint64(v & 63) & ONE:
                scores[v] = _score(core, bits, ids, by_cost, v)


def greedy(problem: Problem, rule: str = "markowitz") -> np.ndarray:
    """Returns the greedy local order by one of `RULES`, int64 [n]."""
    order = np.zeros(problem.n, np.int64)
    bits, ids = problem.core.bits.copy(), problem.core.ids.copy()
    _greedy(problem.core, bits, ids, rule == "cost", order)
    return order
