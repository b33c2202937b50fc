"""Anneals orders by regions: windows of an order, each a small graph by itself.

What a window of an order costs depends on what was eliminated before it, not on how that was
ordered, and only on the window's vertices and their neighbours at that time.  So the window is an
order of a small graph, on which `veenv.search.heuristic.annealing` makes its moves about as fast as
on a small function, whatever the size of the whole.

A sweep goes over the order with windows that overlap by half, at one temperature.  The best starts
get a sweep each, and the order that is best then goes on in rounds, of which each is twice as long
as the one before: the first is cold, the others re-heat the best order and cool it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from veenv.search.budget import Tracker
from veenv.search.heuristic.annealing import (
    Tape,
    end_temperature,
    load,
    make_tape,
    run_moves,
    uphill_changes,
)
from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit, make_rng
from veenv.search.kernels.kernels import PRED, SUCC, VALUED, copy_state, eliminate
from veenv.search.problem import Problem

_LENGTHS = (64, 128, 96)
_MOVES = 40
_MOST_STARTS = 3
_REHEAT = 5.0
_SAMPLE = 8


@compiled
def _nodes(bits, window, place, nodes):
    """Lists a window's vertices (int64 [L]), then their neighbours in `nodes`; returns the count.

    `place`, int64 [N], is -1; the position of each node found is written.
    """
    count = window.shape[0]
    for i in range(count):
        nodes[i] = window[i]
        place[window[i]] = i
    for i in range(window.shape[0]):
        v = window[i]
        for k in range(bits.shape[2]):
            rest = bits[PRED, v, k] | bits[SUCC, v, k]
            while rest != ZERO:
                u = (k << 6) + lowest_bit(rest)
                rest &= rest - ONE
                if place[u] < 0:
                    place[u] = count
                    nodes[count] = u
                    count += 1
    return count


@compiled
def _part(core, bits, ids, place, nodes, length, part_bits, part_ids, before):
    """Copies a part of a state to a small one, which is zero, and clears `place`.

    `nodes`, int64 [M], are those of the part, of which the first `length` can go; `place`, int64
    [N], has the number of each node in it, -1 for others.
    """
    for i in range(nodes.shape[0]):
        u = nodes[i]
        for k in range(bits.shape[2]):
            rest = bits[SUCC, u, k]
            while rest != ZERO:
                w = (k << 6) + lowest_bit(rest)
                bit = rest & (~rest + ONE)
                rest &= rest - ONE
                j = place[w]
                if j < 0:
                    continue
                part_bits[SUCC, i, j >> 6] |= ONE << np.uint64(j & 63)
                part_bits[PRED, j, i >> 6] |= ONE << np.uint64(i & 63)
                if bits[VALUED, u, k] & bit != ZERO:
                    part_bits[VALUED, i, j >> 6] |= ONE << np.uint64(j & 63)
                if part_ids.shape[0] > 1:
                    part_ids[i, j] = ids[u, w]
    for i in range(before.shape[0]):
        for k in range(core.before.shape[1]):
            rest = core.before[nodes[i], k]
            while rest != ZERO:
                j = place[(k << 6) + lowest_bit(rest)]
                rest &= rest - ONE
                if 0 <= j < length:
                    before[i, j >> 6] |= ONE << np.uint64(j & 63)
    for i in range(nodes.shape[0]):
        place[nodes[i]] = -1


@compiled
def _pairs(bits, length, starts, neighbours):
    """Lists neighbours among the first `length` nodes as offsets and list, which has room."""
    count = 0
    for i in range(length):
        starts[i] = count
        for k in range((length + 63) >> 6):
            rest = bits[PRED, i, k] | bits[SUCC, i, k]
            while rest != ZERO:
                u = (k << 6) + lowest_bit(rest)
                rest &= rest - ONE
                if u < length:
                    neighbours[count] = u
                    count += 1
    starts[length] = count


@compiled
def advance(core, bits, ids, window):
    """Eliminates the vertices of a window from a state; returns the cost."""
    total = np.int64(0)
    for i in range(window.shape[0]):
        total += eliminate(core, bits, ids, window[i])
    return total


class Sweeper:
    """Sweeps of annealing over the order of one problem, with shared scratch arrays."""

    def __init__(self, problem: Problem, tracker: Tracker, seed: int):
        self.problem, self.tracker = problem, tracker
        self.bits, self.ids = problem.core.bits.copy(), problem.core.ids.copy()
        self.place = np.full(len(problem.core.is_output), -1, np.int64)
        self.nodes = np.zeros(len(problem.core.is_output), np.int64)
        self.rng = make_rng(seed)

    def part(self, window: np.ndarray) -> Problem:
        """Returns the problem of a window's vertices in the current state."""
        whole = self.problem.core
        count = _nodes(self.bits, window, self.place, self.nodes)
        nodes, length = self.nodes[:count], len(window)
        bits = np.zeros((3, count, (count + 63) // 64), np.uint64)
        ids = np.zeros((1, 1) if self.problem.tables is None else (count, count), np.int32)
        before = np.zeros((length if self.problem.waits else 0, (length + 63) // 64), np.uint64)
        _part(whole, self.bits, self.ids, self.place, nodes, length, bits, ids, before)
        changed = {"n": length, "bits": bits, "ids": ids, "before": before}
        core = whole._replace(is_output=whole.is_output[nodes], **changed)
        return replace(self.problem, core=core, vertex_ids=window, edges=())

    def sweep(self, order: np.ndarray, length: int, temperature: float) -> int:
        """Anneals every window of an order at one temperature, changing it; returns its cost."""
        core, n = self.problem.core, self.problem.n
        copy_state(self.bits, self.ids, core.bits, core.ids)
        total, step = 0, max(1, length // 2)
        for low in range(0, n, step):
            window = order[low : low + length]
            moves = min(_MOVES * len(window), self.tracker.evaluations_left())
            if len(window) > 1 and not self.tracker.spent():
                window[:] = window[self.anneal(self.part(window), moves, temperature)]
                self.tracker.add(moves)
            total += int(advance(core, self.bits, self.ids, order[low : low + step]))
        return total

    def improve(self, order: np.ndarray, length: int, temperature: float) -> tuple[np.ndarray, int]:
        """Sweeps over an order; returns the new one and its cost, and reports better ones."""
        swept = order.copy()
        total = self.sweep(swept, length, temperature)
        if total < self.tracker.cost:
            self.tracker.improve(swept.copy(), total)
        return swept, total

    def anneal(self, part: Problem, moves: int, temperature: float) -> np.ndarray:
        """Anneals a part's vertices from their given order; returns the order, int64 [n]."""
        tape, where, starts, neighbours = _loaded(part)
        run_moves(part.core, tape, where, starts, neighbours, self.rng, moves, temperature)
        return tape.order

    def coldest(self, order: np.ndarray) -> float:
        """Returns the end temperature, from cost increases by moves in windows of a good order."""
        core, n, length = self.problem.core, self.problem.n, _LENGTHS[0]
        copy_state(self.bits, self.ids, core.bits, core.ids)
        changes, low = [np.zeros(0, np.int64)], 0
        for start in np.linspace(0, max(0, n - length), _SAMPLE).astype(int):
            advance(core, self.bits, self.ids, order[low:start])
            part, low = self.part(order[start : start + length]), start
            tape, where, starts, neighbours = _loaded(part)
            uphill = np.zeros(50, np.int64)
            count = uphill_changes(part.core, tape, where, starts, neighbours, self.rng, uphill)
            changes.append(uphill[:count])
        return end_temperature(np.concatenate(changes))


def _loaded(part: Problem) -> tuple[Tape, np.ndarray, np.ndarray, np.ndarray]:
    """Returns a tape with a part's vertices in their order, that order, and neighbour lists."""
    tape, n = make_tape(part), part.n
    order = np.arange(n)
    starts, neighbours = np.zeros(n + 1, np.int64), np.zeros(n * n, np.int64)
    _pairs(part.core.bits, n, starts, neighbours)
    load(part.core, tape, order)
    return tape, order, starts, neighbours


def anneal(problem: Problem, tracker: Tracker, starts: Sequence[np.ndarray], seed: int) -> None:
    """Anneals by regions until the tracker's budget is spent.

    `starts` are local orders, int64 [n], best first.
    """
    if problem.n < 2:
        return
    sweeper = Sweeper(problem, tracker, seed)
    cold = sweeper.coldest(starts[0])
    tried = [sweeper.improve(start, _LENGTHS[0], cold) for start in starts[:_MOST_STARTS]]
    order = min(tried, key=lambda pair: pair[1])[0]
    count = 1
    while not tracker.done():
        for k in range(count * len(_LENGTHS)):
            if tracker.done():
                return
            share = (k + 1) / (count * len(_LENGTHS))
            temperature = cold if count == 1 else cold * _REHEAT ** (1.0 - share)
            order, _ = sweeper.improve(order, _LENGTHS[(k + 1) % len(_LENGTHS)], temperature)
        order, count = tracker.order, 2 * count
