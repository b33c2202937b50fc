"""Greedy orders: always the vertex of least score next, ties to the lowest id.

| rule | score |
| --- | --- |
| markowitz | in-degree × out-degree (Griewank & Reese 1991) |
| cost | what eliminating it now costs, under the cost model |
| relative-markowitz | Markowitz degree − inputs it depends on × outputs it reaches (Naumann 1999) |
| fill-in | number of edges its elimination would create |
"""

from __future__ import annotations

import numpy as np

from veenv.search.kernels.compilation import compiled, lowest_bit, popcount
from veenv.search.kernels.kernels import copy_state, cost_of, eliminate
from veenv.search.kernels.scalar import PRED, SUCC, degree, may_go
from veenv.search.problem import Problem

RULES = {"markowitz": 0, "cost": 1, "relative-markowitz": 2, "fill-in": 3}

_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@compiled
def _fill_in(bits, v):
    """Number of edges that eliminating v would create."""
    total = 0
    words = bits.shape[2]
    for k in range(words):
        rest = bits[PRED, v, k]
        while rest != _ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - _ONE
            for j in range(words):
                total += popcount(bits[SUCC, v, j] & ~bits[SUCC, u, j])
    return total


@compiled
def _score(core, bits, ids, rule, reach, v):
    """Score of eliminating v now; `reach` is int64 [n]."""
    if rule == 1:
        return cost_of(core, bits, ids, v)
    if rule == 3:
        return _fill_in(bits, v)
    score = degree(bits, PRED, v) * degree(bits, SUCC, v)
    return score - reach[v] if rule == 2 else score


@compiled
def first_choice(core, alive, scores):
    """The vertex of least score that may go now, ties to the lowest id; -1 if there is none.

    Args:
      core: the graph's constants.
      alive: bool [n]; vertices not eliminated.
      scores: numbers [n].
    """
    best = -1
    for v in range(core.n):
        if alive[v] and (best < 0 or scores[v] < scores[best]) and may_go(core, alive, v):
            best = v
    return best


@compiled
def mark_touched(bits, v, far, near):
    """Bits of the nodes of which eliminating v changes what a score sees, into `near`.

    Args:
      bits: uint64 [3, N, W]; the state.
      v: the vertex.
      far: also those that stand between a predecessor and a successor of v: new edges between these
        change the fill-in and the additions of vertices that are no neighbours.
      near: uint64 [W]; written.
    """
    words = bits.shape[2]
    below, above = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    for k in range(words):
        rest = bits[PRED, v, k] if far else _ZERO
        while rest != _ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - _ONE
            for j in range(words):
                below[j] |= bits[SUCC, u, j]
        rest = bits[SUCC, v, k] if far else _ZERO
        while rest != _ZERO:
            w = (k << 6) + lowest_bit(rest)
            rest &= rest - _ONE
            for j in range(words):
                above[j] |= bits[PRED, w, j]
    for k in range(words):
        near[k] = bits[PRED, v, k] | bits[SUCC, v, k] | (below[k] & above[k])


@compiled
def _greedy(core, bits, ids, alive, rule, reach, order, filled):
    """Completes an order greedily.

    Args:
      core: the graph's constants.
      bits: uint64 [3, N, W]; the state, changed.
      ids: int32 [N, N]; the state, changed.
      alive: bool [n]; vertices not eliminated, changed.
      rule: value of `RULES`.
      reach: int64 [n]; what rule 2 subtracts from the degree.
      order: int64 [n]; positions from `filled` on are written.
      filled: vertices eliminated already.

    Returns:
      What the completion costs.
    """
    n = core.n
    far = rule == 3 or (rule == 1 and core.additions)
    scores = np.zeros(n, np.int64)
    for v in range(n):
        if alive[v]:
            scores[v] = _score(core, bits, ids, rule, reach, v)
    near = np.zeros(bits.shape[2], np.uint64)
    total = np.int64(0)
    for position in range(filled, n):
        best = first_choice(core, alive, scores)
        mark_touched(bits, best, far, near)
        alive[best] = False
        order[position] = best
        total += eliminate(core, bits, ids, best)
        for v in range(n):
            if alive[v] and near[v >> 6] >> np.uint64(v & 63) & _ONE:
                scores[v] = _score(core, bits, ids, rule, reach, v)
    return total


@compiled
def _ahead(core, bits, ids, alive, depth, width):
    """Least cost of `depth` further eliminations, among the `width` cheapest at each step.

    Args:
      core: the graph's constants.
      bits: uint64 [D, 3, N, W]; the state at D - 1 - depth; later entries are scratch.
      ids: int32 [D, N, N]; the same.
      alive: bool [n].
      depth: eliminations to look at.
      width: candidates at each step.

    Returns:
      (cost, first vertex); (0, -1) at depth zero or when nothing is left.
    """
    level = bits.shape[0] - 1 - depth
    best, choice = np.int64(0), -1
    if depth == 0:
        return best, choice
    n = core.n
    never = np.int64(1) << np.int64(62)
    costs = np.full(n, never)
    for v in range(n):
        if alive[v] and may_go(core, alive, v):
            costs[v] = cost_of(core, bits[level], ids[level], v)
    ranked = np.argsort(costs, kind="mergesort")
    for i in range(min(width, n)):
        v = ranked[i]
        if costs[v] == never:
            break
        if choice >= 0 and costs[v] >= best:
            break
        copy_state(bits[level + 1], ids[level + 1], bits[level], ids[level])
        alive[v] = False
        total = eliminate(core, bits[level + 1], ids[level + 1], v)
        total += _ahead(core, bits, ids, alive, depth - 1, width)[0]
        alive[v] = True
        if choice < 0 or total < best:
            best, choice = total, v
    return best, choice


def reach_counts(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """How many inputs each vertex depends on, and how many outputs it reaches: two int64 [n]."""
    kept, n = problem.core.kept, problem.n
    targets = {v for _, v in problem.edges}
    above = [0 if u in targets else 1 << u for u in range(len(kept))]
    below = [1 << u if kept[u] else 0 for u in range(len(kept))]
    # Vertices are numbered as they were traced: all that goes into one has a lower number.
    for u, v in sorted(problem.edges, key=lambda edge: edge[1] if edge[1] < n else n):
        above[v] |= above[u]
    for u, v in sorted(problem.edges, key=lambda edge: -edge[0] if edge[0] < n else 1):
        below[u] |= below[v]
    counts = [[row.bit_count() for row in rows[:n]] for rows in (above, below)]
    return np.array(counts[0], np.int64), np.array(counts[1], np.int64)


def reach_products(problem: Problem) -> np.ndarray:
    """Number of inputs each vertex depends on times outputs it reaches, int64 [n]."""
    above, below = reach_counts(problem)
    return above * below


def greedy(problem: Problem, rule: str = "markowitz") -> np.ndarray:
    """Greedy order by one of `RULES`.

    Returns:
      Local order, int64 [n].

    Raises:
      ValueError: if the rule is unknown.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    core, n = problem.core, problem.n
    reach = np.zeros(n, np.int64)
    if rule == "relative-markowitz":
        reach = reach_products(problem)
    order = np.zeros(n, np.int64)
    alive = np.ones(n, np.bool_)
    bits, ids = core.bits.copy(), core.ids.copy()
    _greedy(core, bits, ids, alive, RULES[rule], reach, order, 0)
    return order


def lookahead(problem: Problem, depth: int = 2, width: int = 8) -> np.ndarray:
    """Order that eliminates the first vertex of the cheapest next `depth` eliminations.

    Args:
      problem: the problem.
      depth: eliminations to look ahead; 1 is the cost-greedy order.
      width: only the `width` cheapest vertices are tried at each step.

    Returns:
      Local order, int64 [n].

    Raises:
      ValueError: if depth or width is not positive.
    """
    if depth < 1 or width < 1:
        raise ValueError(f"depth and width must be positive, got {depth} and {width}")
    core, n = problem.core, problem.n
    bits = np.zeros((depth + 1, *core.bits.shape), np.uint64)
    ids = np.zeros((depth + 1, *core.ids.shape), np.int32)
    copy_state(bits[0], ids[0], core.bits, core.ids)
    alive = np.ones(n, np.bool_)
    order = np.zeros(n, np.int64)
    for position in range(n):
        _, v = _ahead(core, bits, ids, alive, depth, width)
        eliminate_now(core, bits[0], ids[0], v)
        alive[v] = False
        order[position] = v
    return order


@compiled
def eliminate_now(core, bits, ids, v):
    """`kernels.eliminate`, callable from Python."""
    return eliminate(core, bits, ids, v)
