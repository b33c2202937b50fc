"""Greedy games by a learned score: always the vertex next that a small network likes best.

The network sees a vertex's surroundings as they are now: degrees, what eliminating it costs and
fills in, how that changes what its neighbours cost, and where it lies in the whole graph
(`NUM_FEATURES` numbers).  An elimination changes those of a few vertices only, which are scored
anew, so that a game takes little longer than the eliminations, whatever the size of the graph.
The weights are given; `agents.large` has some, and trains them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veenv.search.heuristic.greedy_rules import first_choice, mark_touched, reach_counts
from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit, popcount
from veenv.search.kernels.kernels import copy_state, cost_of, eliminate
from veenv.search.kernels.scalar import PRED, SUCC, degree
from veenv.search.problem import Problem

NUM_FEATURES = 20
"""Numbers that the score of a vertex is made of."""
_FAR = np.int64(1) << np.int64(60)


def num_weights(hidden: int) -> int:
    """Number of weights of a network of so many hidden units.

    Example:
      >>> num_weights(0), num_weights(8)
      (20, 196)
    """
    return NUM_FEATURES + hidden * (NUM_FEATURES + 2)


@compiled
def _signed_log(x):
    """A logarithm of either sign."""
    return np.log(1.0 + x) if x >= 0 else -np.log(1.0 - x)


@compiled
def _observe(core, bits, ids, ins, outs, static, v, features):
    """Writes what the network sees of a vertex.

    Args:
      core: the graph's constants.
      bits: uint64 [3, N, W]; the state.
      ids: int32 [N, N]; the same.
      ins: int64 [N]; in-degree of every node.
      outs: int64 [N]; out-degree of every node.
      static: float64 [n, 5]; what stays, of every vertex.
      v: the vertex.
      features: float64 [20]; written.
    """
    n, words = core.n, bits.shape[2]
    num_in, num_out = max(ins[v], 1), max(outs[v], 1)
    fill, least, stays = 0, _FAR, 0 if core.kept[v] else 1
    features[:] = 0.0
    for k in range(words):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            new = 0
            for j in range(words):
                new += popcount(bits[SUCC, v, j] & ~bits[SUCC, u, j])
            fill += new
            features[9] += np.log(outs[u])
            if u >= n:
                features[7] += 1.0
            else:
                features[5] += ins[u] * (new - stays)
                features[10] += np.log(1.0 + ins[u])
                least = min(least, ins[u] * outs[u])
        rest = bits[SUCC, v, k]
        while rest != ZERO:
            w = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            new = -1
            for j in range(words):
                new += popcount(bits[PRED, v, j] & ~bits[PRED, w, j])
            features[11] += np.log(ins[w])
            if outs[w] == 0:
                features[8] += 1.0
            else:
                features[6] += outs[w] * new
                features[12] += np.log(1.0 + outs[w])
                if w < n:
                    least = min(least, ins[w] * outs[w])
    price, degrees = np.log(1.0 + cost_of(core, bits, ids, v)), np.log(1.0 + num_in * num_out)
    features[0], features[1], features[2] = price, np.log(num_in), np.log(num_out)
    features[3] = fill / (num_in * num_out)
    features[4] = _signed_log(np.float64(fill - num_in * stays - num_out))
    features[5], features[6] = _signed_log(features[5]), _signed_log(features[6])
    for k in (7, 9, 10):
        features[k] /= num_in
    for k in (8, 11, 12):
        features[k] /= num_out
    features[13] = price - degrees
    if least < _FAR:
        features[14] = degrees - np.log(1.0 + least)
    for k in range(static.shape[1]):
        features[15 + k] = static[v, k]


@compiled
def _evaluate(weights, features):
    """The score of what a network sees, that of least score goes first; weights float64 [K]."""
    size = features.shape[0]
    score = 0.0
    for k in range(size):
        score += weights[k] * features[k]
    at = size
    while at < weights.shape[0]:
        unit = weights[at]
        for k in range(size):
            unit += weights[at + 1 + k] * features[k]
        score += weights[at + 1 + size] * np.tanh(unit)
        at += size + 2
    return score


@compiled
def play(core, bits, ids, static, weights, order):
    """Plays a game.

    Args:
      core: the graph's constants.
      bits: uint64 [3, N, W]; a state, overwritten.
      ids: int32 [N, N]; the same.
      static: float64 [n, 5]; what stays, of every vertex.
      weights: float64 [K]; the network.
      order: int64 [n]; written.

    Returns:
      What the order costs.
    """
    n, size = core.n, core.kept.shape[0]
    copy_state(bits, ids, core.bits, core.ids)
    ins, outs = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for u in range(size):
        ins[u], outs[u] = degree(bits, PRED, u), degree(bits, SUCC, u)
    scores, features = np.zeros(n), np.zeros(NUM_FEATURES)
    alive, near = np.ones(n, np.bool_), np.zeros(bits.shape[2], np.uint64)
    for v in range(n):
        _observe(core, bits, ids, ins, outs, static, v, features)
        scores[v] = _evaluate(weights, features)
    total = np.int64(0)
    for position in range(n):
        best = first_choice(core, alive, scores)
        mark_touched(bits, best, True, near)
        alive[best] = False
        order[position] = best
        total += eliminate(core, bits, ids, best)
        outs[best] = 0  # if it is an output it stays, as the end of its in-edges
        for k in range(near.shape[0]):
            rest = near[k]
            while rest != ZERO:
                u = (k << 6) + lowest_bit(rest)
                rest &= rest - ONE
                ins[u], outs[u] = degree(bits, PRED, u), degree(bits, SUCC, u)
        for k in range((n + 63) >> 6):
            rest = near[k]
            while rest != ZERO:
                v = (k << 6) + lowest_bit(rest)
                rest &= rest - ONE
                if v < n and alive[v]:
                    _observe(core, bits, ids, ins, outs, static, v, features)
                    scores[v] = _evaluate(weights, features)
    return total


@dataclass(frozen=True)
class Player:
    """Plays games on one problem.

    Attributes:
      problem: the problem.
      static: float64 [n, 5]; what stays, of every vertex.
      bits: uint64 [3, N, W]; scratch.
      ids: int32 [N, N]; scratch.
    """

    problem: Problem
    static: np.ndarray
    bits: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(cls, problem: Problem) -> Player:
        """A player of a problem."""
        core, n = problem.core, problem.n
        above, below = reach_counts(problem)
        place = 2.0 * (np.arange(n) + 0.5) / max(n, 1) - 1.0
        sources = len(core.kept) - n - int(core.kept[n:].sum())
        tilt = np.log((1.0 + sources) / (1.0 + core.kept.sum()))
        columns = (np.log1p(above), np.log1p(below), place, tilt * place, core.kept[:n])
        static = np.stack([np.asarray(column, float) for column in columns], axis=1)
        return cls(problem, static, core.bits.copy(), core.ids.copy())

    def play(self, weights: np.ndarray) -> tuple[np.ndarray, int]:
        """An order and its cost.

        Args:
          weights: float64 [K]; the network.

        Returns:
          Local order, int64 [n], and what it costs.
        """
        order = np.zeros(self.problem.n, np.int64)
        total = play(self.problem.core, self.bits, self.ids, self.static, weights, order)
        return order, int(total)
