"""Writes a report: gathers the figures of an order and puts them into the page."""

from __future__ import annotations

import json
import os
import re
from importlib import resources
from typing import Any

from veenv.graph.layout import positions
from veenv.graph.playback import PlayedElimination, play
from veenv.measure.proof import Proof, prove
from veenv.measure.report import html
from veenv.measure.report.source import Subject
from veenv.measure.timing import times
from veenv.orders.documents import write_text

LARGEST_GRAPH = 4000
"""Nodes up to which the graph is drawn."""
LARGEST_GAME = 200_000
"""Most edges that appear and vanish, over all orders, for which the page has a player."""
SIGNS = {
    "add": "+", "add_any": "+", "sub": "−", "neg": "−", "mul": "×", "div": "÷", "sqrt": "√",
    "integer_pow": "xⁿ", "pow": "xʸ", "square": "x²", "dot_general": "·", "reduce_sum": "Σ",
    "cumsum": "Σ", "select_n": "if",
}  # fmt: skip
"""Labels of vertices by primitive; others have the first three letters of theirs."""


def write_report(
    path: str | os.PathLike[str],
    subject: Subject,
    *,
    batch: int = 4096,
    rounds: int = 20,
    points: int = 3,
    seed: int = 0,
) -> Proof:
    """Verifies and times an order, and writes the page that shows it.

    Args:
      path: the HTML file.
      subject: what it is about.
      batch: number of points that are differentiated at once when timed.
      rounds: timed calls of each way to the Jacobian; 0 leaves the timing out.
      points: number of points at which values are compared.
      seed: seed of the points.

    Returns:
      The proof, as the page shows it.

    Raises:
      ValueError: the order is for another graph, or a number is out of range.
      OSError: the file cannot be written.

    Examples:
      >>> import tempfile, veenv
      >>> order = veenv.best_order("Robertson")
      >>> task = veenv.tasks.get("Robertson")
      >>> graph = veenv.make_graph(task.fun, task.argnums)(*task.example_args())
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     proof = write_report(f"{folder}/report.html", Subject(task, graph, order), rounds=0)
      >>> proof.passed
      True
    """
    for name, value, least in (("batch", batch, 1), ("rounds", rounds, 0), ("points", points, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    ids = subject.ids()["this order"]
    proof = prove(subject.task, ids, points, seed)
    bars, missing = times(subject.task, ids, batch, rounds, seed) if rounds else ((), ())
    write_text(path, page(subject, proof, bars, missing, batch))
    return proof


def page(
    subject: Subject, proof: Proof, bars: Any = (), missing: tuple[str, ...] = (), batch: int = 1
) -> str:
    """Returns the page as text.

    Args:
      subject: what it is about.
      proof: of its order.
      bars: times (`times.times`), none to leave them out.
      missing: why some are missing.
      batch: points of a timed call.

    Returns:
      HTML that loads nothing from anywhere.

    Examples:
      >>> import veenv
      >>> task = veenv.tasks.get("Robertson")
      >>> graph = veenv.make_graph(task.fun, task.argnums)(*task.example_args())
      >>> order = veenv.best_order("Robertson")
      >>> page(Subject(task, graph, order), prove(task, order.ids, 1)).splitlines()[0]
      '<!doctype html>'
    """
    games = {name: play(subject.graph, ids, subject.cost) for name, ids in subject.ids().items()}
    data = {
        "task": subject.task.name,
        "cost": subject.cost,
        "graph": _graph(subject),
        "orders": [_game(name, steps) for name, steps in games.items()],
        "curve": _curve(subject),
    }
    changes = sum(len(s.removed) + len(s.added) for steps in games.values() for s in steps)
    if len(data["graph"]["nodes"]) > LARGEST_GRAPH or changes > LARGEST_GAME:
        data["graph"] = None
        for order in data["orders"]:
            order["removed"] = order["added"] = []
    sections = html.sections(subject, games, proof, bars, missing, batch)
    return _fill(sections, data)


def _fill(sections: dict[str, str], data: dict[str, Any]) -> str:
    """Fills the template with sections, style, scripts and data."""
    parts = {
        "style": _asset("page.css"),
        "script": _asset("charts.js") + _asset("player.js"),
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        **sections,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (resources.files("veenv.measure.report") / "assets" / name).read_text(encoding="utf-8")


def _graph(subject: Subject) -> dict[str, Any]:
    """Returns nodes with positions and names, and edges, as JSON."""
    graph = subject.graph
    where = positions(graph)
    moves = {graph.node(v) for v in graph.eliminable}
    nodes = []
    for node, (column, height) in where.items():
        vertex = node - graph.num_inputs + 1
        kind = "input" if vertex < 1 else "move" if node in moves else "output"
        shape = "×".join(map(str, graph.shapes[node])) or "scalar"
        name = "input" if vertex < 1 else graph.primitives[vertex - 1]
        sign = "" if vertex < 1 else SIGNS.get(name, name[:3])
        nodes.append(
            {"id": node, "x": column, "y": round(height, 4), "kind": kind,
             "vertex": max(vertex, 0), "name": f"{name}, {shape}", "sign": sign}
        )  # fmt: skip
    return {"nodes": nodes, "edges": [list(edge) for edge in graph.edges]}


def _game(name: str, steps: tuple[PlayedElimination, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "ids": [s.vertex for s in steps],
        "costs": [s.cost for s in steps],
        "removed": [s.removed for s in steps],
        "added": [s.added for s in steps],
    }


def _curve(subject: Subject) -> list[list[float]]:
    """Returns steps, mean cost, cheapest of the update, and cheapest so far of each row."""
    name = subject.task.name
    return [
        [row["steps"], row["mean_cost"][name], row["min_cost"][name], row["best_cost"][name]]
        for row in subject.rows
        if row["mean_cost"].get(name) is not None
    ]
