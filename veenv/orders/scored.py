"""Greedy order by a linear score of vertices, in one pass.

The score reads ten numbers of a vertex as the graph is then: its in-degree, out-degree and their
product, what its elimination multiplies, adds and fills in, and where it lies between the inputs
and the outputs.  `scripts/data/train_scorer.py` has found the weights on training sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p

from veenv.graph.graph import Graph
from veenv.graph.tableau import Tableau

NUM_FEATURES = 10
WEIGHTS = (-0.145, 0.35, 1.058, 0.041, 0.585, 0.705, -1.17, 0.541, -2.832, 0.121)
"""Weights of the features, in the order of `features`."""

_LOGS = [round(log1p(k), 6) for k in range(4096)]


def _log(number: int) -> float:
    """Returns log(1 + number), mostly from a table, rounded to be equal on every machine."""
    return _LOGS[number] if number < len(_LOGS) else round(log1p(number), 6)


def features(
    tableau: Tableau[bool], node: int, place: tuple[float, float, float]
) -> tuple[float, ...]:
    """Returns the features of a node that the score weighs; edges that carry a value are True."""
    preds, succs = tableau.preds, tableau.succs
    ins, outs = preds[node], succs[node].keys()
    num_in, num_out = len(ins), len(outs)
    multiplied = sum(ins.values()) * sum(preds[target][node] for target in outs)
    added = sum(len(outs & succs[source].keys()) for source in ins)
    pairs = num_in * num_out
    return (
        _log(num_in),
        _log(num_out),
        _log(multiplied),
        _log(added),
        _log(pairs - added),
        _log(pairs),
        _log(multiplied + added),
        *place,
    )


def places(graph: Graph) -> dict[int, tuple[float, float, float]]:
    """Returns for each eliminable node its depth, relative depth, and whether it is an output."""
    depth, height = [0] * graph.num_nodes, [0] * graph.num_nodes
    for source, target in sorted(graph.edges):
        depth[target] = max(depth[target], depth[source] + 1)
    for source, target in sorted(graph.edges, reverse=True):
        height[source] = max(height[source], height[target] + 1)
    deepest = max(depth, default=0) or 1
    return {
        node: (
            depth[node] / deepest,
            depth[node] / (depth[node] + height[node]),
            float(node in graph.output_nodes),
        )
        for node in map(graph.node, graph.eliminable)
    }


def scored_order(graph: Graph, weights: Sequence[float] = WEIGHTS) -> tuple[int, ...]:
    """Returns the greedy order of the score, for graphs of scalars.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> scored_order(veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0))
      (2, 1)
    """
    where = places(graph)
    edges = [(u, v, not s.unit) for (u, v), s in graph.structures("operations").items()]

    def score(tableau: Tableau[bool], node: int) -> float:
        return sum(map(float.__mul__, weights, features(tableau, node, where[node])))

    return graph.legal(graph.greedily(edges, score))
