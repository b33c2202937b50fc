"""Simulated annealing on elimination orders.

A move changes one window of the order: one vertex goes elsewhere, a block of consecutive vertices
goes elsewhere, or two vertices change places.  A move that puts a vertex before one it must wait
for (`veenv.graph.precedence`) is not made; neighbouring vertices that change places lead from any
legal order to any other.  Distances are log-uniform: most moves are short and cheap to evaluate,
some cross the order.  Half of the single-vertex moves aim next to a neighbour of the vertex in the
original graph, since only the order among vertices that become neighbours matters.

The schedule is a sequence of chains fixed by the seed; the budget only decides where it stops, so
a longer budget extends a shorter one.  Chain c anneals for ``base · 2**(c // width)`` moves; in
each round of `width` chains the first starts hot from a good greedy order and the others re-heat
the best order to different, lower temperatures.

Reference: Kirkpatrick, Gelatt & Vecchi, "Optimization by simulated annealing" (1983); for
elimination orders, Naumann & Gottschling (2003).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veenv.search.budget import Tracker
from veenv.search.heuristic.windows import Tape, commit, discard, evaluate, load, make_tape
from veenv.search.kernels.compilation import (
    ONE,
    ZERO,
    compiled,
    make_rng,
    next_random,
    random_below,
    random_unit,
)
from veenv.search.kernels.kernels import copy_flat
from veenv.search.problem import Problem

_CHUNK = 4096
_BASE_MOVES = 50_000
_REHEAT = (1.0, 0.3, 0.5, 0.2)


@compiled
def _distance(rng, n):
    """A signed, log-uniform distance in 1 .. n - 1."""
    d = np.int64(np.exp(random_unit(rng) * np.log(np.float64(n))))
    d = max(1, min(d, n - 1))
    return d if next_random(rng) & np.uint64(1) else -d


@compiled
def _rotate(trial, source, length, target):
    """Moves the block [source, source + length) of `trial` so that it begins at `target`."""
    if target > source:
        for _ in range(length):
            first = trial[source]
            for i in range(source, target + length - 1):
                trial[i] = trial[i + 1]
            trial[target + length - 1] = first
    else:
        for _ in range(length):
            last = trial[source + length - 1]
            for i in range(source + length - 1, target, -1):
                trial[i] = trial[i - 1]
            trial[target] = last


@compiled
def random_move(trial, where, starts, neighbours, rng):
    """Changes an order, int64 [n], by one random move; returns the window (lo, hi).

    `where` has the position of each vertex, int64 [n]; the others are as of `_neighbours`.
    """
    n = trial.shape[0]
    kind = random_below(rng, 16)
    i = random_below(rng, n)
    if kind < 2:
        j = min(max(i + _distance(rng, n), 0), n - 1)
        trial[i], trial[j] = trial[j], trial[i]
        return min(i, j), max(i, j)
    length = 1
    if kind < 5:
        length = min(1 + abs(_distance(rng, min(n, 12))), n - 1)
        i = min(i, n - length)
    v = trial[i]
    near = starts[v + 1] - starts[v]
    if kind >= 10 and near > 0:
        u = neighbours[starts[v] + random_below(rng, near)]
        j = where[u] + random_below(rng, 3) - 1
    else:
        j = i + _distance(rng, n)
    j = min(max(j, 0), n - length)
    if j == i:
        j = i + 1 if i + length < n else i - 1
    _rotate(trial, i, length, j)
    return min(i, j), max(i, j) + length - 1


@compiled
def _is_legal(core, trial, lo, hi, left):
    """Whether no vertex at lo .. hi of `trial` stands before one there that it must wait for.

    The order is legal but for the window; `left`, uint64 [Wn], is scratch.
    """
    if core.before.shape[0] == 0:
        return True
    left[:] = ZERO
    for i in range(hi, lo - 1, -1):
        v = trial[i]
        for k in range(left.shape[0]):
            if core.before[v, k] & left[k] != ZERO:
                return False
        left[v >> 6] |= ONE << np.uint64(v & 63)
    return True


@compiled
def run_moves(
    core, tape, where, starts, neighbours, rng, moves, first, last, total, best, best_order
):
    """Anneals for `moves` moves while the temperature falls from `first` to `last`.

    The tape is loaded with an order that costs `total`; `where` has the position of each vertex on
    it, int64 [n].  Every better order than `best` goes into `best_order`, int64 [n].  Returns the
    cost of the tape's order and the best cost.
    """
    cooling = (last / first) ** (1.0 / max(moves, 1))
    temperature = first
    left = np.zeros(core.before.shape[1], np.uint64)
    for _ in range(moves):
        temperature *= cooling
        lo, hi = random_move(tape.trial, where, starts, neighbours, rng)
        if not _is_legal(core, tape.trial, lo, hi, left):
            discard(tape, lo, hi)
            continue
        allowed = np.int64(np.floor(-temperature * np.log(random_unit(rng))))
        change, end = evaluate(core, tape, lo, hi, allowed)
        if change > allowed:
            discard(tape, lo, hi)
            continue
        commit(tape, lo, end)
        for i in range(lo, hi + 1):
            where[tape.order[i]] = i
        total += change
        if total < best:
            best = total
            copy_flat(best_order, tape.order)  # a slice would compile its error message, too
    return total, best


@compiled
def uphill_changes(core, tape, where, starts, neighbours, rng, changes):
    """Changes of random moves from the tape's order that make it worse, into `changes`."""
    found = 0
    left = np.zeros(core.before.shape[1], np.uint64)
    for _ in range(8 * changes.shape[0]):
        if found == changes.shape[0]:
            break
        lo, hi = random_move(tape.trial, where, starts, neighbours, rng)
        if not _is_legal(core, tape.trial, lo, hi, left):
            discard(tape, lo, hi)
            continue
        change, _ = evaluate(core, tape, lo, hi, np.int64(1) << np.int64(60))
        discard(tape, lo, hi)
        if change > 0:
            changes[found] = change
            found += 1
    return found


def _neighbours(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and list of the eliminable neighbours of each vertex."""
    lists: list[set[int]] = [set() for _ in range(problem.n)]
    for u, v in problem.edges:
        if u < problem.n and v < problem.n:
            lists[u].add(v)
            lists[v].add(u)
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return starts, np.array([u for near in lists for u in sorted(near)], np.int64)


def _temperatures(
    problem: Problem,
    tape: Tape,
    where: np.ndarray,
    near: tuple[np.ndarray, np.ndarray],
    seed: int,
) -> tuple[float, float]:
    """Start and end temperature, from how much random moves make a good order worse."""
    changes = np.zeros(400, np.int64)
    found = uphill_changes(problem.core, tape, where, near[0], near[1], make_rng(seed), changes)
    return temperature_range(changes[:found])


def temperature_range(changes: np.ndarray) -> tuple[float, float]:
    """Start and end temperature for moves that make a good order worse by so much, int64 [k]."""
    if not len(changes):
        return 1.0, 0.1
    worse = np.sort(changes)
    return max(0.5 * float(np.median(worse)), 0.5), max(0.12 * float(worse[len(worse) // 20]), 0.12)


def anneal(
    problem: Problem, tracker: Tracker, starts: Sequence[np.ndarray], seed: int, width: int = 4
) -> None:
    """Anneals in rounds of `width` chains until the tracker's budget is spent.

    `starts` are local orders, int64 [n], best first.
    """
    n = problem.n
    if n < 2:
        return
    tape, near = make_tape(problem), _neighbours(problem)
    where = np.zeros(n, np.int64)
    best_order = tracker.order.copy()
    load(problem.core, tape, best_order)
    where[best_order] = np.arange(n)
    hot, cold = _temperatures(problem, tape, where, near, seed)
    chain = 0
    while not tracker.done():
        rng = make_rng(seed, chain + 1)
        round_number, place = divmod(chain, width)
        fresh = place == 0
        start = starts[round_number % len(starts)] if fresh else tracker.order
        total = int(load(problem.core, tape, start))
        where[start] = np.arange(n)
        moves = _BASE_MOVES << min(round_number, 16)
        first = max(hot * _REHEAT[place % len(_REHEAT)], 1.5 * cold)
        done = 0
        while done < moves and not tracker.done():
            count = min(_CHUNK, moves - done, tracker.evaluations_left())
            above, below = (first * (cold / first) ** (k / moves) for k in (done, done + count))
            total, best = run_moves(
                problem.core, tape, where, near[0], near[1], rng, count, above, below, total,
                tracker.cost, best_order,
            )  # fmt: skip
            done += count
            tracker.add(count)
            if best < tracker.cost:
                tracker.improve(best_order.copy(), int(best))
        chain += 1
