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
    # New edges between neighbours change the fill-in and the additions of vertices further off.
    far = rule == 3 or (rule == 1 and core.additions)
    scores = np.zeros(n, np.int64)
    for v in range(n):
        if alive[v]:
            scores[v] = _score(core, bits, ids, rule, reach, v)
    near = np.zeros(bits.shape[2], np.uint64)
    total = np.int64(0)
    for position in range(filled, n):
        best = -1
        for v in range(n):
            if alive[v] and (best < 0 or scores[v] < scores[best]) and may_go(core, alive, v):
                best = v
        for k in range(near.shape[0]):
            near[k] = bits[PRED, best, k] | bits[SUCC, best, k]
        alive[best] = False
        order[position] = best
        total += eliminate(core, bits, ids, best)
        for v in range(n):
            if alive[v] and (far or near[v >> 6] >> np.uint64(v & 63) & _ONE):
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


def _words(bits: np.ndarray) -> list[int]:
    """Rows of a bitset array as Python ints."""
    return [int.from_bytes(row.tobytes(), "little") for row in bits]


def reach_products(problem: Problem) -> np.ndarray:
    """Number of inputs each vertex depends on times outputs it reaches, int64 [n]."""
    bits, kept = problem.core.bits, problem.core.kept
    counts = []
    for side in (PRED, SUCC):
        rows = _words(bits[side])
        ends = [
            node for node in range(len(rows)) if (kept[node] if side == SUCC else not rows[node])
        ]
        found: dict[int, int] = {}
        for root in range(problem.n):
            stack = [root]
            while stack:
                node = stack[-1]
                nexts = [x for x in range(len(rows)) if rows[node] >> x & 1]
                waiting = [x for x in nexts if x not in found]
                if waiting:
                    stack.extend(waiting)
                    continue
                stack.pop()
                here = 1 << node if node in ends else 0
                for x in nexts:
                    here |= found[x]
                found[node] = here
        counts.append([found[v].bit_count() for v in range(problem.n)])
    return np.array(counts[0], np.int64) * np.array(counts[1], np.int64)


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
