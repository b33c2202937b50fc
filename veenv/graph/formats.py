"""Exports a graph as text and to networkx; these are methods of `Graph`."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import networkx

from veenv._support import extra

Described: TypeAlias = Any
"""A `Graph`: its module imports this one."""


def describe(self: Described) -> str:
    """Returns counts per kind and per primitive, and the sizes involved, as text."""
    used = Counter(self.primitives[v - 1] for v in self.eliminable)
    parts = ", ".join(f"{name} {n}" for name, n in used.most_common())
    largest = max((prod(self.shapes[n]) for e in self.edges for n in e), default=0)
    return (
        f"Graph({self.num_inputs} inputs, {len(self.eliminable)} eliminable vertices of "
        f"{self.num_vertices}, {self.num_outputs} outputs, {len(self.edges)} edges; "
        f"largest variable {largest}; eliminable: {parts or 'none'})"
    )


def to_networkx(self: Described) -> networkx.DiGraph[int]:
    """Returns the graph as a `networkx.DiGraph` (needs networkx).

    Nodes are those on edges, and the inputs, with ``kind`` (``"input"``, ``"vertex"`` or
    ``"output"``: a vertex that is an output and no move), ``vertex`` (id; 0 for inputs),
    ``primitive``, ``shape`` and ``is_output``; edges have ``structure`` (`Structure`).

    Raises:
      ImportError: networkx is not installed.
    """
    with extra("plots"):
        import networkx

    digraph: networkx.DiGraph[int] = networkx.DiGraph()
    for node in sorted({*range(self.num_inputs), *(n for edge in self.edges for n in edge)}):
        vertex = max(0, node - self.num_inputs + 1)
        kind = "vertex" if vertex in self.eliminable else "output"
        digraph.add_node(
            node,
            kind=kind if vertex else "input",
            vertex=vertex,
            primitive=self.primitives[vertex - 1] if vertex else "",
            shape=self.shapes[node],
            is_output=node in self.output_nodes,
        )
    for (source, target), structure in self.structures().items():
        digraph.add_edge(source, target, structure=structure)
    return digraph
