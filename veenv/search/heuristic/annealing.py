"""Moves of simulated annealing on elimination orders, and their evaluation.

A move changes one window of the order: one vertex goes elsewhere, a block of consecutive vertices
goes elsewhere, or two vertices change places.  A move that puts a vertex before one it must wait
for (`veenv.graph.precedence`) is not made; neighbouring vertices that change places lead from any
legal order to any other.  Distances are log-uniform: most moves are short and cheap to evaluate,
some cross the order.  Half of the single-vertex moves aim next to a neighbour of the vertex in the
original graph, since only the order among vertices that become neighbours matters.

`veenv.search.heuristic.regions` has the schedule.

Reference: Kirkpatrick, Gelatt & Vecchi, "Optimization by simulated annealing" (1983); for
elimination orders, Naumann & Gottschling (2003).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from veenv.search.kernels.compilation import (
    ONE,
    ZERO,
    compiled,
    next_random,
    random_below,
    random_unit,
)
from veenv.search.kernels.kernels import by_core, copy_state, eliminate
from veenv.search.problem import MAX_BYTES, Problem

_STRIDE_SCALAR = 6
_STRIDE_ARRAY = 16  # a state is large, so checkpoints are expensive


class Tape(NamedTuple):
    """An order under evaluation; n vertices, C checkpoints."""

    order: np.ndarray  # int64 [n]; the current order
    costs: np.ndarray  # int64 [n]; cost of each elimination
    trial: np.ndarray  # int64 [n]; the changed order, equal to `order` outside the window
    trial_costs: np.ndarray  # int64 [n]; its costs, valid in the evaluated window
    # uint64 [2, C, 3, N, W]; state before position c·stride, of order (0) and of trial (1)
    bits: np.ndarray
    ids: np.ndarray  # int32 [2, C, N, N]; the same
    now: np.ndarray  # uint64 [3, N, W]; working state
    now_ids: np.ndarray  # int32 [N, N]; the same
    stride: int  # positions between checkpoints


def make_tape(problem: Problem) -> Tape:
    """Makes an empty tape for a problem; `load` puts an order on it."""
    core, n = problem.core, problem.n
    state = core.bits.nbytes + core.ids.nbytes
    most = max(1, MAX_BYTES // (4 * state))
    usual = _STRIDE_SCALAR if problem.tables is None else _STRIDE_ARRAY
    stride = max(usual, -(-n // most))
    num = n // stride + 1
    order, costs, trial, trial_costs = (np.zeros(n, np.int64) for _ in range(4))
    bits = np.zeros((2, num, *core.bits.shape), np.uint64)
    ids = np.zeros((2, num, *core.ids.shape), np.int32)
    now = core.bits.copy(), core.ids.copy()
    return Tape(order, costs, trial, trial_costs, bits, ids, *now, stride)


def _always(core):
    return True


def _never(core):
    return False


set_determined = by_core(_always, _never)
"""Returns whether the set of eliminated vertices alone decides the state; for compiled callers."""


@compiled
def load(core, tape, order):
    """Puts an order (int64 [n]) on the tape; returns its cost."""
    copy_state(tape.now, tape.now_ids, core.bits, core.ids)
    total = np.int64(0)
    for i in range(core.n):
        if i % tape.stride == 0:
            c = i // tape.stride
            copy_state(tape.bits[0, c], tape.ids[0, c], tape.now, tape.now_ids)
        tape.order[i] = order[i]
        tape.trial[i] = order[i]
        tape.costs[i] = eliminate(core, tape.now, tape.now_ids, order[i])
        total += tape.costs[i]
    return total


@compiled
def same(a, b):
    """Returns whether two contiguous arrays of one shape are equal."""
    x, y = a.reshape(a.size), b.reshape(b.size)
    for start in range(0, x.shape[0], 64):
        differ = False
        for i in range(start, min(start + 64, x.shape[0])):
            differ |= x[i] != y[i]
        if differ:
            return False
    return True


@compiled
def evaluate(core, tape, lo, hi, allowed):
    """Returns the cost change of replacing `order` by `trial`, which differs in [lo, hi].

    Args:
      core: the graph's constants.
      tape: the tape; its working state, trial costs and trial checkpoints are changed.
      lo: first changed position.
      hi: last changed position.
      allowed: largest change of interest.

    Returns:
      (change, end): the change, and the position up to which trial costs are valid; or
      (some number above `allowed`, -1) as soon as the window alone exceeds `allowed`, which ends
      the matter for scalars and is a cheap reason not to look further for arrays.
    """
    order, trial, stride, bits, ids = tape.order, tape.trial, tape.stride, tape.bits, tape.ids
    costs, trial_costs, now, now_ids = tape.costs, tape.trial_costs, tape.now, tape.now_ids
    n = core.n
    start = lo // stride
    copy_state(now, now_ids, bits[0, start], ids[0, start])
    for i in range(start * stride, lo):
        eliminate(core, now, now_ids, order[i])
    change = np.int64(0)
    for i in range(lo, hi + 1):
        change -= costs[i]
    by_set = set_determined(core)
    i = lo
    while i < n:
        if i > hi and by_set:
            break
        if i % stride == 0 and i > lo:
            c = i // stride
            if i > hi and same(now_ids, ids[0, c]):
                break
            copy_state(bits[1, c], ids[1, c], now, now_ids)
        cost = eliminate(core, now, now_ids, trial[i])
        trial_costs[i] = cost
        change += cost
        if i > hi:
            change -= costs[i]
        elif change > allowed:
            return change, -1
        i += 1
    return change, i


@compiled
def commit(tape, lo, end):
    """Makes `trial` the order after `evaluate` returned `end`."""
    stride = tape.stride
    for i in range(lo, end):
        tape.order[i] = tape.trial[i]
        tape.costs[i] = tape.trial_costs[i]
    for c in range(lo // stride + 1, (end - 1) // stride + 1):
        copy_state(tape.bits[0, c], tape.ids[0, c], tape.bits[1, c], tape.ids[1, c])


@compiled
def discard(tape, lo, hi):
    """Restores `trial` to `order` in [lo, hi]."""
    for i in range(lo, hi + 1):
        tape.trial[i] = tape.order[i]


@compiled
def _distance(rng, n):
    """Draws a signed, log-uniform distance in 1 .. n - 1."""
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

    `where` has the position of each vertex, int64 [n]; `starts` and `neighbours` list
    the neighbours of each in the original graph.
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
    """Returns whether no vertex at lo .. hi of `trial` goes before one it must wait for.

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
def run_moves(core, tape, where, starts, neighbours, rng, moves, temperature):
    """Tries `moves` random moves, at one temperature, of the order that the tape is loaded with.

    `where` has the position of each vertex on it, int64 [n].
    """
    left = np.zeros(core.before.shape[1], np.uint64)
    for _ in range(moves):
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


@compiled
def uphill_changes(core, tape, where, starts, neighbours, rng, changes):
    """Samples cost increases of random moves from the tape's order, into `changes`."""
    count = 0
    left = np.zeros(core.before.shape[1], np.uint64)
    for _ in range(8 * changes.shape[0]):
        if count == changes.shape[0]:
            break
        lo, hi = random_move(tape.trial, where, starts, neighbours, rng)
        if not _is_legal(core, tape.trial, lo, hi, left):
            discard(tape, lo, hi)
            continue
        change, _ = evaluate(core, tape, lo, hi, np.int64(1) << np.int64(60))
        discard(tape, lo, hi)
        if change > 0:
            changes[count] = change
            count += 1
    return count


def end_temperature(changes: np.ndarray) -> float:
    """Returns the end temperature for moves with cost increases int64 [k]."""
    if not len(changes):
        return 0.1
    return max(0.12 * float(np.sort(changes)[len(changes) // 20]), 0.12)
