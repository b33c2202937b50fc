"""Writes the pages of docs/ that are made: all results, their excerpts, the tasks.

``python scripts/docs/pages.py`` writes, ``--check`` says which pages would change. ``--trace``
traces every task anew, under the oldest JAX, and draws its graph. An excerpt is the table behind a
comment of one line:

    <!-- excerpt of realistic: function | auto as ratio; where batch = 256; neuron | lens -->

the columns (those of the first table of the result that has them, or `as` another name), rows that
are wanted by a column's value, and by their first cell, in this order; all rows where none is
named. `libraries 1` is the second table of a result.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
import tyro

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

import veenv
from scripts.benchmarks.cases import PUBLISHED
from scripts.docs.pictures import graph_picture, read
from veenv.env.observe import ObservationKind
from veenv.graph.graph import LABELLINGS
from veenv.orders.shipped import best_for, proved_bound
from veenv.tasks import Task

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "results" / "all.txt"
EXCERPT = re.compile(r"(<!-- excerpt of (.*?) -->\n)\n*(?:\|.*\n)*\n*", re.MULTILINE)
RECORDS, CATALOGUE, TASKS = DOCS / "tasks.json", DOCS / "catalogue.md", DOCS / "tasks.md"
CLASSICAL = {"reverse": "reverse", "forward": "forward", "markowitz": "Markowitz"}
HEAD = """\
| task | best known | reverse | forward | Markowitz | leaves, vertices |
| --- | ---: | ---: | ---: | ---: | --- |
"""
CATALOGUE_BEGINNING = """\
# All tasks

Look up the sizes, best orders, observations and graph of a built-in [task](tasks.md).
`veenv.make(name)` makes its environment, `veenv.tasks.get(name)` has its function and point, and
`veenv.best_order(name)` is its best known order.

In the pictures inputs are blue, vertices to eliminate orange, and other outputs green. Depth grows
to the right. *Multiplications* is the literature's count, and *executed* the multiplications that
the engine runs ([counts](orders.md#three-counts)). The last four rows are the [kinds of
observation](environment.md#observation) with dtypes and shapes. The graphs are those of jax 0.10.
`python scripts/docs/pages.py --trace` writes this page.
"""
SECTION = re.compile(r"(<!-- tasks: begin -->\n).*?(\n<!-- tasks: end -->)", re.DOTALL)
BEGINNING = """\
# All results

Each table was made by the command above it, on the machine that it
names, and is kept as a file in `docs/results`. The pages show excerpts.
`scripts/docs/pages.py` writes this page from these files.
"""


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; columns of numbers are right-aligned."""
    number = [
        all(re.fullmatch(r"[-*\d.,e+–… ()]*", row[k]) for row in rows) for k in range(len(columns))
    ]
    lines = [columns, ["---:" if right else "---" for right in number], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def results() -> str:
    """The page of all results that no other page shows as a whole."""
    parts = [BEGINNING]
    for path in sorted((DOCS / "results").glob("*.json")):
        result = read(f"results/{path.stem}")
        if result["page"] != "docs/results/all.txt":
            continue
        parts.append(f"\n## {path.stem}\n\n`{result['command']}`\n\n{result['machine']}\n")
        for one in result["tables"]:
            shown = table(one["columns"], one["rows"])
            parts.append(f"\n{len(one['rows'])} rows\n\n{shown}")
    return "".join(parts)


def excerpt(said: str) -> str:
    """The table that the words of a comment ask for."""
    source, _, rest = said.partition(": ")
    name, _, number = source.partition(" ")
    wanted, *more = rest.split("; ")
    pairs = [column.split(" as ") for column in wanted.split(" | ")]
    rows = []
    for k, one in enumerate(read(f"results/{name}")["tables"]):
        if number in ("", str(k)) and all(pair[0] in one["columns"] for pair in pairs):
            rows = [
                dict(zip(reversed(one["columns"]), reversed(row), strict=True))
                for row in one["rows"]
            ]
            break
    names: list[str] = []
    for word in more:
        if word.startswith("where "):
            column, value = word.removeprefix("where ").split(" = ")
            rows = [row for row in rows if row[column] == value]
        else:
            names = word.split(" | ")
    first = pairs[0][0]
    if names:
        rows = [next(row for row in rows if row[first] == name) for name in names]
    if not rows:
        raise ValueError(f"no row of docs/results/{name}.json is as {said!r} says")
    return table([pair[-1] for pair in pairs], [[row[pair[0]] for pair in pairs] for row in rows])


def record(task: Task) -> dict[str, Any]:
    """Traces a task for `docs/tasks.json`: sizes, counts and observations."""
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


def screen(task: Task, facts: Mapping[str, Any]) -> str:
    """The section of a task."""
    counts = []
    for cost in LABELLINGS:
        rest = [f"{name} {facts['classical'][order][cost]:,}" for order, name in CLASSICAL.items()]
        if cost == "multiplications" and task.name in PUBLISHED:
            rest.append(f"published {PUBLISHED[task.name]}")
        proved = ", proved optimal" if best(facts, cost).endswith("*") else ""
        by = facts["found by"][cost].replace("'", "")
        known = f"**{facts['best'][cost]:,}**{proved}, found by {by}"
        counts.append((cost, f"{known}; {', '.join(rest)}"))
    rows = [
        ("arguments", shapes(facts["arguments"])),
        ("results", shapes(facts["results"])),
        ("graph", f"{facts['vertices']} vertices to eliminate, {facts['edges']:,} edges"),
        *counts,
        *(
            (
                f"`{kind}`",
                "; ".join(f"{name} {dtype} {list(shape)}".strip() for name, dtype, shape in of),
            )
            for kind, of in facts["observations"].items()
        ),
    ]
    drawn = f"![Graph of {task.name}](pictures/tasks/{task.name}.svg)"
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


def best(facts: Mapping[str, Any], cost: str) -> str:
    """The best known count, with a star where it is proved."""
    return f"{facts['best'][cost]:,}" + "*" * (facts["best"][cost] == facts["bounds"][cost])


def catalogue(records: Mapping[str, Any]) -> str:
    """The page with a screen for each task."""
    return CATALOGUE_BEGINNING + "".join(
        screen(veenv.tasks.get(n), facts) for n, facts in records.items()
    )


def tasks_table(records: Mapping[str, Any]) -> str:
    """The table of docs/tasks.md: counts as ``multiplications / executed``, then sizes."""
    rows = []
    for name, facts in records.items():
        link = f"[{name}]({CATALOGUE.name}#{name.lower()})"
        known = " / ".join(best(facts, cost) for cost in LABELLINGS)
        orders = (facts["classical"][order].values() for order in CLASSICAL)
        classical = (" / ".join(f"{count:,}" for count in counts) for counts in orders)
        sizes = f"{facts['leaves'][0]} → {facts['leaves'][1]}, {facts['vertices']}"
        rows.append(f"| {' | '.join([link, known, *classical, sizes])} |\n")
    return (HEAD + "".join(rows)).rstrip("\n")


def pages() -> dict[Path, str]:
    """Returns the text that each page should have."""
    records = read("tasks")
    texts = {PAGE: results(), CATALOGUE: catalogue(records)}
    for path in [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]:
        if path not in texts:
            text = path.read_text(encoding="utf-8")
            filled = EXCERPT.sub(lambda m: f"{m[1]}\n{excerpt(m[2])}\n", text)
            if path == TASKS:
                filled = SECTION.sub(lambda m: f"{m[1]}{tasks_table(records)}{m[2]}", filled)
            texts[path] = filled.rstrip("\n") + "\n"
    return texts


def main(check: bool = False, trace: bool = False) -> int:
    """Writes the pages that change, and names them.

    Args:
      check: write nothing; the exit code is 1 if a page would change.
      trace: trace the tasks and draw their graphs first.
    """
    if trace:
        records = {name: record(veenv.tasks.get(name)) for name in veenv.tasks.list()}
        lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(facts)}" for n, facts in records.items())
        RECORDS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        for name in records:
            path = DOCS / "pictures" / "tasks" / f"{name}.svg"
            path.write_text(graph_picture(veenv.make(name).graph), encoding="utf-8")
    changed = 0
    for path, text in pages().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        print(path.relative_to(DOCS.parent))
        changed += 1
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(changed > 0 and check)


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
