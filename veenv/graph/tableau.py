"""Vertex elimination on a graph with edges of any kind, and the cost of orders.

The same loop serves the count (edges are structures) and the engine (edges hold values).

Many orders of a graph multiply the same few structures.  For `Pricing` each structure is a number,
and what a product or a sum of two of them is and costs is looked up: an order is priced several
times faster than by comparing structures.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from threading import Lock
from typing import Generic, TypeVar

from veenv.structure import structure as algebra
from veenv.structure.product import multiply
from veenv.structure.structure import Structure

E = TypeVar("E")


class Tableau(Generic[E]):
    """A mutable graph in which vertices are eliminated.

    Attributes:
      preds: for each node its in-edges, source → edge.
      succs: for each node its successors (the keys; the order is that of insertion).
      unwanted: (source, target) of edges that are not formed, as nobody asks for them; or None.
    """

    def __init__(
        self,
        num_nodes: int,
        edges: Iterable[tuple[int, int, E]],
        unwanted: Container[tuple[int, int]] | None = None,
    ):
        self.unwanted = unwanted
        self.preds: list[dict[int, E]] = [{} for _ in range(num_nodes)]
        self.succs: list[dict[int, None]] = [{} for _ in range(num_nodes)]
        for source, target, edge in edges:
            self.preds[target][source] = edge
            self.succs[source][target] = None

    def eliminate(
        self,
        node: int,
        multiply: Callable[[E, E], E],
        add: Callable[[E, E], E],
        *,
        keep: bool = False,
    ) -> None:
        """Adds each path u → node → w to the edge u → w; with `keep` the in-edges stay."""
        preds, succs, unwanted = self.preds, self.succs, self.unwanted
        ins = preds[node]
        for target in succs[node]:
            row = preds[target]
            post = row.pop(node)
            for source, pre in ins.items():
                if unwanted is not None and (source, target) in unwanted:
                    continue
                new = multiply(post, pre)
                old = row.get(source)
                if old is None:
                    row[source] = new
                    succs[source][target] = None
                else:
                    row[source] = add(old, new)
        succs[node] = {}
        if not keep:
            for source in ins:
                del succs[source][node]
            preds[node] = {}


class Pricing:
    """Cached products and sums of the structures of a graph."""

    def __init__(self, num_nodes: int, edges: Mapping[tuple[int, int], Structure]):
        self._num_nodes = num_nodes
        self._numbering = Lock()
        self._structures: list[Structure] = []
        self._numbers: dict[Structure, int] = {}
        self._edges = [(u, v, self._number(s)) for (u, v), s in edges.items()]
        self._products: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._sums: dict[tuple[int, int], tuple[int, int]] = {}

    def counts(self, nodes: Iterable[tuple[int, bool]]) -> Iterator[tuple[int, int]]:
        """Yields multiplications and additions of eliminating each (node, is output)."""
        tableau = Tableau(self._num_nodes, self._edges)
        products, sums = self._products, self._sums

        def product(post: int, pre: int) -> int:
            nonlocal multiplications, additions
            priced = products.get((post, pre))
            if priced is None:
                priced = products[post, pre] = self._product(post, pre)
            multiplications += priced[1]
            additions += priced[2]
            return priced[0]

        def add(a: int, b: int) -> int:
            nonlocal additions
            priced = sums.get((a, b))
            if priced is None:
                priced = sums[a, b] = self._sum(a, b)
            additions += priced[1]
            return priced[0]

        for node, keep in nodes:
            multiplications = additions = 0
            tableau.eliminate(node, product, add, keep=keep)
            yield multiplications, additions

    def _number(self, structure: Structure) -> int:
        with self._numbering:  # orders of one graph may be priced by several threads
            number = self._numbers.setdefault(structure, len(self._structures))
            if number == len(self._structures):
                self._structures.append(structure)
            return number

    def _product(self, post: int, pre: int) -> tuple[int, int, int]:
        plan = multiply(self._structures[post], self._structures[pre])
        return self._number(plan.structure), plan.multiplications, plan.additions

    def _sum(self, a: int, b: int) -> tuple[int, int]:
        total = algebra.add(self._structures[a], self._structures[b])
        return self._number(total), total.num_values


def eliminate_counted(tableau: Tableau[Structure], node: int, *, keep: bool) -> tuple[int, int]:
    """Eliminates a node of a tableau of structures; returns multiplications and additions."""
    multiplications, additions = 0, 0

    def product_of(post: Structure, pre: Structure) -> Structure:
        nonlocal multiplications, additions
        plan = multiply(post, pre)
        multiplications += plan.multiplications
        additions += plan.additions
        return plan.structure

    def add(a: Structure, b: Structure) -> Structure:
        nonlocal additions
        total = algebra.add(a, b)
        additions += total.num_values
        return total

    tableau.eliminate(node, product_of, add, keep=keep)
    return multiplications, additions
