"""Writes the tables of docs/libraries.md, from docs/results/libraries.json.

Run it as ``python -m scripts.docs.libraries_page`` after a measurement.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import tyro

from scripts.docs import results_page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "libraries.md"
FIGURES = ROOT / "docs" / "results" / "libraries.json"


def filled(page: str, tables: list[dict]) -> str:
    """A page with its tables after the comments that say where they stand."""
    solves, derivatives, *made = tables
    heads = ["library", "class", "ratio", "first call", "difference"]
    for name, table in (("solves", solves), ("derivatives", derivatives)):
        usual = [row for row in table["rows"] if row[1:3] == ["float32", "2,048"]]
        rows = [[*row[0].split(" ", 1), *row[5:8]] for row in usual]
        page = _put(page, name, heads, rows)
    ratios = {(row[0], row[1], row[2]): row[5] for row in solves["rows"]}
    scaled = dict.fromkeys(name for name, _, size in ratios if size != "2,048")
    columns = [(kind, size) for kind in ("float32", "float64") for size in _SIZES]
    rows = [[name, *(ratios.get((name, *column), "") for column in columns)] for name in scaled]
    page = _put(page, "scaled", ["solve", *(f"{size}, {kind}" for kind, size in columns)], rows)
    for table in made:
        page = _put(page, "made", table["columns"], table["rows"])
    return page


_SIZES = ("64", "2,048", "65,536")


def _put(page: str, name: str, heads: list[str], rows: list[list[str]]) -> str:
    """A page with one of its tables."""
    shown = f"<!-- {name} -->\n\n{results_page.table(heads, rows)}\n"
    return re.sub(rf"<!-- {name} -->\n\n(\|.*\n)*\n?", lambda _: shown, page)


def main() -> None:
    """Writes the tables of docs/libraries.md, from docs/results/libraries.json."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))["tables"]
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)
