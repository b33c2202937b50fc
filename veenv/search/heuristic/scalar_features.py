"""What the learned score of a vertex is made of where edges are of scalars: sets of bits."""

from __future__ import annotations

import numpy as np

from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit, popcount
from veenv.search.kernels.kernels import cost_of
from veenv.search.kernels.scalar import PRED, SUCC
from veenv.search.problem import Problem

SCALAR = 15, 5
"""Numbers that change as a game goes on, and those of `scalar_static`, which come behind them."""
FAR = np.int64(1) << np.int64(60)
"""More than any price."""


def _reach_counts(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """How many inputs each vertex depends on, and how many outputs it reaches: two int64 [n]."""
    kept, n = problem.core.kept, problem.n
    targets = {v for _, v in problem.edges}
    above = [0 if u in targets else 1 << u for u in range(len(kept))]
    below = [1 << u if kept[u] else 0 for u in range(len(kept))]
    # Vertices are numbered as they were traced: all that goes into one has a lower number.
    for u, v in sorted(problem.edges, key=lambda edge: edge[1] if edge[1] < n else n):
        above[v] |= above[u]
    for u, v in sorted(problem.edges, key=lambda edge: -edge[0] if edge[0] < n else 1):
        below[u] |= below[v]
    counts = [[row.bit_count() for row in rows[:n]] for rows in (above, below)]
    return np.array(counts[0], np.int64), np.array(counts[1], np.int64)


def scalar_static(problem: Problem) -> np.ndarray:
    """What stays, of every vertex of a scalar graph, float64 [n, 5]."""
    core, n = problem.core, problem.n
    above, below = _reach_counts(problem)
    place = 2.0 * (np.arange(n) + 0.5) / max(n, 1) - 1.0
    sources = len(core.kept) - n - int(core.kept[n:].sum())
    tilt = np.log((1.0 + sources) / (1.0 + core.kept.sum()))
    columns = (np.log1p(above), np.log1p(below), place, tilt * place, core.kept[:n])
    return np.stack([np.asarray(column, float) for column in columns], axis=1)


@compiled
def signed_log(x):
    """A logarithm of either sign."""
    return np.log(1.0 + x) if x >= 0 else -np.log(1.0 - x)


@compiled
def observe_scalar(core, bits, ids, ins, outs, static, v, features):
    """Writes what the network sees of a vertex into features, float64 [20].

    `ins` and `outs` are degrees, int64 [N]; `static` is `scalar_static`.
    """
    n, words = core.n, bits.shape[2]
    num_in, num_out = max(ins[v], 1), max(outs[v], 1)
    fill, least, stays = 0, FAR, 0 if core.kept[v] else 1
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
    features[4] = signed_log(np.float64(fill - num_in * stays - num_out))
    features[5], features[6] = signed_log(features[5]), signed_log(features[6])
    for k in (7, 9, 10):
        features[k] /= num_in
    for k in (8, 11, 12):
        features[k] /= num_out
    features[13] = price - degrees
    if least < FAR:
        features[14] = degrees - np.log(1.0 + least)
    for k in range(static.shape[1]):
        features[SCALAR[0] + k] = static[v, k]
