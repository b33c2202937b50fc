"""Exact search: A* over the states reached by eliminating sets of vertices.

Two orders that eliminate the same set merge if they lead to the same graph: always for scalars
(`subsets`), and for arrays if the structures agree, which a 64-bit hash of all (edge, structure)
pairs decides together with the exact set.  The heuristic is the sum over the tables of `patterns`,
which is consistent.

Rules that need no branching, for scalars whose edges are all valued where multiplications are
counted alone (cost = in × out degree):

**Safe vertices.** Let v (no output) cost exactly `bounds.vertex_bounds` now, so that no later time
is cheaper.  v may come first if (a) its elimination creates no edge; or (b) its only successor is
never eliminated; or (c) its only predecessor is an input.  Proof: take any completion and move v to
its front.  (a) The graph without v is the graph minus a vertex, so every later degree is at most
what it was, and stays so.  (b) Let w be the successor.  While v stays in the graph, its successor
is w, so having eliminated v means: wherever x → v was an edge, x → w is.  Out-degrees are at most
what they were, in-degrees of all but w unchanged, and w is never eliminated.  (c) The mirror
image.  ∎

**False twins.** If v is eliminated and a, not an output, has the same predecessors and the same
successors as v, then a comes right after v in some optimal completion.  Proof: let an optimal
completion eliminate v after T and its twin a after T' ⊇ T ∪ {v}.  Let σ₁ move a up to right after
v, and σ₂ move v down to right before a; from T' ∪ {a} on all three agree.  a costs in σ₁ what v
costs, c(T), and v costs in σ₂ what a costs, c(T').  For x between: x is a predecessor (or
successor; mirror image) of both twins or of neither.  In neither case its degrees agree in all
three.  If of both, its in-degree d is the same in all three, and with o the number of its
successors other than v and a and the twins' fill present, its out-degree is o in σ₁, o + 1 in the
given order (the twin a is left and v's fill is there), and at most o + 2 in σ₂ (less if fill is
missing).  So cost(σ₁) + cost(σ₂) ≤ 2 · cost(given).  Since cost(σ₂) cannot be below the optimum,
cost(σ₁) is not above it.  ∎

Neither is used where some vertices must wait for others.

Both rules keep an optimal way from every state on an optimal path: the twin rule looks at the
parent by which a state is reached most cheaply, and if the state is on an optimal path, so is it.
"""

from __future__ import annotations

import numpy as np

from veenv.search.budget import Tracker
from veenv.search.exact.bounds import vertex_bounds
from veenv.search.exact.frontier import digest_change, insert, make_frontier, pop
from veenv.search.exact.patterns import Patterns, least_change, single_patterns
from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit
from veenv.search.kernels.kernels import PRED, SUCC, copy_state, cost_of, degree, eliminate
from veenv.search.problem import Problem

_MAX_STATES = 1 << 22
_CHUNK = 256
SOLVED, RUNNING, FULL = 0, 1, 2


@compiled
def _is_safe(core, bits, v, bound):
    """Whether v, of a plain scalar graph, may be eliminated next (rules a, b and c)."""
    ins, outs = degree(bits, PRED, v), degree(bits, SUCC, v)
    if core.kept[v] or ins * outs > bound:
        return False
    fill = False
    for k in range(bits.shape[2]):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            if ins == 1 and u >= core.n:
                return True
            for j in range(bits.shape[2]):
                fill = fill or (bits[SUCC, v, j] & ~bits[SUCC, u, j]) != ZERO
        if outs == 1 and bits[SUCC, v, k] != ZERO:
            w = (k << 6) + lowest_bit(bits[SUCC, v, k])
            if w >= core.n:
                return True
    return not fill


@compiled
def _may_go(core, gone, v):
    """Whether what must go before v is in a set (uint64 [Wn])."""
    if core.before.shape[0] > 0:
        for k in range(gone.shape[0]):
            if core.before[v, k] & ~gone[k] != ZERO:
                return False
    return True


@compiled
def _are_twins(bits, a, b):
    for k in range(bits.shape[2]):
        if bits[PRED, a, k] != bits[PRED, b, k] or bits[SUCC, a, k] != bits[SUCC, b, k]:
            return False
    return True


@compiled
def _replay(core, front, state, path, bits, ids):
    """Puts a state's graph into (bits, ids), following its path from the beginning."""
    length = 0
    while state > 0:
        path[length] = front.move[state]
        length += 1
        state = front.parent[state]
    copy_state(bits, ids, core.bits, core.ids)
    for i in range(length - 1, -1, -1):
        eliminate(core, bits, ids, path[i])
    return length


@compiled
def _expand(core, plain, front, patterns, cutoff, count, bits, ids, next_bits, next_ids):
    """Expands up to `count` states; a solution must beat `cutoff`.

    With `plain` the rules for plain scalars apply; `bits`, `ids`, `next_bits` and `next_ids` are
    scratch.  Returns (status, state, expanded): SOLVED with the goal state, or -1 if nothing beats
    `cutoff`; RUNNING; FULL if memory is.
    """
    n = core.n
    path = np.zeros(n, np.int64)
    members = np.zeros(front.sets.shape[1], np.uint64)
    for expanded in range(count):
        if front.sizes[0] + n + 1 > front.sets.shape[0]:
            return FULL, -1, expanded
        if front.sizes[1] + n + 1 > front.queue.shape[0]:
            return FULL, -1, expanded
        state = -1
        while front.sizes[1] > 0:
            state = pop(front.queue, front.sizes)
            if not front.closed[state]:
                break
            state = -1
        if state < 0:
            return SOLVED, -1, expanded
        front.closed[state] = True
        if _replay(core, front, state, path, bits, ids) == n:
            return SOLVED, state, expanded
        forced = -1
        if plain:
            last = front.move[state] if state > 0 else -1
            if last >= 0:
                forced = _twin_left(core, front, state, bits, next_bits, next_ids, path)
            for v in range(n):
                left = not (front.sets[state, v >> 6] >> np.uint64(v & 63)) & ONE
                if forced < 0 and left and _is_safe(core, bits, v, patterns.alone[v]):
                    forced = v
        for v in range(n):
            if front.sets[state, v >> 6] >> np.uint64(v & 63) & ONE:
                continue
            if (forced >= 0 and v != forced) or not _may_go(core, front.sets[state], v):
                continue
            cost = front.cost[state] + cost_of(core, bits, ids, v)
            rest = front.rest[state] + least_change(patterns, front.sets[state], v)
            if cost + rest >= cutoff:
                continue
            members[:] = front.sets[state]
            members[v >> 6] |= ONE << np.uint64(v & 63)
            digest = front.digest[state] + digest_change(core, bits, ids, v)
            insert(front, members, digest, cost, rest, state, v, cutoff)
    return RUNNING, -1, count


@compiled
def _twin_left(core, front, state, bits, old_bits, old_ids, path):
    """A vertex left that was a false twin of the vertex eliminated last, or -1."""
    last = front.move[state]
    if core.kept[last]:
        return -1
    _replay(core, front, front.parent[state], path, old_bits, old_ids)
    for v in range(core.n):
        left = not (front.sets[state, v >> 6] >> np.uint64(v & 63)) & ONE
        if left and not core.kept[v] and _are_twins(old_bits, v, last):
            return v
    return -1


def solve_astar(
    problem: Problem,
    tracker: Tracker,
    patterns: Patterns | None = None,
    max_states: int = _MAX_STATES,
) -> bool:
    """Whether the tracker's order is proven optimal, or the optimum found, within its budget.

    The bounds are `vertex_bounds`, each vertex on its own, unless `patterns` has more.
    """
    patterns = single_patterns(vertex_bounds(problem)) if patterns is None else patterns
    tracker.raise_bound(patterns.total)
    if tracker.cost <= tracker.lower_bound:
        return True
    core = problem.core
    plain = bool(getattr(core, "plain", False)) and not core.additions and not problem.waits
    front = make_frontier(problem, patterns.total, max_states)
    scratch = [a.copy() for a in (core.bits, core.ids, core.bits, core.ids)]
    status = RUNNING
    while status == RUNNING and not tracker.spent():
        count = min(_CHUNK, tracker.evaluations_left())
        status, state, expanded = _expand(
            core, plain, front, patterns, tracker.cost, count, *scratch
        )
        tracker.add(int(expanded))
        if front.sizes[1] > 0 and status != SOLVED:
            tracker.raise_bound(int(front.queue[0, 0]))
        if status == SOLVED:
            if state >= 0:
                path = np.zeros(problem.n, np.int64)
                _replay(core, front, state, path, scratch[0], scratch[1])
                tracker.improve(path[::-1].copy(), int(front.cost[state]))
            tracker.raise_bound(tracker.cost)
            return True
    return False
