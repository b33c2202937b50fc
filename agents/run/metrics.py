"""Writes what a run measures, one row a train step, as ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veenv.agents.files import append_bytes, set_aside
from veenv.measure.rows import read_rows
from veenv.orders.documents import is_local, write_bytes


class Metrics:
    """The rows of a run, in memory and in a file.

    Attributes:
      rows: all rows so far.
    """

    def __init__(self, folder: Path):
        """Starts without rows; nothing is read or written yet.

        Objects behind addresses do not grow: they are written anew, and by `flush` alone.
        """
        self._grows, self._file = is_local(folder), folder / "metrics.jsonl"
        self.rows: list[dict[str, Any]] = []
        self._written = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Appends a row, and those that could not be written before.

        Raises:
          OSError: it cannot be written; it stays in memory and the file holds whole rows.
        """
        self.rows.append(_without_nan(row))
        if self._grows:
            self.flush()

    def flush(self) -> None:
        """Writes the rows that are not written yet.

        Raises:
          OSError: as `add`.
        """
        if self._written < len(self.rows):
            if self._grows:
                append_bytes(self._file, _lines(self.rows[self._written :]))
            else:
                write_bytes(self._file, _lines(self.rows))
            self._written = len(self.rows)

    def resume(self, update: int) -> list[str]:
        """Goes on after a train step: drops the rows of later ones.

        Returns:
          What was wrong with the file; where lines could not be read, it is kept aside.

        Raises:
          OSError: the file cannot be read or written.
        """
        rows, problems = read_rows(self._file)
        if problems:
            shown = "; ".join(problems[:3])
            more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
            aside = set_aside(self._file)
            problems = [f"{self._file}: {shown}{more}; the file as it was is {aside.name}"]
        self.rows = [row for row in rows if row["update"] <= update]
        write_bytes(self._file, _lines(self.rows))
        self._written = len(self.rows)
        return problems


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns a row without nesting.

    >>> flat({"update": 1, "stats": {"entropy": 0.5}})
    {'update': 1, 'stats.entropy': 0.5}
    """
    result = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[prefix + name] = value
    return result


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join((json.dumps(row, allow_nan=False) + "\n").encode() for row in rows)


def _without_nan(value: Any) -> Any:
    """Replaces numbers that JSON does not know by None."""
    if isinstance(value, Mapping):
        return {name: _without_nan(x) for name, x in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
