"""The computational graph of a function: vertices, edges with structure, costs of orders."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf, prod
from typing import Any, Literal, NamedTuple

from veenv.graph import formats
from veenv.graph.precedence import ReverseOnly, check_precedence, legal_order, prerequisites
from veenv.graph.tableau import Pricing, Tableau
from veenv.structure.structure import Structure

Labelling = Literal["multiplications", "executed"]
LABELLINGS: tuple[Labelling, ...] = ("multiplications", "executed")
"""Initial structures of edges: values as the literature counts them, or as they are stored."""

CostModel = Literal["multiplications", "executed", "operations"]


class CostRecord(NamedTuple):
    """Definition of a cost model."""

    labelling: Labelling  # initial structures of the edges
    additions: bool  # whether additions count as multiplications do


COST_MODELS: dict[CostModel, CostRecord] = {
    "multiplications": CostRecord("multiplications", additions=False),
    "executed": CostRecord("executed", additions=False),
    "operations": CostRecord("executed", additions=True),
}


def check_cost_model(cost: str) -> CostModel:
    """Returns `cost` if it names a cost model.

    Raises:
      ValueError: if it does not.
    """
    if cost not in (*COST_MODELS,):
        raise ValueError(f"cost must be one of {', '.join(COST_MODELS)}, got {cost!r}")
    return cost


def labelling_of(cost: CostModel) -> Labelling:
    """Returns the kind of structures that a cost model starts from."""
    return COST_MODELS[cost].labelling


def counts_additions(cost: CostModel) -> bool:
    """Returns whether a cost model counts additions as it counts multiplications."""
    return COST_MODELS[cost].additions


class Graph:
    """An immutable computational graph with the structure of every elemental partial.

    Nodes are ints: the inputs ``0 .. num_inputs - 1`` (leaves of the selected arguments), then
    every equation output in order.  Vertex id i (1-based) is node ``num_inputs + i - 1``.  Edges
    that lie on no path from an input to an output are pruned.

    Attributes:
      num_inputs: number of input nodes.
      num_vertices: number of numbered equation outputs, pruned ones included.
      shapes: shape of every node.
      outputs: node of each output leaf; None where the output does not depend on any input.
        Nodes may repeat and may be inputs.
      primitives: name of the primitive that makes each vertex, by id - 1.
      eliminable: ids of the vertices an order must name, ascending.
      reverse_only: the rules that not every order can apply.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> graph = veenv.make_graph(lambda x, y: jnp.sin(x * y) * x, argnums=(0, 1))(1.0, 2.0)
      >>> graph.eliminable, graph.cost((1, 2)), graph.cost((2, 1))
      ((1, 2), 4, 3)
    """

    def __init__(
        self,
        num_inputs: int,
        shapes: Sequence[tuple[int, ...]],
        outputs: Sequence[int | None],
        primitives: Sequence[str],
        structures: Mapping[Labelling, Mapping[tuple[int, int], Structure]],
        reverse_only: Sequence[ReverseOnly] = (),
    ):
        self.num_inputs = num_inputs
        self.num_vertices = len(shapes) - num_inputs
        self.shapes = tuple(tuple(s) for s in shapes)
        self.outputs = tuple(outputs)
        self.primitives = tuple(primitives)
        self._structures = {name: dict(edges) for name, edges in structures.items()}
        self.reverse_only = tuple(reverse_only)
        self._pricings: dict[Labelling, Pricing] = {}
        sources = {u for u, _ in self.edges}
        self.eliminable = tuple(
            n - num_inputs + 1 for n in range(num_inputs, len(shapes)) if n in sources
        )

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to pickle, without the cache of prices."""
        return {**self.__dict__, "_pricings": {}}

    @property
    def num_outputs(self) -> int:
        """Number of output leaves."""
        return len(self.outputs)

    @property
    def num_nodes(self) -> int:
        """Number of nodes: inputs and numbered vertices."""
        return len(self.shapes)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The (source, target) node pairs, sorted by target, then source."""
        return tuple(sorted(self._structures["executed"], key=lambda e: (e[1], e[0])))

    @cached_property
    def output_nodes(self) -> frozenset[int]:
        """Nodes that are outputs; when eliminated they keep their in-edges."""
        return frozenset(n for n in self.outputs if n is not None)

    @cached_property
    def is_scalar(self) -> bool:
        """Whether every node on an edge holds one number."""
        return all(prod(self.shapes[n]) == 1 for edge in self.edges for n in edge)

    def node(self, vertex: int) -> int:
        """Returns the node of a vertex id."""
        return self.num_inputs + vertex - 1

    def structures(self, cost: CostModel = "multiplications") -> dict[tuple[int, int], Structure]:
        """Returns the structure of every edge under a cost model, by (source, target).

        Raises:
          ValueError: if `cost` is not a cost model.
        """
        return dict(self._structures[labelling_of(check_cost_model(cost))])

    def check_order(self, order: Iterable[int]) -> tuple[int, ...]:
        """Checks an order and returns it as a tuple of eliminable ids, without pruned ids.

        Raises:
          ValueError: if an id is not an int, is unknown, repeated or missing, or the order does
            not allow for a rule that is not linear in its cotangent.
        """
        checked = check_order(order, self.eliminable, self.num_vertices)
        if self.reverse_only:
            check_precedence(self.prerequisites, checked)
        return checked

    @cached_property
    def prerequisites(self) -> dict[int, dict[int, ReverseOnly]]:
        """The vertices that must go before each vertex, and the rules that demand so.

        A rule that is not linear in its cotangent is applied to the rows of the Jacobian by its
        results: all that is behind them comes first, and its operands come last.
        """
        moves = {self.node(v): v for v in self.eliminable}
        return prerequisites(self.reverse_only, self.edges, moves)

    def legal(self, order: Iterable[int]) -> tuple[int, ...]:
        """Returns the order itself, or else the nearest one that the graph's rules allow.

        Vertices that come too early wait until what must be before them is gone.

        Raises:
          ValueError: as `check_order`, but for the rules.
        """
        checked = check_order(order, self.eliminable, self.num_vertices)
        return legal_order(self.prerequisites, checked) if self.reverse_only else checked

    def costs(self, order: Iterable[int], cost: CostModel = "multiplications") -> tuple[int, ...]:
        """Returns the cost of each elimination of an order, in its order (pruned ids left out).

        Returns:
          Its multiplications; under ``"operations"`` with its additions.

        Raises:
          ValueError: as `check_order`, or if `cost` is not a cost model.
        """
        counts = self._counts(self.check_order(order), check_cost_model(cost))
        return tuple(m + a if counts_additions(cost) else m for m, a in counts)

    def cost(self, order: Iterable[int], cost: CostModel = "multiplications") -> int:
        """Returns the cost of an order: its multiplications or, with additions, operations.

        Args:
          order: vertex ids; every eliminable one once.
          cost: the cost model.

        Raises:
          ValueError: as `check_order`, or if `cost` is not a cost model.
        """
        return self.cost_within(self.check_order(order), check_cost_model(cost))

    def cost_within(self, order: Sequence[int], cost: CostModel, most: float = inf) -> int:
        """Returns the cost of a checked order, counted until it exceeds `most`.

        Returns:
          The cost, or what the first eliminations cost where that alone is more than `most`.
        """
        both, total = counts_additions(cost), 0
        for multiplications, additions in self._counts(order, cost):
            total += multiplications + additions if both else multiplications
            if total > most:
                break
        return total

    def additions(self, order: Iterable[int]) -> tuple[int, ...]:
        """Returns the additions of each elimination of an order, every sum formed at once.

        Raises:
          ValueError: as `check_order`.
        """
        counts = self._counts(self.check_order(order), "executed")
        return tuple(additions for _, additions in counts)

    def _counts(self, order: Sequence[int], cost: CostModel) -> Iterator[tuple[int, int]]:
        """Yields multiplications and additions of each elimination of a checked order."""
        labelling = labelling_of(cost)
        if labelling not in self._pricings:
            self._pricings[labelling] = Pricing(self.num_nodes, self._structures[labelling])
        nodes, outputs = [self.num_inputs + v - 1 for v in order], self.output_nodes
        return self._pricings[labelling].counts([(n, n in outputs) for n in nodes])

    def tableau(self, cost: CostModel = "multiplications") -> Tableau[Structure]:
        """Returns a fresh mutable copy of the graph, to eliminate vertices in."""
        edges = self.structures(cost)
        return Tableau(self.num_nodes, ((u, v, s) for (u, v), s in edges.items()))

    def forward(self) -> tuple[int, ...]:
        """Returns the forward-mode order: ascending ids."""
        return self.eliminable

    def reverse(self) -> tuple[int, ...]:
        """Returns the reverse-mode order: descending ids."""
        return self.eliminable[::-1]

    def markowitz(self) -> tuple[int, ...]:
        """Returns the greedy order by least in-degree × out-degree, ties to the lowest id.

        Griewank & Reese (1991), "On the calculation of Jacobian matrices by the Markowitz rule".
        """

        def degree(tableau: Tableau[bool], node: int) -> int:
            return len(tableau.preds[node]) * len(tableau.succs[node])

        return self.greedily(((u, v, True) for u, v in self.edges), degree)

    def greedily(
        self,
        edges: Iterable[tuple[int, int, bool]],
        score: Callable[[Tableau[bool], int], float],
    ) -> tuple[int, ...]:
        """Returns the greedy order by least score, ties to the lowest id.

        Scored anew are the neighbours of what has been eliminated.

        Args:
          edges: source, target and whether the edge carries a value.
          score: of a node among the edges that there are then.
        """
        tableau: Tableau[bool] = Tableau(self.num_nodes, edges)
        current = {v: score(tableau, self.node(v)) for v in self.eliminable}
        heap = [(d, v) for v, d in current.items()]
        heapq.heapify(heap)
        order = []
        while heap:
            d, vertex = heapq.heappop(heap)
            if current.get(vertex) != d:
                continue  # eliminated, or its score has changed since
            del current[vertex]
            order.append(vertex)
            node = self.node(vertex)
            touched = [*tableau.preds[node], *tableau.succs[node]]
            tableau.eliminate(node, operator.or_, _true, keep=node in self.output_nodes)
            for other in (n - self.num_inputs + 1 for n in touched):
                if other in current:
                    new = score(tableau, self.node(other))
                    if new != current[other]:
                        current[other] = new
                        heapq.heappush(heap, (new, other))
        return tuple(order)

    to_networkx = formats.to_networkx
    __repr__ = formats.describe


def _true(*_: Any) -> bool:
    return True


_ONCE = "an order names each vertex of graph.eliminable once"


def check_order(
    order: Iterable[int], eliminable: Sequence[int], num_vertices: int
) -> tuple[int, ...]:
    """Checks that an order names every eliminable vertex once, and drops pruned ids.

    Raises:
      ValueError: if an id is not an int, is unknown, repeated or missing.
    """
    wanted, seen, checked = set(eliminable), set(), []
    for item in order:
        vertex = as_vertex_id(item)
        if not 1 <= vertex <= num_vertices:
            raise ValueError(
                f"order names vertex {vertex}, but the graph's vertices are 1 .. {num_vertices}"
            )
        if vertex in seen:
            raise ValueError(f"order repeats vertex {vertex}; {_ONCE}")
        seen.add(vertex)
        if vertex in wanted:
            checked.append(vertex)
    missing = sorted(wanted - seen)
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
        raise ValueError(
            f"order misses {len(missing)} of {len(wanted)} eliminable vertices: {shown}; {_ONCE}"
        )
    return tuple(checked)


def as_vertex_id(item: Any) -> int:
    """Returns a vertex id as a Python int.

    Raises:
      ValueError: if it is not an integer (bool and float are not).
    """
    index: Callable[[], int] | None = getattr(item, "__index__", None)
    if index is None or isinstance(item, bool):
        raise ValueError(f"order must hold integer vertex ids, got {item!r}")
    return index()
