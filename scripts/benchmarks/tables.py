"""Tables of results: printed in Markdown row by row, and kept as files."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veenv.measure.timing import machine
from veenv.orders.documents import write_text

PAGE = "docs/results/all.txt"
"""The page that shows the tables of docs/results."""


def has(name: str) -> bool:
    """Returns whether a module is installed."""
    return importlib.util.find_spec(name) is not None


def named(names: Sequence[str], known: Iterable[str], option: str) -> Sequence[str]:
    """The names, or all that there are.

    Raises:
      ValueError: there is none of a name.
    """
    known = tuple(known)
    for name in names:
        if name not in known:
            raise ValueError(f"--{option} {name}: expected one of {', '.join(known)}")
    return names or known


class Table:
    """A table of texts.

    Attributes:
      columns: their names.
      key: how many of the first cells name a row: a row of that name that the file has is replaced,
        and others are kept. Without it the table is written anew.
      known: the rows that the file has, if there is a key.
      rows: the cells.
      beside: other tables that are kept with it, by name, and that no page shows.
      changed: is called after each row.
    """

    def __init__(self, *columns: str, key: int = 0):
        self.columns, self.key = columns, key
        self.known, self.rows = list[tuple[str, ...]](), list[tuple[str, ...]]()
        self.beside: dict[str, Table] = {}
        self.changed: Callable[[], object] = lambda: None

    def add(self, *values: Any) -> None:
        """Adds a row of texts and numbers, and prints it."""
        self.rows.append(tuple(map(cell, values)))
        print(_line(self.rows[-1]), flush=True)
        self.changed()

    def head(self) -> str:
        """The head in Markdown."""
        return f"\n{_line(self.columns)}\n|{' --- |' * len(self.columns)}"

    def markdown(self) -> str:
        """The whole table in Markdown."""
        return "\n".join([self.head(), *map(_line, self.rows), ""])

    def as_dict(self) -> dict[str, Any]:
        """Columns and rows, with those known rows that were not measured now."""
        named = {row[: self.key] or k: row for k, row in enumerate([*self.known, *self.rows])}
        return {"columns": self.columns, "rows": [*named.values()]}


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(value: Any) -> str:
    """A text as it is, a number with three digits or all before the point, nothing for None.

    >>> cell("a"), cell(1200), cell(1234.5), cell(0.12345), cell(None)
    ('a', '1,200', '1,234', '0.123', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def geometric_mean(ratios: Any) -> float:
    """The geometric mean of ratios."""
    return float(np.exp(np.log(ratios).mean()))


def recorded(name: str, tables: Iterable[Table], file: Path, command: str, whole: bool) -> None:
    """Prints tables, and writes them after each row.

    Args:
      name: of the benchmark.
      tables: which begin to be filled when they come.
      file: of JSON.
      command: what makes them.
      whole: write them in Markdown, too, beside that file.

    Raises:
      ValueError: there was no row.
    """
    shown: list[Table] = []
    known = json.loads(file.read_text(encoding="utf-8"))["tables"] if file.exists() else []
    document: dict[str, Any] = {"command": command}

    def write(reached: int | None = None) -> None:
        unreached = known[len(shown) : reached] if all(table.key for table in shown) else []
        document["tables"] = [*(table.as_dict() for table in shown), *unreached]
        for table in shown:
            document.update({key: other.as_dict() for key, other in table.beside.items()})
        write_text(file, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    file.parent.mkdir(parents=True, exist_ok=True)  # a folder that cannot be made ends it now
    for table in tables:
        if not shown:  # which may have set what JAX runs on
            document |= {"machine": machine(), "page": PAGE}
            print(document["machine"])
        old = known[len(shown)] if table.key and len(shown) < len(known) else {"columns": ()}
        if tuple(old["columns"]) == table.columns:
            table.known = [*map(tuple, old["rows"])]
        shown.append(table)
        table.changed = write
        print(table.head(), flush=True)
    if not any(table.rows for table in shown):
        raise ValueError(f"benchmark {name} has no result")
    write(reached=len(shown))
    if whole:
        text = "".join(table.markdown() for table in shown)
        said = f"`{command}`\n\n{document['machine']}\n{text}"
        write_text(file.with_suffix(".md"), said)
    print(f"\nwritten: {file}{' and .md' * whole}")
