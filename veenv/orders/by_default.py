"""``order="auto"``: a cheap order without clock or cache, the same on every machine."""

from __future__ import annotations

from itertools import islice

from veenv.graph.graph import CostModel, Graph
from veenv.orders.climbing import climb
from veenv.orders.shipped import best_for

_COST: CostModel = "operations"
_EDGES = 5_000
"""Edges that are looked at in all, about, while a classical order is improved upon."""
_MOST = 100
"""Orders that are evaluated at most meanwhile."""


def automatic_order(graph: Graph) -> tuple[int, ...]:
    """The order of fewest operations among the shipped, the classical and a few others.

    The classical order with the fewest operations is improved by moves of single vertices, of
    which a fixed sequence is tried; how many depends on the size of the graph alone.

    Args:
      graph: the graph.

    Returns:
      Vertex ids.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)
      >>> automatic_order(graph) == automatic_order(graph)
      True
    """
    try:
        return best_for(graph, _COST).ids_for(graph)
    except ValueError:
        pass  # none is shipped
    classical = [graph.legal(ids) for ids in (graph.reverse(), graph.forward(), graph.markowitz())]
    start = min(classical, key=lambda ids: graph.cost(ids, _COST))
    evaluations = min(_MOST, _EDGES // max(1, len(graph.edges)))
    *_, (found, _) = islice(climb(graph, start, _COST), 1 + evaluations)
    return found
