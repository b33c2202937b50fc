"""Exact search: A* over the states reached by eliminating sets of vertices.

Two orders that eliminate the same set merge if they lead to the same graph: always for scalars, and
for arrays if the structures agree, which a 64-bit hash of all (edge, structure) pairs decides
together with the exact set.  The heuristic is the sum over the tables of `patterns`, which is
consistent.

**The state of a scalar graph depends only on the set S eliminated.**  An edge u → w is there if
and only if a path from u to w leads through S only, and it is valued if and only if there are two
such paths or the only one has a valued edge.  Proof by induction over eliminations: eliminating v
joins to the paths u → w through S those through v, which are the pairs of a path u → v and a path
v → w.  Two paths in total: either both the old edge and the product are there, and sums are
valued; or one of them stands for two paths already, and is valued by induction (a product with a
valued factor is).  One path: a product is unit if and only if both factors are.  An eliminated
output loses its out-edges and keeps its in-edges, which changes no path to the others.  ∎

A rule that needs no branching, for scalars whose edges are all valued where multiplications are
counted alone (cost = in × out degree):

**Safe vertices.** Let v (no output) cost exactly `bounds.vertex_bounds` now, so that no later time
is cheaper.  v may come first if (a) its elimination creates no edge; or (b) its only successor is
never eliminated; or (c) its only predecessor is an input.  Proof: take any completion and move v to
its front.  (a) The graph without v is the graph minus a vertex, so every later degree is at most
what it was, and stays so.  (b) Let w be the successor.  While v stays in the graph, its successor
is w, so having eliminated v means: wherever x → v was an edge, x → w is.  Out-degrees are at most
what they were, in-degrees of all but w unchanged, and w is never eliminated.  (c) The mirror
image.  ∎

It is not used where some vertices must wait for others.  (False twins, of which one may follow the
other at once, are not looked for: that saved hardly a state, and took a fifth of the time.)
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
    """Returns whether v, of a plain scalar graph, may be eliminated next (rules a, b and c)."""
    ins, outs = degree(bits, PRED, v), degree(bits, SUCC, v)
    if core.is_output[v] or ins * outs > bound:
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
    """Returns whether the vertices that precede v are in a set (uint64 [Wn])."""
    if core.before.shape[0] > 0:
        for k in range(gone.shape[0]):
            if core.before[v, k] & ~gone[k] != ZERO:
                return False
    return True


@compiled
def _replay(core, front, state, path, bits, ids):
    """Restores a state's graph in (bits, ids), by replaying its path from the beginning."""
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
def _expand(core, plain, front, patterns, cutoff, count, bits, ids):
    """Expands up to `count` states; a solution must beat `cutoff`.

    With `plain` the rule for plain scalars applies; `bits` and `ids` are scratch.  Returns (status,
    state, expanded): SOLVED with the goal state, or -1 if nothing beats `cutoff`; RUNNING; FULL if
    memory is.
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


def solve_astar(
    problem: Problem,
    tracker: Tracker,
    patterns: Patterns | None = None,
    max_states: int = _MAX_STATES,
) -> bool:
    """Proves the tracker's order optimal, or finds the optimum; returns whether it succeeded.

    The bounds are `vertex_bounds`, each vertex on its own, unless `patterns` has more.
    """
    patterns = single_patterns(vertex_bounds(problem)) if patterns is None else patterns
    tracker.raise_bound(patterns.total)
    if tracker.cost <= tracker.lower_bound:
        return True
    core = problem.core
    plain = bool(getattr(core, "plain", False)) and not core.additions and not problem.waits
    front = make_frontier(problem, patterns.total, max_states)
    scratch = core.bits.copy(), core.ids.copy()
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
