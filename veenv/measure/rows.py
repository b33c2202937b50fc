"""Reads the rows of a run's metrics: a file with one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from veenv.orders.documents import parse_object

COSTS = ("mean_cost", "min_cost", "best_cost")
"""Fields with the costs of a train step's orders, by task."""


def read_rows(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Reads the valid rows, none without a file, and describes the faults of other lines."""
    rows, problems = [], []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        lines = []
    for number, line in enumerate(lines, 1):
        try:
            row = parse_object(line)
            _check(row)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
        else:
            rows.append(row)
    return rows, problems


def rows_of(rows: Iterable[Mapping[str, Any]], task: str) -> list[Mapping[str, Any]]:
    """Returns the rows that know what the orders of a task cost."""
    return [row for row in rows if all(task in row.get(name, ()) for name in COSTS)]


def _check(row: Mapping[str, Any]) -> None:
    """Checks the fields that readers rely on."""
    costs = [name for name in COSTS if name in row]
    for name in ("update", *(("steps", "seconds") if costs else ())):
        if type(row.get(name)) not in (int, *((float,) if name == "seconds" else ())):
            raise ValueError(f"{name}: expected a number, got {row.get(name)!r:.60}")
    for name in costs:
        numbers = row[name].values() if isinstance(row[name], dict) else [None]
        if not all(type(number) in (int, float) for number in numbers):
            raise ValueError(f"{name}: expected numbers by task, got {row[name]!r:.60}")
