"""Writes the tables of docs/libraries.md, from docs/results/libraries.json.

Run it as ``python -m scripts.docs.libraries_page`` after a measurement.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import tyro

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "libraries.md"
FIGURES = ROOT / "docs" / "results" / "libraries.json"


def filled(page: str, tables: list[dict]) -> str:
    """A page with its tables after the comments that say where they stand."""
    for name, table in zip(("solves", "derivatives"), tables, strict=True):
        head = f"| library | class | ratio | first call | difference |\n|{' --- |' * 5}\n"
        rows = (
            (*row[0].split(" ", 1), *row[5:8])
            for row in table["rows"]
            if row[1:3] == ["float32", "2,048"]
        )
        lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        pattern = rf"<!-- {name} -->\n\n(\|.*\n)*\n?"
        page = re.sub(pattern, lambda _: f"<!-- {name} -->\n\n{head}{lines}\n", page)  # noqa: B023
    return page


def main() -> None:
    """Writes the tables of docs/libraries.md, from docs/results/libraries.json."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))["tables"]
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)
