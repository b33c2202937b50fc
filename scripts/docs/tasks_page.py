"""Writes docs/catalogue.md, a screen for each task, and the table of docs/tasks.md.

``python -m scripts.docs.tasks_page`` traces every task anew, under the oldest JAX, and draws its
graph; ``--kept`` writes both pages from the records of docs/tasks.json alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
import tyro

import veenv
from scripts.benchmarks.cases import PUBLISHED
from veenv.env.observe import ObservationKind
from veenv.graph.graph import LABELLINGS, Graph
from veenv.graph.layout import Positions, positions
from veenv.orders.documents import write_section
from veenv.orders.shipped import best_for, proved_bound
from veenv.tasks import Task

DOCS = Path(__file__).parents[2] / "docs"
RECORDS, PAGE, TABLE = DOCS / "tasks.json", DOCS / "catalogue.md", DOCS / "tasks.md"
PICTURES = DOCS / "pictures" / "tasks"
CLASSICAL = {"reverse": "reverse", "forward": "forward", "markowitz": "Markowitz"}
HEAD = """\
| task | best known | reverse | forward | Markowitz | leaves, vertices |
| --- | ---: | ---: | ---: | ---: | --- |
"""
BEGINNING = """\
# All tasks

A screen for each built-in [task](tasks.md). `veenv.make(name)` is its game,
`veenv.tasks.get(name)` its function with a point, `veenv.best_order(name)` its best known order.

In the pictures inputs are blue, vertices to eliminate orange, outputs that are no moves green;
depth grows to the right. *Multiplications* is the literature's count, *executed* what the engine
multiplies ([counts](orders.md#three-counts)). The last four rows are the [kinds of
observation](environment.md#observation) with dtypes and shapes. The graphs are those of jax 0.10.
`python -m scripts.docs.tasks_page` writes this page.
"""
WIDTH, SPACE, RADIUS = 800, 22, 7
"""Of a picture: its width, the height of a node, and a node's largest radius."""


def record(task: Task) -> dict[str, Any]:
    """What is traced of a task: sizes, counts and observations; the rest its `Task` says."""
    env = veenv.make(task.name)
    graph = env.graph
    known = {cost: best_for(graph, cost) for cost in LABELLINGS}
    args = task.example_args()
    results = jax.eval_shape(task.fun, *args)
    return {
        "arguments": [np.shape(leaf) for leaf in jax.tree.leaves(args)],
        "results": [leaf.shape for leaf in jax.tree.leaves(results)],
        "leaves": (graph.num_inputs, graph.num_outputs),
        "vertices": len(graph.eliminable),
        "edges": len(graph.edges),
        "classical": {
            order: {cost: graph.cost(getattr(graph, order)(), cost) for cost in LABELLINGS}
            for order in CLASSICAL
        },
        "best": {cost: order.counts[cost] for cost, order in known.items()},
        "found by": {cost: order.found_by for cost, order in known.items()},
        "bounds": {cost: proved_bound(graph, cost) for cost in LABELLINGS},
        "observations": {kind: _seen(env.observing(kind)) for kind in get_args(ObservationKind)},
    }


def _seen(env: veenv.env.VertexEnv) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of each array of an observation; numbers are left out."""
    leaves, _ = jax.tree.flatten_with_path(jax.eval_shape(lambda: env.reset()[0]))
    named = ((path[-1].name if path else "", leaf) for path, leaf in leaves)
    return [(name, leaf.dtype.name, leaf.shape) for name, leaf in named if leaf.shape]


def picture(graph: Graph) -> str:
    """A graph as SVG; lines and discs are one path for each kind, so that it stays small."""
    where: Positions = positions(graph)
    last = max(x for x, _ in where.values()) or 1.0
    tallest = max(Counter(x for x, _ in where.values()).values())
    height = SPACE * (tallest + 1)
    radius = min(RADIUS, 0.4 * WIDTH / (last + 2))

    def at(x: float, y: float) -> str:
        return f"{2 * RADIUS + x * (WIDTH - 4 * RADIUS) / last:.0f} {height * y:.0f}"

    moves, discs = {graph.node(v) for v in graph.eliminable}, {"#3f7fbf": "", "#d9730d": ""}
    for node, place in where.items():
        colour = "#d9730d" if node in moves else "#3f7fbf" if node < graph.num_inputs else "#2a9a5f"
        discs[colour] = discs.get(colour, "") + f"M{at(*place)}h0"
    lines = ""
    for u, v in graph.edges:
        (x, y), (across, down) = where[u], where[v]
        sag = 0.07 * ((u + v) % 2 * 2 - 1) * min(across - x - 1.0, 4.0)
        middle = min(1.0, max(0.0, (y + down) / 2 + sag))
        lines += f"M{at(x, y)}Q{at((x + across) / 2, middle)} {at(across, down)}"
    drawn = "".join(
        f'<path stroke="{colour}" stroke-width="{2 * radius:.3g}" d="{path}"/>\n'
        for colour, path in discs.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" fill="none" '
        f'stroke-linecap="round">\n<path stroke="#808890" d="{lines}"/>\n{drawn}</svg>\n'
    )


def screen(task: Task, found: Mapping[str, Any]) -> str:
    """The section of a task."""
    counts = []
    for cost in LABELLINGS:
        rest = [f"{name} {found['classical'][order][cost]:,}" for order, name in CLASSICAL.items()]
        if cost == "multiplications" and task.name in PUBLISHED:
            rest.append(f"published {PUBLISHED[task.name]}")
        proved = ", proved optimal" if best(found, cost).endswith("*") else ""
        by = found["found by"][cost].replace("'", "")
        known = f"**{found['best'][cost]:,}**{proved}, found by {by}"
        counts.append((cost, f"{known}; {', '.join(rest)}"))
    rows = [
        ("arguments", shapes(found["arguments"])),
        ("results", shapes(found["results"])),
        ("graph", f"{found['vertices']} vertices to eliminate, {found['edges']:,} edges"),
        *counts,
        *(
            (
                f"`{kind}`",
                "; ".join(f"{name} {dtype} {list(shape)}".strip() for name, dtype, shape in of),
            )
            for kind, of in found["observations"].items()
        ),
    ]
    drawn = f"![Graph of {task.name}]({PICTURES.relative_to(DOCS)}/{task.name}.svg)"
    table = "".join(f"| {name} | {said} |\n" for name, said in rows)
    head = f'| | `veenv.make("{task.name}")` |\n| --- | --- |\n'
    return (
        f"\n## {task.name}\n\n{task.description} Source: {task.source}.\n\n{drawn}\n\n{head}{table}"
    )


def shapes(of: Iterable[Iterable[int]]) -> str:
    """Shapes with how often each is there: ``4 numbers, 2 × [3]``."""
    said = []
    for shape, count in Counter(map(tuple, of)).items():
        times = f"{count} × " if count > 1 else ""
        numbers = "1 number" if count == 1 else f"{count} numbers"
        said.append(f"{times}{list(shape)}" if shape else numbers)
    return ", ".join(said)


def best(found: Mapping[str, Any], cost: str) -> str:
    """The best known count, with a star where it is proved."""
    return f"{found['best'][cost]:,}" + "*" * (found["best"][cost] == found["bounds"][cost])


def catalogue(records: Mapping[str, Any]) -> str:
    """The page with a screen for each task."""
    return BEGINNING + "".join(screen(veenv.tasks.get(n), found) for n, found in records.items())


def table(records: Mapping[str, Any]) -> str:
    """The table of docs/tasks.md: counts as ``multiplications / executed``, then sizes."""
    rows = []
    for name, found in records.items():
        link = f"[{name}]({PAGE.name}#{name.lower()})"
        known = " / ".join(best(found, cost) for cost in LABELLINGS)
        orders = (found["classical"][order].values() for order in CLASSICAL)
        classical = (" / ".join(f"{count:,}" for count in counts) for counts in orders)
        sizes = f"{found['leaves'][0]} → {found['leaves'][1]}, {found['vertices']}"
        rows.append(f"| {' | '.join([link, known, *classical, sizes])} |\n")
    return (HEAD + "".join(rows)).rstrip("\n")


def main(kept: bool = False) -> None:
    """Writes both pages.

    Args:
      kept: trace and draw nothing.
    """
    if not kept:
        tasks = [veenv.tasks.get(name) for name in veenv.tasks.list()]
        found = {task.name: record(task) for task in tasks}
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in found)
        RECORDS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        PICTURES.mkdir(exist_ok=True)
        for name in found:
            path = PICTURES / f"{name}.svg"
            path.write_text(picture(veenv.make(name).graph), encoding="utf-8")
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    PAGE.write_text(catalogue(records), encoding="utf-8")
    write_section(TABLE, "tasks", table(records))


if __name__ == "__main__":
    tyro.cli(main)
