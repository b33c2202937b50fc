"""Simulated annealing on elimination orders by the work of their programs.

Every candidate is eliminated from the beginning, as what a product costs depends on all that were
formed before it. Chains get longer and longer; the first starts from the best of the given orders,
the others from the best so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from veenv.search.heuristic.annealing import random_move
from veenv.search.kernels.compilation import compiled, make_rng, random_unit
from veenv.search.merged.elimination import Entries, work_of
from veenv.search.merged.model import Work, new_state

_CHUNK = 50
_MOVES = 2000
"""Moves of the first chain; every further one has a half more."""
_HOT, _COLD = 6.0, 0.4
"""Temperatures, in operations, at the beginning and at the end of the first chain."""
_REHEATED = (1.0, 0.5, 0.25)


@compiled
def _run(ops, graph, state, order, trial, where, near, rng, moves, first, last, cost, best):
    """Anneals `order` in place for some moves; returns its work, and that of `best`.

    Args:
      ops: the operations.
      graph: the entries.
      state: room for an elimination.
      order: int64 [n]; changed.
      trial: int64 [n]; the same.
      where: int64 [n]; position of each vertex in it.
      near: offsets and list of the neighbours of each vertex.
      rng: uint64 [1]; random state.
      moves: number of moves.
      first: temperature at the beginning.
      last: temperature at the end.
      cost: work of the order; and of the best order, int64 [2], changed.
      best: int64 [n]; the best order, changed.
    """
    cooling = (last / first) ** (1.0 / moves)
    temperature = first
    for _ in range(moves):
        temperature *= cooling
        lo, hi = random_move(trial, where, near[0], near[1], rng)
        work = work_of(ops, graph, state, trial)
        allowed = cost[0] + int(np.floor(-temperature * np.log(random_unit(rng))))
        if work < 0 or work > allowed:
            for i in range(lo, hi + 1):
                trial[i] = order[i]
            continue
        for i in range(lo, hi + 1):
            order[i] = trial[i]
            where[order[i]] = i
        cost[0] = work
        if work < cost[1]:
            cost[1] = work
            for i in range(order.shape[0]):
                best[i] = order[i]


def lightest(
    work: Work,
    starts: Sequence[Sequence[int]],
    stop: Callable[[int], bool],
    seed: int = 0,
) -> tuple[tuple[int, ...], int]:
    """An order of little work, and its work.

    Args:
      work: the function's.
      starts: orders of vertex ids to begin with, at least one.
      stop: of the number of orders evaluated so far whether to stop.
      seed: seed of the moves.
    """
    ops, graph = work.core
    best_ids = min(starts, key=work)
    best = work.local(best_ids)
    cost = np.full(2, work(best_ids), np.int64)
    state, near = new_state(graph), _neighbours(work, graph)
    done, chain, n = 0, 0, len(best)
    while n > 1 and not stop(done):
        rng = make_rng(seed, chain)
        order, trial, where = best.copy(), best.copy(), np.zeros(n, np.int64)
        where[order] = np.arange(n)
        cost[0] = cost[1]
        moves = int(_MOVES * 1.5**chain)
        hot = _HOT * _REHEATED[chain % len(_REHEATED)]
        for k in range(0, moves, _CHUNK):
            if stop(done):
                break
            count = min(_CHUNK, moves - k)
            above, below = (hot * (_COLD / hot) ** (at / moves) for at in (k, k + count))
            _run(ops, graph, state, order, trial, where, near, rng, count, above, below, cost, best)
            done += count
        chain += 1
    return work.ids(best), int(cost[1])


def _neighbours(work: Work, graph: Entries) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and list of the eliminable neighbours of each vertex."""
    place = {work.graph.node(v): k for k, v in enumerate(work.graph.eliminable)}
    lists: list[set[int]] = [set() for _ in place]
    for u, v in work.graph.edges:
        if u in place and v in place:
            lists[place[u]].add(place[v])
            lists[place[v]].add(place[u])
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return starts, np.array([u for near in lists for u in sorted(near)], np.int64)
