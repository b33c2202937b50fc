"""Plays an elimination order edge by edge, for pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veenv.graph.graph import CostModel, Graph, counts_additions
from veenv.graph.tableau import Tableau, eliminate_counted
from veenv.structure.structure import Structure


@dataclass(frozen=True)
class PlayedElimination:
    """One elimination of a played order: its cost, and the edges it removes and adds.

    Attributes:
      vertex: its id.
      cost: what it costs.
      removed: edges, as pairs of nodes, that are gone afterwards.
      added: edges that were not there before.
    """

    vertex: int
    cost: int
    removed: tuple[tuple[int, int], ...]
    added: tuple[tuple[int, int], ...]


def play(
    graph: Graph, order: Iterable[int], cost: CostModel = "multiplications"
) -> tuple[PlayedElimination, ...]:
    """Plays an order and records each elimination.

    Args:
      graph: the graph.
      order: vertex ids; every eliminable one once.
      cost: the cost model.

    Returns:
      One record for each elimination; their costs are `Graph.costs`.

    Raises:
      ValueError: as `Graph.costs`.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> graph = veenv.make_graph(lambda x, y: jnp.sin(x * y) * x, argnums=(0, 1))(1.0, 2.0)
      >>> play(graph, (2, 1))[0]
      PlayedElimination(vertex=2, cost=1, removed=((2, 3), (3, 4)), added=((2, 4),))
    """
    tableau = graph.tableau(cost)
    steps = []
    for vertex in graph.check_order(order):
        node = graph.node(vertex)
        keep = node in graph.output_nodes
        before = {*_edges_around(tableau, node)}
        pairs = [(u, v) for u in tableau.preds[node] for v in tableau.succs[node]]
        there = {(u, v) for u, v in pairs if u in tableau.preds[v]}
        multiplications, additions = eliminate_counted(tableau, node, keep=keep)
        removed = before - {*_edges_around(tableau, node)}
        price = multiplications + (additions if counts_additions(cost) else 0)
        added = tuple(sorted(set(pairs) - there))
        steps.append(PlayedElimination(vertex, price, tuple(sorted(removed)), added))
    return tuple(steps)


def _edges_around(tableau: Tableau[Structure], node: int) -> list[tuple[int, int]]:
    return [(u, node) for u in tableau.preds[node]] + [(node, v) for v in tableau.succs[node]]
