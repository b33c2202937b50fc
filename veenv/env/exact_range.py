"""Bounds the cost of any order of a graph, and checks that int64 counts it exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from veenv.env.counts import INT64_MAX
from veenv.graph.graph import CostModel, Graph, counts_additions

INT32_MAX = 2**31 - 1


@lru_cache(maxsize=8)
def check_total(graph: Graph, cost: CostModel = "multiplications") -> int:
    """Returns an upper bound on the cost of any order, and checks that it fits int64.

    Whatever the order, the in-neighbours of v when it is eliminated are among its ancestors and
    the out-neighbours among its descendants, and the product of two edges u → v → w takes at most
    |u|·|v|·|w| multiplications.  So no order takes more than
    Σ_v |v| · (Σ_{u above v} |u|) · (Σ_{w below v} |w|).

    With its additions, and those of the sum it may enter, a product takes at most twice as many
    operations.  For of the middle axes, let s be the size of those that are summed jointly, p and q
    of those that are summed in one factor before, and z of those along which neither varies,
    p·q·s·z ≤ |v|.  With n = |u|·|w| there are at most n·s + [z > 1]·n·p·s multiplications,
    n·s·(p - 1) + n·s·(q - 1) additions in the factors, n·(s - 1) in the contraction and n in the
    sum: n·s·(p + q + [z > 1]·p) in all, which is at most 2·n·p·q·s·z.  An axis of size zero, which
    is a factor too where neither varies along it, counts as one of size two.

    Args:
      graph: the graph.
      cost: the cost model.

    Raises:
      ValueError: if the bound exceeds 2⁶³ - 1, or the size of a variable 2³¹ - 1.
    """
    additions = counts_additions(cost)
    empty = 2 if additions else 0
    size = [prod(n or empty for n in shape) for shape in graph.shapes]
    largest = max((size[node] for edge in graph.edges for node in edge), default=0)
    if largest > INT32_MAX:
        raise ValueError(
            f"the environment plays variables of at most 2**31 - 1 = {INT32_MAX} elements, but one "
            f"has {largest}"
        )
    moves = {graph.node(v) for v in graph.eliminable}
    above = _reachable_sizes(graph.edges, size, {*range(graph.num_inputs), *moves})
    backwards = [(w, v) for v, w in sorted(graph.edges, reverse=True)]
    below = _reachable_sizes(backwards, size, moves | graph.output_nodes)
    total = sum(size[v] * above[v] * below[v] for v in moves) * (2 if additions else 1)
    if total > INT64_MAX:
        what, twice = ("operations", "twice the ") if additions else ("multiplications", "")
        raise ValueError(
            f"an elimination order of this graph could take up to {total} {what} (bound: {twice}"
            f"size of each vertex × sizes of its ancestors × sizes of its descendants), which "
            f"passes the environment's exact range of 2**63 - 1 = {INT64_MAX}"
        )
    return total


def _reachable_sizes(
    edges: Sequence[tuple[int, int]], size: Sequence[int], counted: set[int]
) -> list[int]:
    """Sums for each node the sizes of the counted nodes from which it is reached.

    `edges` must be ordered so that a node's in-edges come before its out-edges.
    """
    bit = np.packbits(np.arange(8)[:, None] == np.arange(8), axis=-1)[:, 0]
    reached = np.zeros((len(size), -(-len(size) // 8)), np.uint8)  # nodes as bits
    for source, target in edges:
        reached[target] |= reached[source]
        if source in counted:
            reached[target, source // 8] |= bit[source % 8]
    sizes = np.array(size, np.int64)
    kinds = np.unique(sizes)
    of_size = np.packbits(sizes == kinds[:, None], axis=-1)
    # Node by node, so that a row stays in the cache while it is read for each size.
    return [int(np.bitwise_count(row & of_size).sum(1, dtype=np.int64) @ kinds) for row in reached]
