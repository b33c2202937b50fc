"""Tables in Markdown, printed row by row, and what is installed to fill them."""

from __future__ import annotations

import importlib.util
from typing import Any

Row = dict[str, Any]


def header(columns: tuple[str, ...]) -> None:
    """Prints a blank line and the head of a table."""
    print("\n| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))


def line(row: Row, columns: tuple[str, ...]) -> None:
    """Prints one row; a dash where it has nothing."""
    print("| " + " | ".join(str(row.get(c, "–")) for c in columns) + " |", flush=True)


def has(name: str) -> bool:
    """Whether a module is installed."""
    return importlib.util.find_spec(name) is not None
