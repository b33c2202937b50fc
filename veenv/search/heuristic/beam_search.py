"""Beam search over sets of eliminated vertices, guided by completions of the best order.

Layer k holds states reached by k eliminations.  Every one-vertex extension of the layer is scored
by what it costs in all if the vertices left then follow in the order of the guide, the best order
known; extensions that eliminate the same set are merged (the cheapest stays) and the best `width`
go on.  So a pass never ends above its guide, every score is the cost of a real order, and the best
order met anywhere becomes the next guide.

Sets are distinguished by the exclusive or of one random 64-bit number per vertex (Zobrist 1970).  A
collision, or for arrays two orders of one set with different structures, could only drop a state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veenv.search.budget import Tracker
from veenv.search.kernels.compilation import compiled, make_rng, next_random
from veenv.search.kernels.kernels import copy_state, cost_of, eliminate, may_go
from veenv.search.problem import MAX_BYTES, Problem

_FIRST_WIDTH = 8
_CHUNK = 64


@compiled
def _extend(core, bits, ids, alive, parents, costs):
    """Cost of eliminating each vertex next from each state, int64 [B, n] (-1 where it may not)."""
    for b in range(parents):
        state, state_ids = bits[b], ids[b]
        for v in range(core.n):
            possible = alive[b, v] and may_go(core, alive[b], v)
            costs[b, v] = cost_of(core, state, state_ids, v) if possible else -1


@compiled
def _complete(core, bits, ids, alive, parents, moves, guide, begin, end, now, now_ids, totals):
    """Cost of extensions begin .. end - 1 and their completion along the guide, into `totals`.

    States of the layer have a leading axis B, as has alive, bool [B, n]; parents and moves, int64
    [E], are state and vertex of each extension; `now` and `now_ids` are scratch.
    """
    for e in range(begin, end):
        b, v = parents[e], moves[e]
        copy_state(now, now_ids, bits[b], ids[b])
        total = eliminate(core, now, now_ids, v)
        for i in range(core.n):
            w = guide[i]
            if w != v and alive[b, w]:
                total += eliminate(core, now, now_ids, w)
        totals[e] = total


@compiled
def _advance(core, bits, ids, alive, new_bits, new_ids, new_alive, parents, moves):
    """Builds the next layer: state i is state parents[i] with moves[i] eliminated."""
    for i in range(parents.shape[0]):
        copy_state(new_bits[i], new_ids[i], bits[parents[i]], ids[parents[i]])
        new_alive[i] = alive[parents[i]]
        new_alive[i, moves[i]] = False
        eliminate(core, new_bits[i], new_ids[i], moves[i])


@compiled
def _zobrist(rng, numbers):
    for i in range(numbers.shape[0]):
        numbers[i] = next_random(rng)


@dataclass(frozen=True, eq=False)
class _Layer:
    """States after equally many eliminations: B places, `count` of them in use."""

    bits: np.ndarray  # uint64 [B, 3, N, W]
    ids: np.ndarray  # int32 [B, N, N]
    alive: np.ndarray  # bool [B, n]


def _make_layer(problem: Problem, width: int) -> _Layer:
    core = problem.core
    layer = _Layer(
        np.empty((width, *core.bits.shape), np.uint64),
        np.empty((width, *core.ids.shape), np.int32),
        np.ones((width, problem.n), np.bool_),
    )
    layer.bits[0], layer.ids[0] = core.bits, core.ids
    return layer


def beam_pass(problem: Problem, tracker: Tracker, width: int, seed: int, number: int) -> bool:
    """One beam search, guided by the tracker's order; says whether it ended within the budget.

    One evaluation is counted for each extension scored; `number`, of the pass, breaks ties.
    """
    core, n = problem.core, problem.n
    layer, spare = _make_layer(problem, width), _make_layer(problem, width)
    guide = tracker.order.copy()
    now, now_ids = core.bits.copy(), core.ids.copy()
    numbers = np.zeros(n, np.uint64)
    _zobrist(make_rng(seed), numbers)
    ties = np.random.default_rng([seed, number])
    come, keys = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    history: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(n):
        costs = np.zeros((len(come), n), np.int64)
        _extend(core, layer.bits, layer.ids, layer.alive, len(come), costs)
        parents, moves = np.nonzero(costs >= 0)
        reached = come[parents] + costs[parents, moves]
        new_keys = keys[parents] ^ numbers[moves]
        ranked = np.lexsort((ties.random(len(reached)), reached, new_keys))
        first = np.ones(len(ranked), np.bool_)
        first[1:] = new_keys[ranked[1:]] != new_keys[ranked[:-1]]
        unique = ranked[first]
        parents, moves = parents[unique], moves[unique]
        totals = np.zeros(len(unique), np.int64)
        for begin in range(0, len(unique), _CHUNK):
            if tracker.done():
                return False
            end = min(begin + _CHUNK, len(unique), begin + tracker.evaluations_left())
            _complete(
                core, layer.bits, layer.ids, layer.alive, parents, moves, guide, begin, end,
                now, now_ids, totals,
            )  # fmt: skip
            tracker.add(end - begin)
            totals[begin:end] += come[parents[begin:end]]
            best = begin + int(np.argmin(totals[begin:end]))
            if totals[best] < tracker.cost:
                order = _path([*history, (parents, moves)], best)
                done = set(order)
                order += [int(v) for v in guide if int(v) not in done]
                tracker.improve(np.array(order, np.int64), int(totals[best]))
            if end < min(begin + _CHUNK, len(unique)):
                return False
        chosen = np.lexsort((ties.random(len(totals)), totals))[:width]
        parents, moves = parents[chosen], moves[chosen]
        _advance(
            core, layer.bits, layer.ids, layer.alive, spare.bits, spare.ids, spare.alive,
            parents, moves,
        )  # fmt: skip
        layer, spare = spare, layer
        come, keys = reached[unique[chosen]], new_keys[unique[chosen]]
        history.append((parents, moves))
    return True


def _path(history: list[tuple[np.ndarray, np.ndarray]], last: int) -> list[int]:
    """The vertices eliminated on the way to extension `last` of the last layer."""
    path, i = [], last
    for parents, moves in reversed(history):
        path.append(int(moves[i]))
        i = int(parents[i])
    return path[::-1]


def beam(problem: Problem, tracker: Tracker, seed: int, width: int | None = None) -> None:
    """Beam searches until the budget is spent, or one of the given width.

    By default the width is 8, doubled after every pass that finds nothing.

    Raises:
      ValueError: if the width is not positive or too large for memory.
    """
    state = problem.core.bits.nbytes + problem.core.ids.nbytes
    most = max(1, MAX_BYTES // state)
    if width is not None and not 1 <= width <= most:
        raise ValueError(f"beam width must be in 1 .. {most} for this graph, got {width}")
    current, number = width or min(_FIRST_WIDTH, most), 0
    while not tracker.done():
        before = tracker.cost
        beam_pass(problem, tracker, current, seed, number)
        if width is not None:
            return
        if tracker.cost == before:
            current = min(2 * current, most)
        number += 1
