"""Pictures of an episode: a line of text, or the graph laid out by depth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt8

from veenv._extras import extra
from veenv.env.encode import EnvParams, terminal_outputs
from veenv.env.state import State
from veenv.graph.graph import Graph
from veenv.graph.layout import Point, Positions, positions
from veenv.graph.playback import play

Edge: TypeAlias = tuple[int, int]

WIDTH, HEIGHT, DPI = 960, 600, 96
NEW, LAST = "tab:orange", "tab:red"
KINDS = {
    "input": ("tab:blue", "tab:blue"),
    "to eliminate": ("white", "black"),
    "output": ("tab:green", "black"),
    "eliminated": ("0.93", "0.75"),
    "just eliminated": (LAST, LAST),
}
"""Colours of the face and the edge of each kind of node."""


@dataclass(frozen=True)
class Frame:
    """What a picture shows.

    Attributes:
      name: name of the task.
      graph: the graph.
      order: vertex ids eliminated so far.
      total: cost so far.
    """

    name: str
    graph: Graph
    order: tuple[int, ...]
    total: int

    @classmethod
    def of(cls, name: str, graph: Graph, state: State, params: EnvParams) -> Frame:
        """What a picture of a state shows."""
        slots = np.asarray(state.order)[: int(state.num_steps)]
        ids = np.asarray(params.vertex_ids)[slots].tolist()
        return cls(name, graph, tuple(ids), int(state.cost))

    @cached_property
    def edges(self) -> tuple[set[Edge], set[Edge]]:
        """The edges, as pairs of nodes, before the last elimination, and now."""
        rest = [v for v in self.graph.reverse() if v not in self.order]
        before = now = {*self.graph.edges}
        for step in play(self.graph, (*self.order, *rest))[: len(self.order)]:
            before, now = now, now.difference(step.removed).union(step.added)
        return before, now


def ansi(frame: Frame) -> str:
    """The episode so far as text."""
    num = len(frame.graph.eliminable)
    _, new, _ = changes(frame)
    lines = [f"{frame.name}: {len(frame.order)} of {num} vertices eliminated"]
    if frame.order:
        lines.append(f"last: vertex {frame.order[-1]}, {len(new)} edges filled in")
    lines.append(f"edges: {len(frame.edges[1])}, cost: {frame.total}")
    lines.append("order: " + " ".join(map(str, frame.order)))
    return "\n".join(lines)


def rgb_array(frame: Frame) -> UInt8[np.ndarray, "600 960 3"]:
    """The graph laid out by depth, left to right; the last elimination is highlighted."""
    with extra("plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.06, 0.98, 0.84))
    axes.axis("off")
    where = positions(frame.graph)
    _draw_edges(axes, frame, where)
    _draw_nodes(axes, frame, where)
    handles = _legend_handles()
    figure.legend(handles=handles, loc="lower center", ncol=len(handles), fontsize=8, frameon=False)
    _draw_title(figure, frame)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[:, :, :3]


def changes(frame: Frame) -> tuple[list[Edge], list[Edge], list[Edge]]:
    """Edges, as pairs of nodes, that the last step left as they were, filled in, and removed."""
    before, now = frame.edges
    return sorted(now & before), sorted(now - before), sorted(before - now)


def _draw_edges(axes: Any, frame: Frame, where: Positions) -> None:
    from matplotlib.collections import LineCollection

    styles = (("0.72", 0.6, "solid"), (NEW, 1.8, "solid"), (LAST, 1.2, "dotted"))
    for edges, (colour, width, style) in zip(changes(frame), styles, strict=True):
        curves = [curve(where[u], where[v], bend=(u + v) % 2 * 2 - 1) for u, v in edges]
        axes.add_collection(
            LineCollection(curves, colors=colour, linewidths=width, linestyles=style)
        )


def curve(start: Point, end: Point, bend: int) -> list[Point]:
    """From a node to another; bent where it passes others, so as not to hide behind them."""
    (x0, y0), (x1, y1) = start, end
    sag = 0.035 * bend * min(x1 - x0 - 1.0, 4.0)
    steps = np.linspace(0.0, 1.0, 12)
    return [(x0 + t * (x1 - x0), y0 + t * (y1 - y0) + 4 * t * (1 - t) * sag) for t in steps]


def _draw_nodes(axes: Any, frame: Frame, where: Positions) -> None:
    """Nodes as circles, as large as there is room for, with vertex ids if they can be read."""
    graph = frame.graph
    moves = {graph.node(v) for v in graph.eliminable}
    nodes = sorted({*range(graph.num_inputs), *moves, *terminal_outputs(graph)})
    columns = Counter(where[node][0] for node in nodes)
    room = min(0.8 * HEIGHT / (max(columns.values()) + 1), 0.9 * WIDTH / (len(columns) + 1))
    diameter = min(20.0, max(5.0, 0.7 * room))  # in pixels
    kinds = {node: _kind(frame, node) for node in nodes}
    sizes = {n: diameter * (1.3 if kinds[n] == "just eliminated" else 1.0) for n in nodes}
    for level, drawn in (
        (1, [n for n in nodes if kinds[n] == "eliminated"]),  # below the edges
        (3, [n for n in nodes if kinds[n] != "eliminated"]),
    ):
        axes.scatter(
            *np.array([where[n] for n in drawn]).reshape(-1, 2).T,
            s=[(sizes[n] * 72 / DPI) ** 2 for n in drawn],
            c=[KINDS[kinds[n]][0] for n in drawn],
            edgecolors=[KINDS[kinds[n]][1] for n in drawn],
            linewidths=0.8,
            zorder=level,
        )
    for node in nodes[graph.num_inputs :]:
        just = kinds[node] == "just eliminated"
        if diameter >= 11 or just:
            axes.annotate(
                node - graph.num_inputs + 1, where[node], ha="center", va="center_baseline",
                fontsize=max(5.0, 0.38 * sizes[node]), zorder=4,
                color="white" if just else KINDS[kinds[node]][1],
            )  # fmt: skip


def _kind(frame: Frame, node: int) -> str:
    vertex = node - frame.graph.num_inputs + 1
    if vertex < 1:
        return "input"
    if frame.order and vertex == frame.order[-1]:
        return "just eliminated"
    if vertex in frame.order:
        return "eliminated"
    return "output" if node in frame.graph.output_nodes else "to eliminate"


def _legend_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    dots = [
        Line2D([], [], ls="", marker="o", ms=7, mfc=face, mec=edge, label=kind)
        for kind, (face, edge) in KINDS.items()
    ]
    return dots + [
        Line2D([], [], color=NEW, lw=1.8, label="edge filled in"),
        Line2D([], [], color=LAST, lw=1.2, ls="dotted", label="edge removed"),
    ]


def _draw_title(figure: Any, frame: Frame) -> None:
    num = len(frame.graph.eliminable)
    figure.suptitle(
        f"{frame.name}: {len(frame.order)} of {num} vertices eliminated, "
        f"cost {frame.total:,}",
        y=0.985, fontsize=13,
    )  # fmt: skip
    if frame.order:
        _, new, gone = changes(frame)
        text = f"last: vertex {frame.order[-1]}, {len(new)} edges filled in, {len(gone)} removed"
        figure.text(0.5, 0.915, text, ha="center", fontsize=10, color=LAST)
