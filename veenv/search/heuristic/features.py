"""Features of a vertex for the learned score, on graphs of scalars (bitsets) and of arrays.

Of arrays sizes count, not only numbers of edges: how eliminating a vertex changes the costs of its
neighbours is computed with the structure algebra's tables, and every variable has its number of
elements, on a log scale.
"""

from __future__ import annotations

from math import prod

import numpy as np

from veenv.search.kernels.compilation import ONE, ZERO, compiled, lowest_bit, popcount
from veenv.search.kernels.kernels import PRED, SUCC, cost_of, lookup
from veenv.search.problem import Problem

SCALAR = 15, 5
"""Number of dynamic features, and of the static ones (`static_of`) after them."""
FAR = np.int64(1) << np.int64(60)
"""A cost above any other."""


def node_sizes(problem: Problem) -> np.ndarray:
    """Returns the number of elements of every local node, float64 [N]."""
    graph = problem.graph
    vertices = [graph.node(vertex) for vertex in graph.eliminable]
    terminals = sorted({node for edge in graph.edges for node in edge} - set(vertices))
    return np.array([prod(graph.shapes[node]) for node in (*vertices, *terminals)], float)


def static_of(problem: Problem) -> np.ndarray:
    """Computes static features of every vertex: float64 [n, 5], or [n, 6] for arrays.

    The logarithms of its elements (of arrays), of those of the inputs that it depends on and of
    those of the outputs that it reaches; its place in the trace; the same times how many more
    elements the inputs have than the outputs; whether it is an output.
    """
    is_output, n, elements = problem.core.is_output, problem.n, node_sizes(problem)
    sizes = np.ones(len(is_output))
    sizes[: len(elements)] = elements
    sources = np.ones(len(is_output), bool)
    sources[[v for _, v in problem.edges]] = False
    above, below = (
        [1 << u if there else 0 for u, there in enumerate(ends)] for ends in (sources, is_output)
    )
    # Vertices are numbered in the order of the trace: predecessors have lower numbers.
    for u, v in sorted(problem.edges, key=lambda edge: edge[1] if edge[1] < n else n):
        above[v] |= above[u]
    for u, v in sorted(problem.edges, key=lambda edge: -edge[0] if edge[0] < n else 1):
        below[u] |= below[v]
    reached = [np.log1p([_weight(row, sizes) for row in rows[:n]]) for rows in (above, below)]
    place = 2.0 * (np.arange(n) + 0.5) / max(n, 1) - 1.0
    tilt = np.log((1.0 + sizes[sources].sum()) / (1.0 + sizes[is_output].sum()))
    columns = (np.log(sizes[:n]), *reached, place, tilt * place, is_output[:n])
    stacked = np.stack([np.asarray(column, float) for column in columns], axis=1)
    return stacked[:, 1:] if problem.tables is None else stacked


def _weight(nodes: int, sizes: np.ndarray) -> float:
    """Sums the elements of a set of nodes, given as bits."""
    row = np.frombuffer(nodes.to_bytes(-(-len(sizes) // 8), "little"), np.uint8)
    return float(np.unpackbits(row, count=len(sizes), bitorder="little") @ sizes)


@compiled
def signed_log(x):
    """Returns sign(x) · log1p(|x|)."""
    return np.log(1.0 + x) if x >= 0 else -np.log(1.0 - x)


@compiled
def observe_scalar(core, bits, ids, ins, outs, static, v, features):
    """Writes the features of a vertex of a scalar graph, float64 [20].

    `ins` and `outs` are degrees, int64 [N]; `static` is `static_of`.
    """
    n, words = core.n, bits.shape[2]
    num_in, num_out = max(ins[v], 1), max(outs[v], 1)
    fill, least, stays = 0, FAR, 0 if core.is_output[v] else 1
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


ARRAYS = 19, 6
"""Number of dynamic features, and of the static ones (`static_of`) after them."""


@compiled
def _count(core, post, pre):
    """Returns the cost of the product of two edges."""
    return core.counts[0, lookup(core.keys, core.handle, post, pre, 0)]


@compiled
def _joined(core, post, pre, old):
    """Returns the edge that replaces `old` (0 for none) when a vertex between is eliminated."""
    new = core.results[0, lookup(core.keys, core.handle, post, pre, 0)]
    if old == 0:
        return new
    return core.results[1, lookup(core.keys, core.handle, min(old, new), max(old, new), 1)]


@compiled
def _through(core, bits, ids, u, w, edge, forward):
    """Sums the costs of products of an edge u → w with the edges into u, or with those out of w."""
    total, row = np.int64(0), PRED if forward else SUCC
    centre = u if forward else w
    for k in range(bits.shape[2]):
        rest = bits[row, centre, k]
        while rest != ZERO:
            other = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            if forward:
                total += _count(core, edge, ids[other, u])
            else:
                total += _count(core, ids[w, other], edge)
    return total


@compiled
def _change(core, bits, ids, u, w, old, new, forward):
    """Computes how the cost of products of an edge u → w changes as `new` replaces `old`."""
    before = np.int64(0) if old == 0 else _through(core, bits, ids, u, w, old, forward)
    return _through(core, bits, ids, u, w, new, forward) - before


@compiled
def _changes(core, bits, ids, outs, v):
    """Computes the changes that eliminating v would make.

    Returns new edges, and the changes of what eliminating all predecessors and all successors
    costs.
    """
    fill, above, below = 0, np.int64(0), np.int64(0)
    for k in range(bits.shape[2]):
        rest = bits[PRED, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            if u < core.n and not core.is_output[v]:
                above -= _through(core, bits, ids, u, v, ids[u, v], True)
            for j in range(bits.shape[2]):
                succs = bits[SUCC, v, j]
                while succs != ZERO:
                    w = (j << 6) + lowest_bit(succs)
                    succs &= succs - ONE
                    old = ids[u, w]
                    new = _joined(core, ids[v, w], ids[u, v], old)
                    fill += old == 0
                    if new != old and u < core.n:
                        above += _change(core, bits, ids, u, w, old, new, True)
                    if new != old and outs[w] > 0:
                        below += _change(core, bits, ids, u, w, old, new, False)
    for j in range(bits.shape[2]):
        succs = bits[SUCC, v, j]
        while succs != ZERO:
            w = (j << 6) + lowest_bit(succs)
            succs &= succs - ONE
            if outs[w] > 0:
                below -= _through(core, bits, ids, v, w, ids[v, w], False)
    return fill, above, below


@compiled
def _sum_neighbours(core, bits, row, behind, ahead, sizes, prices, v, features):
    """Sums over the predecessors or successors (row) of v; returns the least of their prices.

    `ahead` are degrees away from v, `behind` those towards it, int64 [N].
    """
    least, side = FAR, 0 if row == PRED else 1
    for k in range(bits.shape[2]):
        rest = bits[row, v, k]
        while rest != ZERO:
            u = (k << 6) + lowest_bit(rest)
            rest &= rest - ONE
            features[9 + 2 * side] += np.log(behind[u])
            features[16 + side] += sizes[u]
            if ahead[u] == 0:
                features[7 + side] += 1.0
            else:
                features[10 + 2 * side] += np.log(1.0 + ahead[u])
                if u < core.n:
                    least = min(least, prices[u])
    return least


@compiled
def observe_array(core, bits, ids, ins, outs, static, sizes, prices, v, features):
    """Writes the features of a vertex of an array graph, float64 [25].

    `ins` and `outs` are degrees, int64 [N]; `static` is `static_of`; `sizes` the logarithms of
    the elements of every node, float64 [N]; `prices` what each vertex costs now, int64 [n].
    """
    features[:] = 0.0
    num_in, num_out = max(ins[v], 1), max(outs[v], 1)
    fill, above, below = _changes(core, bits, ids, outs, v)
    least = min(
        _sum_neighbours(core, bits, PRED, outs, ins, sizes, prices, v, features),
        _sum_neighbours(core, bits, SUCC, ins, outs, sizes, prices, v, features),
    )
    removed = num_out if core.is_output[v] else num_in + num_out
    price, degrees = np.log(1.0 + prices[v]), np.log(1.0 + num_in * num_out)
    features[0], features[1], features[2] = price, np.log(num_in), np.log(num_out)
    features[3] = fill / (num_in * num_out)
    features[4] = signed_log(np.float64(fill - removed))
    features[5], features[6] = signed_log(np.float64(above)), signed_log(np.float64(below))
    for k in (7, 9, 10, 16):
        features[k] /= num_in
    for k in (8, 11, 12, 17):
        features[k] /= num_out
    features[13] = price - degrees
    if least < FAR:
        features[14] = price - np.log(1.0 + least)
    features[15] = signed_log(np.float64(above + below + prices[v]))
    features[18] = price - static[v, 0] - features[16] - features[17] - degrees
    for k in range(static.shape[1]):
        features[ARRAYS[0] + k] = static[v, k]
