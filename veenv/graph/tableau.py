"""Vertex elimination on a graph whose edges can be multiplied and added.

The same loop serves the count (edges are structures) and the engine (edges hold values).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Generic, TypeVar

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
        """Eliminates `node`: every path u → node → w becomes part of the edge u → w.

        Args:
          node: the node.
          multiply: product of the edge out of the node and the edge into it.
          add: sum of two edges between the same nodes.
          keep: whether the node is an output too, and so keeps its in-edges.
        """
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
