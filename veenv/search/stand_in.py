"""A search in plain Python that stands in until the compiled one is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event

from veenv.graph.graph import CostModel, Graph, counts_additions
from veenv.graph.pricing import eliminate_structure
from veenv.graph.tableau import Tableau
from veenv.orders.climbing import climb
from veenv.structure.product import multiply
from veenv.structure.structure import Structure, add

_PATIENCE = 0.5
"""Seconds that the compiled search may take to start before climbing begins: a cache is read."""


class StandIn:
    """Orders of a graph, the classical ones at once and better ones as time goes by.

    Attributes:
      best: vertex ids and their cost; None until the first order is evaluated.
      evaluations: orders evaluated.
      climbed: whether it has gone beyond the classical orders.
      slowest: seconds that evaluating an order has taken at most.
    """

    def __init__(self, graph: Graph, cost: CostModel, start: Sequence[int] | None, seed: int):
        """Nothing is evaluated yet.

        Args:
          graph: the graph.
          cost: the cost model.
          start: vertex ids of the only order to begin with; None for the classical ones.
          seed: seed of the climbing.
        """
        self.best: tuple[tuple[int, ...], int] | None = None
        self.evaluations, self.climbed, self.slowest = 0, False, 0.0
        self._graph, self._start, self._seed = graph, start, seed
        self._cost: CostModel = cost

    def run(self, ready: Event) -> None:
        """Searches until an event is set, or there is nothing left to try."""
        graph = self._graph
        classical = (graph.reverse, graph.markowitz, graph.forward)
        starts = classical if self._start is None else (lambda: tuple(self._start or ()),)
        for make in starts:
            if ready.is_set():
                return
            order = graph.legal(make())
            began = time.perf_counter()
            self._offer(order, graph.cost(order, self._cost))
            self.slowest = max(self.slowest, time.perf_counter() - began)
        if self.best is None or ready.wait(_PATIENCE):
            return
        for order, cost in climb(graph, self.best[0], self._cost, self._seed):
            self.climbed = True
            self._offer(order, cost)
            if ready.is_set():
                return

    def _offer(self, order: tuple[int, ...], cost: int) -> None:
        self.evaluations += 1
        if self.best is None or cost < self.best[1]:
            self.best = order, cost


def greedy_order(
    graph: Graph, cost: CostModel, rule: str, wanted: Callable[[], bool] = lambda: True
) -> tuple[int, ...] | None:
    """The order of one of `veenv.search.heuristic.greedy_rules.RULES`, without compiled code.

    Args:
      graph: the graph.
      cost: the cost model.
      rule: the rule.
      wanted: asked before every elimination; False ends it.

    Returns:
      Vertex ids; None if it was ended.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> graph = veenv.make_graph(lambda x: jnp.sin(x) * jnp.cos(x) * x)(1.0)
      >>> greedy_order(graph, "multiplications", "markowitz") == graph.markowitz()
      True
    """
    tableau, additions = graph.tableau(cost), counts_additions(cost)
    reach = _reach_products(graph) if rule == "relative-markowitz" else {}
    nodes = [graph.node(v) for v in graph.eliminable]
    scores = {v: _score(tableau, rule, v, additions) - reach.get(v, 0) for v in nodes}
    # New edges between neighbours change fill-in and additions of vertices further off, too.
    far = rule == "fill-in" or (rule == "cost" and additions)
    before = {
        graph.node(v): {*map(graph.node, others)} for v, others in graph.prerequisites.items()
    }
    order = []
    while scores:
        if not wanted():
            return None
        ready = [v for v in scores if not before.get(v, set()) & scores.keys()]
        best = min(ready, key=scores.__getitem__)
        del scores[best]
        order.append(best - graph.num_inputs + 1)
        near = {*tableau.preds[best], *tableau.succs[best]}
        eliminate_structure(tableau, best, keep=best in graph.output_nodes)
        for v in scores if far else near & scores.keys():
            scores[v] = _score(tableau, rule, v, additions) - reach.get(v, 0)
    return tuple(order)


def _score(tableau: Tableau[Structure], rule: str, node: int, additions: bool) -> int:
    """What a rule says of eliminating a node now, but for what it knows beforehand."""
    ins, outs = tableau.preds[node], tableau.succs[node]
    if rule == "cost":
        return _price(tableau, node, additions)
    if rule == "fill-in":
        return sum(target not in tableau.succs[source] for source in ins for target in outs)
    return len(ins) * len(outs)


def _price(tableau: Tableau[Structure], node: int, additions: bool) -> int:
    """What eliminating a node now costs."""
    total = 0
    for target in tableau.succs[node]:
        row = tableau.preds[target]
        for source, pre in tableau.preds[node].items():
            product = multiply(row[node], pre)
            total += product.multiplications
            if additions:
                total += product.additions
                if source in row:
                    total += add(row[source], product.structure).num_values
    return total


def _reach_products(graph: Graph) -> dict[int, int]:
    """Number of inputs that each node depends on times outputs that it reaches."""
    above = {n: 1 << n if n < graph.num_inputs else 0 for n in range(graph.num_nodes)}
    for source, target in graph.edges:
        above[target] |= above[source]
    below = {n: 1 << n if n in graph.output_nodes else 0 for n in range(graph.num_nodes)}
    for source, target in sorted(graph.edges, reverse=True):
        below[source] |= below[target]
    return {n: above[n].bit_count() * below[n].bit_count() for n in range(graph.num_nodes)}
