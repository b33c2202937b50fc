"""Tables as they are printed, in Markdown, and as files, in JSON with what made them."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from scripts.benchmarks.machine import machine
from veenv.orders.documents import write_text

PAGE = "docs/internals/results.md"
"""The page that shows the tables."""


@dataclasses.dataclass
class Table:
    """A table of texts.

    Attributes:
      columns: their names.
      rows: the cells.
    """

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = dataclasses.field(default_factory=list)

    def begin(self) -> None:
        """Prints the head."""
        print(f"\n| {' | '.join(self.columns)} |\n|{' --- |' * len(self.columns)}", flush=True)

    def add(self, *cells: str) -> None:
        """Adds a row and prints it."""
        self.rows.append(cells)
        print(f"| {' | '.join(cells)} |", flush=True)

    def show(self) -> None:
        """Prints the head and all rows."""
        self.begin()
        for cells in self.rows:
            print(f"| {' | '.join(cells)} |", flush=True)


def write_result(path: str | Path, *tables: Table, **more: Table) -> None:
    """Writes tables as JSON, with the command that was given and the machine.

    Args:
      path: of the file.
      tables: those that the page shows.
      more: other tables, by name.

    Raises:
      OSError: the file cannot be written.
    """
    document: dict[str, Any] = {
        "command": f"python scripts/benchmark.py {shlex.join(sys.argv[1:])}",
        "machine": machine(),
        "page": PAGE,
        "tables": [dataclasses.asdict(table) for table in tables],
    }
    document |= {name: dataclasses.asdict(table) for name, table in more.items()}
    write_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
