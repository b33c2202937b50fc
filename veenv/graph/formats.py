"""A graph as text, for networkx, for Graphviz and for Mermaid; methods of `Graph`."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import networkx

from veenv._support import extra

Described: TypeAlias = Any
"""A `Graph`, whose module imports this one."""


def describe(self: Described) -> str:
    """Counts per kind and per primitive, and the sizes involved."""
    used = Counter(self.primitives[v - 1] for v in self.eliminable)
    parts = ", ".join(f"{name} {n}" for name, n in used.most_common())
    largest = max((prod(self.shapes[n]) for e in self.edges for n in e), default=0)
    return (
        f"Graph({self.num_inputs} inputs, {len(self.eliminable)} eliminable vertices of "
        f"{self.num_vertices}, {self.num_outputs} outputs, {len(self.edges)} edges; "
        f"largest variable {largest}; eliminable: {parts or 'none'})"
    )


def to_networkx(self: Described) -> networkx.DiGraph[int]:
    """The graph as a `networkx.DiGraph` (needs networkx).

    Nodes are those on edges, and the inputs, with ``kind`` (``"input"``, ``"vertex"`` or
    ``"output"``: a vertex that is an output and no move), ``vertex`` (id; 0 for inputs),
    ``primitive``, ``shape`` and ``is_output``; edges have ``structure`` (`Structure`).

    Raises:
      ImportError: networkx is not installed.
    """
    with extra("plots"):
        import networkx

    found: networkx.DiGraph[int] = networkx.DiGraph()
    for node in _nodes(self):
        found.add_node(
            node,
            kind=_kind(self, node),
            vertex=max(0, node - self.num_inputs + 1),
            primitive=_primitive(self, node),
            shape=self.shapes[node],
            is_output=node in self.output_nodes,
        )
    for (source, target), structure in self.structures().items():
        found.add_edge(source, target, structure=structure)
    return found


def to_dot(self: Described) -> str:
    """The graph in the language of Graphviz: ``dot -Tsvg`` draws it.

    Boxes are inputs, double circles outputs; a vertex has its id and its primitive.

    Examples:
      >>> import veenv
      >>> print(veenv.make_graph(lambda x: x * x * x)(1.0).to_dot())
      digraph {
        rankdir=LR;
        0 [label="input 1" shape=box];
        1 [label="1 mul" shape=ellipse];
        2 [label="2 mul" shape=doublecircle];
        0 -> 1;
        0 -> 2;
        1 -> 2;
      }
    """
    shapes = {"input": "box", "vertex": "ellipse"}
    lines = []
    for node in _nodes(self):
        shape = "doublecircle" if node in self.output_nodes else shapes[_kind(self, node)]
        lines.append(f'  {node} [label="{_label(self, node)}" shape={shape}];')
    lines += [f"  {source} -> {target};" for source, target in self.edges]
    return "\n".join(["digraph {", "  rankdir=LR;", *lines, "}"])


def to_mermaid(self: Described) -> str:
    """The graph in the language of Mermaid, which Markdown on many sites shows as a picture.

    Examples:
      >>> import veenv
      >>> print(veenv.make_graph(lambda x: x * x * x)(1.0).to_mermaid())
      flowchart LR
        n0[input 1]
        n1(1 mul)
        n2(((2 mul)))
        n0 --> n1
        n0 --> n2
        n1 --> n2
    """
    lines = []
    for node in _nodes(self):
        kind = "output" if node in self.output_nodes else _kind(self, node)
        before, after = {"input": "[ ]", "vertex": "( )", "output": "((( )))"}[kind].split()
        lines.append(f"  n{node}{before}{_label(self, node)}{after}")
    lines += [f"  n{source} --> n{target}" for source, target in self.edges]
    return "\n".join(["flowchart LR", *lines])


def _nodes(graph: Described) -> list[int]:
    """Inputs, and the nodes on edges."""
    return sorted({*range(graph.num_inputs), *(n for edge in graph.edges for n in edge)})


def _kind(graph: Described, node: int) -> str:
    if node < graph.num_inputs:
        return "input"
    return "vertex" if node - graph.num_inputs + 1 in graph.eliminable else "output"


def _primitive(graph: Described, node: int) -> str:
    return "" if node < graph.num_inputs else graph.primitives[node - graph.num_inputs]


def _label(graph: Described, node: int) -> str:
    """The id and the primitive, and the shape where it is no number."""
    vertex = node - graph.num_inputs + 1
    name = f"input {node + 1}" if vertex < 1 else f"{vertex} {graph.primitives[vertex - 1]}"
    shape = "×".join(map(str, graph.shapes[node]))
    return f"{name} {shape}" if shape else name
