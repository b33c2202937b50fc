"""Layout of a graph for drawing: columns by depth, few crossings."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from veenv.graph.graph import Graph
from veenv.graph.precedence import adjacent

Point: TypeAlias = tuple[float, float]
Positions: TypeAlias = dict[int, Point]
"""Column of each node, and its height in the column, between 0 and 1."""

SWEEPS = 12


def node_depths(graph: Graph) -> list[int]:
    """Counts the edges on the longest path from an input to each node."""
    depths = [0] * graph.num_nodes
    for source, target in graph.edges:
        depths[target] = max(depths[target], depths[source] + 1)
    return depths


def positions(graph: Graph) -> Positions:
    """Returns positions to draw the inputs and the nodes on edges at.

    A column for each depth, within it the nodes near those they are joined to.

    Nodes are sorted by the mean height of their neighbours, forwards and backwards in turn: the
    barycentre method of Sugiyama, Tagawa and Toda (1981).
    """
    depths = node_depths(graph)
    columns: dict[int, list[int]] = {}
    for node in sorted({*range(graph.num_inputs), *(n for edge in graph.edges for n in edge)}):
        columns.setdefault(depths[node], []).append(node)
    ways = adjacent(graph.edges, 1), adjacent(graph.edges)
    height: dict[int, float] = {}

    def place(nodes: list[int]) -> None:
        height.update({node: (k + 1) / (len(nodes) + 1) for k, node in enumerate(nodes)})

    for nodes in columns.values():
        place(nodes)
    for sweep in range(SWEEPS):
        near = ways[sweep % 2]
        for depth in sorted(columns, reverse=sweep % 2 == 1):
            columns[depth].sort(
                key=lambda n, near=near: (
                    float(np.mean([height[m] for m in near.get(n, [n])])), n
                )
            )  # fmt: skip
            place(columns[depth])
    return {node: (float(depths[node]), height[node]) for node in height}
