"""Renders a graph and an episode on it: as lines of text, or as nodes laid out by depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import UInt8

from veenv._support import extra
from veenv.env.encode import EnvParams
from veenv.env.state import State
from veenv.graph.graph import Graph
from veenv.graph.layout import Point, Positions, positions
from veenv.graph.playback import PlayedElimination, play

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Edge: TypeAlias = tuple[int, int]
Changes: TypeAlias = tuple[list[Edge], list[Edge], list[Edge]]
"""Edges, as pairs of nodes: unchanged, filled in, and removed by the last step."""

WIDTH, HEIGHT, DPI = 9.6, 6.0, 100
EDGE, NEW, GONE = "0.65", "#b8500c", "#b3243b"
INPUT, OUTPUT = "#1f6fb2", "#1a7f4b"
LEFT, PAST = ("white", "black", "black"), ("0.96", "0.8", "0.6")
"""Colours of face, edge and id of a remaining vertex, and of one eliminated before the last."""
LABELS_UP_TO = 150
"""Most vertices that are labelled with their ids."""


@dataclass(frozen=True)
class Frame:
    """The content of an episode's picture.

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
        """Returns the content of a state's picture."""
        slots = np.asarray(state.order)[: int(state.num_steps)]
        ids = np.asarray(params.vertex_ids)[slots].tolist()
        return cls(name, graph, tuple(ids), int(state.cost))

    @cached_property
    def changes(self) -> Changes:
        """The edges that the last step kept, filled in and removed."""
        rest = [v for v in self.graph.reverse() if v not in self.order]
        return changes(self.graph, play(self.graph, (*self.order, *rest))[: len(self.order)])


def changes(graph: Graph, steps: Sequence[PlayedElimination]) -> Changes:
    """Returns the edges that the last of the eliminations kept, filled in and removed."""
    before = now = {*graph.edges}
    for step in steps:
        before, now = now, now.difference(step.removed).union(step.added)
    return sorted(now & before), sorted(now - before), sorted(before - now)


def ansi(frame: Frame) -> str:
    """Returns the episode so far as text."""
    same, new, _ = frame.changes
    num = len(frame.graph.eliminable)
    lines = [f"{frame.name}: {len(frame.order)} of {num} vertices eliminated"]
    if frame.order:
        lines.append(f"last: vertex {frame.order[-1]}, {len(new)} edges filled in")
    lines.append(f"edges: {len(same) + len(new)}, cost: {frame.total}")
    lines.append("order: " + " ".join(map(str, frame.order)))
    return "\n".join(lines)


def rgb_array(frame: Frame) -> UInt8[np.ndarray, "600 960 3"]:
    """Draws the graph by depth, left to right, with the last elimination highlighted."""
    title = "; ".join(ansi(frame).splitlines()[:-1])
    where, done = positions(frame.graph), len(frame.order)
    figure = paint(frame.graph, where, frame.changes, done, frame.order, title, HEIGHT)
    _add_legend(figure)
    canvas: Any = figure.canvas
    canvas.draw()
    return np.array(canvas.buffer_rgba())[:, :, :3]


def paint(
    graph: Graph,
    where: Positions,
    edges: Changes,
    done: int,
    ids: Sequence[int],
    title: str,
    height: float,
) -> Figure:
    """Draws the graph after `done` eliminations of an order, `height` inches high."""
    with extra("plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.05, 0.98, 0.85))
    axes.axis("off")
    _draw_edges(axes, edges, where)
    _draw_nodes(axes, graph, where, done, ids)
    figure.suptitle(title, y=0.975, fontsize=12)
    return figure


def _draw_edges(axes: Any, edges: Changes, where: Positions) -> None:
    from matplotlib.collections import LineCollection

    styles = ((EDGE, 0.7, "solid"), (NEW, 1.8, "solid"), (GONE, 1.3, "dotted"))
    for group, (colour, width, style) in zip(edges, styles, strict=True):
        lines = [_curve(where[u], where[v], bend=(u + v) % 2 * 2 - 1) for u, v in group]
        axes.add_collection(
            LineCollection(lines, colors=colour, linewidths=width, linestyles=style)
        )


def _curve(start: Point, end: Point, bend: int) -> list[Point]:
    """Returns the line between two nodes, bent where it passes others so that it stays visible."""
    (x0, y0), (x1, y1) = start, end
    sag = 0.035 * bend * min(x1 - x0 - 1.0, 4.0)
    steps = np.linspace(0.0, 1.0, 12)
    return [(x0 + t * (x1 - x0), y0 + t * (y1 - y0) + 4 * t * (1 - t) * sag) for t in steps]


def _draw_nodes(axes: Any, graph: Graph, where: Positions, done: int, ids: Sequence[int]) -> None:
    """Draws nodes as circles, coloured by the time of elimination where there is an order."""
    time = {graph.node(v): k for k, v in enumerate(ids)}
    moves = {graph.node(v) for v in graph.eliminable}
    size = min(18.0, max(4.0, 260.0 / max(1, len(where)) ** 0.7))
    for node, (x, y) in where.items():
        if node in moves:
            face, edge, ink = _look(time.get(node), done, len(ids))
        else:
            face, edge, ink = INPUT if node < graph.num_inputs else OUTPUT, "black", "white"
        behind = time.get(node, done) < done - 1  # its place is free for edges
        level = 1 if behind else 3
        axes.plot(x, y, "o", ms=size, mfc=face, mec=edge, mew=0.8, zorder=level)
        if node in moves and len(moves) <= LABELS_UP_TO and size >= 8:
            axes.annotate(
                node - graph.num_inputs + 1, (x, y), ha="center", va="center_baseline",
                fontsize=0.42 * size, color=ink, zorder=level + 0.5,
            )  # fmt: skip


def _look(time: int | None, done: int, count: int) -> tuple[Any, Any, str]:
    """Returns colours of face, edge and id of a vertex by its place in the order."""
    import matplotlib

    if time is None:
        return LEFT
    if time < done:
        return (GONE, GONE, "white") if time == done - 1 else PAST
    share = time / max(1, count - 1)
    return matplotlib.colormaps["viridis"](share), "black", "black" if share > 0.6 else "white"


def _add_legend(figure: Figure) -> None:
    """Adds the legend of colours and lines."""
    from matplotlib.lines import Line2D

    kinds = {
        "input": (INPUT, "black"),
        "to eliminate": LEFT,
        "output": (OUTPUT, "black"),
        "eliminated": PAST,
        "just eliminated": (GONE, GONE),
    }
    handles = [
        Line2D([], [], ls="", marker="o", ms=7, mfc=face, mec=edge, label=kind)
        for kind, (face, edge, *_) in kinds.items()
    ]
    handles += [
        Line2D([], [], color=NEW, lw=1.8, label="edge filled in"),
        Line2D([], [], color=GONE, lw=1.3, ls="dotted", label="edge removed"),
    ]
    figure.legend(handles=handles, loc="lower center", ncol=len(handles), fontsize=8, frameon=False)
