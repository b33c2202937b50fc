"""Greedy orders by a learned score: a small network chooses the vertex to eliminate next.

The network sees a vertex's surroundings as they are now: degrees, what eliminating it costs and
fills in, how that changes what its neighbours cost, and where it lies in the whole graph
(`NUM_FEATURES` numbers).  An elimination changes those of a few vertices only, which are scored
anew, so that a game takes little longer than the eliminations, whatever the size of the graph.
Scalars and arrays have features of their own, and so need weights of their own, which are given;
`veenv.agents.policy` has some.
"""

from __future__ import annotations

import numpy as np

from veenv.search.heuristic.features import (
    ARRAYS,
    SCALAR,
    node_sizes,
    observe_array,
    observe_scalar,
    static_of,
)
from veenv.search.heuristic.greedy_rules import first_choice, mark_touched
from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit
from veenv.search.kernels.kernels import (
    PRED,
    SUCC,
    by_core,
    copy_state,
    cost_of,
    degree,
    eliminate,
)
from veenv.search.problem import Problem

NUM_FEATURES = {kind: sum(numbers) for kind, numbers in (("scalar", SCALAR), ("arrays", ARRAYS))}
"""Numbers of features of a vertex, for graphs of scalars and of arrays."""


def num_weights(hidden: int, num_features: int) -> int:
    """Returns the number of weights of a network with so many hidden units."""
    return num_features + hidden * (num_features + 2)


def _look_at_scalar(core, bits, ids, ins, outs, static, sizes, prices, v, features):
    observe_scalar(core, bits, ids, ins, outs, static, v, features)


def _look_at_array(core, bits, ids, ins, outs, static, sizes, prices, v, features):
    observe_array(core, bits, ids, ins, outs, static, sizes, prices, v, features)


_look = by_core(_look_at_scalar, _look_at_array)
"""Writes the features of a vertex; for compiled callers."""


@compiled
def _evaluate(weights, features):
    """Returns the score of a vertex's features, of which the least wins; weights float64 [K]."""
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
def _add_neighbours(bits, near):
    """Adds the neighbours of nodes to them: their sums over edges change, too."""
    nodes = near.copy()
    for k in range(near.shape[0]):
        rest = nodes[k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            for j in range(near.shape[0]):
                near[j] |= bits[PRED, u, j] | bits[SUCC, u, j]


@compiled
def _recount(core, bits, ids, near, alive, ins, outs, prices):
    """Recounts edges, and prices of arrays, of the nodes that an elimination has touched."""
    for k in range(near.shape[0]):
        rest = near[k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            ins[u], outs[u] = degree(bits, PRED, u), degree(bits, SUCC, u)
            if u < prices.shape[0] and alive[u]:
                prices[u] = cost_of(core, bits, ids, u)


@compiled
def play(core, bits, ids, static, sizes, weights, order):
    """Plays a game on a scratch state (bits, ids); writes order, int64 [n], returns its cost.

    `static` is float64 [n, S], `sizes` as of `Player`, and weights, float64 [K], the network.
    """
    n, size, of_arrays = core.n, core.is_output.shape[0], sizes.shape[0] > 0
    copy_state(bits, ids, core.bits, core.ids)
    ins, outs = np.zeros(size, np.int64), np.zeros(size, np.int64)
    prices = np.zeros(n if of_arrays else 0, np.int64)
    changing = ARRAYS[0] if of_arrays else SCALAR[0]
    scores, features = np.zeros(n), np.zeros(changing + static.shape[1])
    alive, near = np.ones(n, np.bool_), np.full(bits.shape[2], ~ZERO)
    near[-1] = near[-1] >> np.uint64(64 * bits.shape[2] - size)
    total, position = np.int64(0), 0
    while True:
        _recount(core, bits, ids, near, alive, ins, outs, prices)
        if of_arrays:
            _add_neighbours(bits, near)
        for k in range((n + 63) >> 6):
            rest = near[k]
            while rest != ZERO:
                v = (k << 6) + lowest_bit(rest)
                rest &= rest - ONE
                if v < n and alive[v]:
                    _look(core, bits, ids, ins, outs, static, sizes, prices, v, features)
                    scores[v] = _evaluate(weights, features)
        if position == n:
            return total
        best = first_choice(core, alive, scores)
        mark_touched(bits, best, True, near)
        alive[best] = False
        order[position] = best
        total += eliminate(core, bits, ids, best)
        outs[best] = 0  # an output keeps its in-edges, and no out-edges
        position += 1


class Player:
    """Plays greedy games on one problem.

    Attributes:
      problem: the problem.
      static: static features of every vertex, float64 [n, S].
      sizes: logarithms of the elements of every node, float64 [N]; [0] for scalars.
      bits: scratch, uint64 [3, N, W].
      ids: scratch, int32 [N, N].
    """

    def __init__(self, problem: Problem):
        self.problem, self.static = problem, static_of(problem)
        self.sizes = np.zeros(0) if problem.tables is None else np.log(node_sizes(problem))
        self.bits, self.ids = problem.core.bits.copy(), problem.core.ids.copy()

    @property
    def num_features(self) -> int:
        """Number of features of a vertex."""
        return NUM_FEATURES["scalar" if self.problem.tables is None else "arrays"]

    def play(self, weights: np.ndarray) -> tuple[np.ndarray, int]:
        """Plays a game by weights, float64 [K]; returns its order, int64 [n], and its cost."""
        core, order = self.problem.core, np.zeros(self.problem.n, np.int64)
        total = play(core, self.bits, self.ids, self.static, self.sizes, weights, order)
        return order, int(total)
