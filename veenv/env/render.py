"""Pictures of an episode: a line of text, or the graph laid out by depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt8

from veenv.env.params import Layout, Spec, node_depths
from veenv.graph import Graph

Codes = Int[np.ndarray, "R C"]


@dataclass(frozen=True)
class Frame:
    """What a picture shows.

    Attributes:
      name: name of the task.
      graph: the graph.
      spec: sizes of the arrays.
      codes: int32 [R, C], the adjacency now.
      previous: int32 [R, C], the adjacency before the last step.
      order: vertex ids eliminated so far.
      total: multiplications so far.
    """

    name: str
    graph: Graph
    spec: Spec
    codes: Codes
    previous: Codes
    order: tuple[int, ...]
    total: int


def ansi(frame: Frame) -> str:
    """The episode so far as text."""
    num = len(frame.graph.eliminable)
    new = int(((frame.codes != 0) & (frame.previous == 0)).sum())
    lines = [f"{frame.name}: {len(frame.order)} of {num} vertices eliminated"]
    if frame.order:
        lines.append(f"last: vertex {frame.order[-1]}, {new} edges filled in")
    lines.append(f"edges: {int((frame.codes != 0).sum())}, multiplications: {frame.total}")
    lines.append("order: " + " ".join(map(str, frame.order)))
    return "\n".join(lines)


def rgb_array(frame: Frame) -> UInt8[np.ndarray, "height width 3"]:
    """The graph laid out by depth: the last vertex and the edges it filled in highlighted."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    where = _positions(frame.graph)
    layout = Layout.of(frame.graph, frame.spec)
    figure = Figure(figsize=(8, 5), dpi=80)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 0.92))
    axes.axis("off")
    old, new = [], []
    for source, row in layout.row.items():
        for target, column in layout.column.items():
            if frame.codes[row, column]:
                edge = (where[source], where[target])
                (old if frame.previous[row, column] else new).append(edge)
    axes.add_collection(LineCollection(old, colors="0.75", linewidths=0.6, zorder=1))
    axes.add_collection(LineCollection(new, colors="tab:orange", linewidths=1.6, zorder=2))
    nodes = sorted({*layout.row, *layout.column})
    points = np.array([where[n] for n in nodes])
    colours = [_colour(frame, node) for node in nodes]
    axes.scatter(points[:, 0], points[:, 1], s=22, c=colours, edgecolors="0.3", zorder=3)
    num = len(frame.graph.eliminable)
    figure.suptitle(
        f"{frame.name}: {len(frame.order)} of {num} eliminated, {frame.total} multiplications"
    )
    canvas.draw()
    return np.array(canvas.buffer_rgba())[:, :, :3]


def _colour(frame: Frame, node: int) -> str:
    graph = frame.graph
    vertex = node - graph.num_inputs + 1
    if node < graph.num_inputs:
        return "tab:blue"
    if frame.order and vertex == frame.order[-1]:
        return "tab:red"
    if vertex in frame.order:
        return "white"
    return "tab:green" if node in graph.output_nodes else "0.6"


def _positions(graph: Graph) -> dict[int, tuple[float, float]]:
    depths = node_depths(graph)
    levels: dict[int, list[int]] = {}
    for node, depth in enumerate(depths):
        levels.setdefault(depth, []).append(node)
    return {
        node: (float(depth), (k + 1) / (len(nodes) + 1))
        for depth, nodes in levels.items()
        for k, node in enumerate(nodes)
    }
