"""What a benchmark printed, as files: JSON with machine and command, the table, and a plot."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from scripts.benchmarks.machine import machine
from veenv.orders.documents import write_text

PLOTTED = (
    "steps/s", "µs a step of one", "ratio", "bytes an entry", "jacve, s", "orders/s", "best in",
    "seconds", "call to return", "ms", "of its time", "weight",
)  # fmt: skip
"""Beginnings of the columns that a plot shows, the preferred ones first."""

Table = dict[str, Any]


class _Tee(io.TextIOBase):
    """Writes to a stream, and keeps what was written."""

    def __init__(self, stream: TextIO):
        self.stream, self.text = stream, io.StringIO()

    def write(self, text: str, /) -> int:
        self.text.write(text)
        return self.stream.write(text)

    def flush(self) -> None:
        if not self.stream.closed:  # this one is closed, and so flushed, when it is forgotten
            self.stream.flush()


def recorded(name: str, run: Callable[[], object], folder: Path) -> None:
    """Runs a benchmark, and writes ``NAME.json``, ``NAME.md`` and ``NAME.svg`` of what it prints.

    Args:
      name: of the files.
      run: the benchmark, which prints tables in Markdown.
      folder: where the files go; made if it is not there.

    Raises:
      ValueError: the benchmark printed no table.
    """
    tee = _Tee(sys.stdout)
    with redirect_stdout(tee):  # type: ignore[type-var]  # a stream of text, as print needs it
        run()
    text = tee.text.getvalue()
    found = tables(text)
    if not any(table["rows"] for table in found):
        raise ValueError(f"benchmark {name} printed no table")
    folder.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python", "scripts/benchmark.py", *sys.argv[1:]])
    document = {"command": command, "machine": machine(), "tables": found}
    whole = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / f"{name}.json", whole)
    write_text(folder / f"{name}.md", f"`{command}`\n\n{text.strip()}\n")
    plot(name, found, folder / f"{name}.svg")


def tables(text: str) -> list[Table]:
    r"""The tables of a text in Markdown: ``columns``, and ``rows`` of cells.

    Examples:
      >>> tables("| a | b |\\n| --- | ---: |\\n| x | **1,000** (9 … 2) |")
      [{'columns': ['a', 'b'], 'rows': [['x', '**1,000** (9 … 2)']]}]
    """
    found: list[Table] = []
    lines = [line.strip() for line in text.splitlines()]
    for before, line in zip(["", *lines], [*lines, ""], strict=True):
        if re.fullmatch(r"\|( ?:?-+:? ?\|)+", line):
            found.append({"columns": cells(before), "rows": []})
        elif found and line.startswith("|") and before.startswith("|"):
            found[-1]["rows"].append(cells(line))
    for table in found:  # the heading of the next table is no row of this one
        table["rows"] = [row for row in table["rows"] if row not in [t["columns"] for t in found]]
    return found


def kept(out: Path, command: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes a table that docs/internals/results.md shows, with the command that makes it."""
    document = {
        "command": command,
        "machine": machine(),
        "page": "docs/internals/results.md",
        "tables": [{"columns": columns, "rows": rows}],
    }
    write_text(out, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def number(cell: str) -> float | None:
    """The number that a cell begins with, None if it has none.

    Examples:
      >>> number("**1,000** (9 … 2)"), number("2e+03"), number("best")
      (1000.0, 2000.0, None)
    """
    match = re.match(r"\**(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)", cell)
    return float(match[1].replace(",", "")) if match else None


def plot(name: str, found: Sequence[Table], file: Path) -> None:
    """Bars of one column of each table, a panel a table."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    shown = [table for table in found if table["rows"]]
    longest = max(len(table["rows"]) for table in shown)
    figure = Figure(figsize=(7 * len(shown), 1.2 + 0.22 * longest), layout="constrained")
    FigureCanvasSVG(figure)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, table in zip(panels, shown, strict=True):
        columns, rows = table["columns"], table["rows"]
        chosen = _column(columns)
        bars = [number(row[chosen]) if chosen < len(row) else None for row in rows]
        labels = [", ".join(row[:chosen][:3]) or row[0] for row in rows]
        axes.barh(range(len(rows)), [0.0 if bar is None else bar for bar in bars])
        axes.set_yticks(range(len(rows)), labels, fontsize="x-small")
        axes.invert_yaxis()
        axes.set_xlabel(columns[chosen])
    figure.suptitle(f"{name}: {machine()}", fontsize="x-small")
    figure.savefig(file, metadata={"Date": None})


def _column(columns: Sequence[str]) -> int:
    """Which column a plot shows: the first of the preferred ones, else the last."""
    for beginning in PLOTTED:
        for index, column in enumerate(columns):
            if column.startswith(beginning):
                return index
    return len(columns) - 1
