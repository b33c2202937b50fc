"""What elimination orders of one graph cost, by tables that remember every product and sum.

Many orders of a graph multiply the same few structures.  Here each structure is a number, and what
a product or a sum of two of them is and costs is looked up: an order is priced several times faster
than by comparing structures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock

from veenv.graph.tableau import Tableau
from veenv.structure import structure as algebra
from veenv.structure.product import multiply
from veenv.structure.structure import Structure


class Pricing:
    """Products and sums of the structures of a graph, each worked out once.

    Args:
      num_nodes: number of the graph's nodes.
      edges: structure of every edge, by (source, target).
    """

    def __init__(self, num_nodes: int, edges: Mapping[tuple[int, int], Structure]):
        self._num_nodes = num_nodes
        self._numbering = Lock()
        self._structures: list[Structure] = []
        self._numbers: dict[Structure, int] = {}
        self._edges = [(u, v, self._number(s)) for (u, v), s in edges.items()]
        self._products: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._sums: dict[tuple[int, int], tuple[int, int]] = {}

    def counts(self, nodes: Iterable[tuple[int, bool]]) -> Iterator[tuple[int, int]]:
        """Multiplications and additions of each elimination of an order, one after the other.

        Args:
          nodes: the nodes in the order, each with whether it is an output and keeps its in-edges.
        """
        tableau = Tableau(self._num_nodes, self._edges)
        products, sums = self._products, self._sums
        multiplications = additions = 0

        def product(post: int, pre: int) -> int:
            nonlocal multiplications, additions
            found = products.get((post, pre))
            if found is None:
                found = products[post, pre] = self._product(post, pre)
            multiplications += found[1]
            additions += found[2]
            return found[0]

        def add(a: int, b: int) -> int:
            nonlocal additions
            found = sums.get((a, b))
            if found is None:
                found = sums[a, b] = self._sum(a, b)
            additions += found[1]
            return found[0]

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


def eliminate_structure(tableau: Tableau[Structure], node: int, *, keep: bool) -> int:
    """Eliminates a node of a tableau of structures.

    Returns:
      The number of multiplications.
    """
    return eliminate_counted(tableau, node, keep=keep)[0]


def eliminate_counted(tableau: Tableau[Structure], node: int, *, keep: bool) -> tuple[int, int]:
    """Eliminates a node of a tableau of structures.

    Returns:
      The numbers of multiplications and of additions.
    """
    multiplications, additions = 0, 0

    def product_of(post: Structure, pre: Structure) -> Structure:
        nonlocal multiplications, additions
        found = multiply(post, pre)
        multiplications += found.multiplications
        additions += found.additions
        return found.structure

    def add(a: Structure, b: Structure) -> Structure:
        nonlocal additions
        total = algebra.add(a, b)
        additions += total.num_values
        return total

    tableau.eliminate(node, product_of, add, keep=keep)
    return multiplications, additions
