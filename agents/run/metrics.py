"""What a run measures, one row an update: ``metrics.jsonl`` and the same as ``metrics.csv``."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veenv.agents.files import append_bytes, set_aside
from veenv.measure.rows import read_rows
from veenv.orders.documents import is_local, write_bytes


class Metrics:
    """The rows of a run, in memory and in two files that hold the same.

    The columns of the CSV file are those of the first row; nested values have names such as
    ``stats.entropy``.

    Attributes:
      rows: all rows so far.
    """

    def __init__(self, folder: Path):
        """Starts without rows; nothing is read or written yet.

        Objects behind addresses do not grow: they are written anew, and by `flush` alone.
        """
        self._grows = is_local(folder)
        self._json, self._csv = folder / "metrics.jsonl", folder / "metrics.csv"
        self.rows: list[dict[str, Any]] = []
        self._written = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Appends a row, and those that could not be written before.

        Raises:
          OSError: it cannot be written; it stays in memory and the files hold whole rows.
        """
        self.rows.append(_without_nan(row))
        if self._grows:
            self.flush()

    def flush(self) -> None:
        """Writes the rows that are not written yet.

        Raises:
          OSError: as `add`.
        """
        new = self.rows[self._written :]
        if not new:
            return
        if not self._grows:
            self._rewrite()
            return
        size = append_bytes(self._json, b"".join(_json_line(row) for row in new))
        try:
            append_bytes(self._csv, self._csv_lines(new, header=self._written == 0))
        except OSError:
            with self._json.open("r+b") as file:
                file.truncate(size)
            raise
        self._written = len(self.rows)

    def resume(self, update: int) -> list[str]:
        """Goes on after a train step: drops the rows of later ones.

        Returns:
          What was wrong with the files; where lines could not be read, both are kept aside.

        Raises:
          OSError: the files cannot be read or written.
        """
        rows, problems = read_rows(self._json)
        if self._rows_of_csv() > len(rows) and not problems:
            problems = [f"it has {len(rows)} rows, fewer than {self._csv.name}"]
        if problems:
            aside = [set_aside(path) for path in (self._json, self._csv) if path.exists()]
            shown = "; ".join(problems[:3]) + f"; and {len(problems) - 3} more" * (
                len(problems) > 3
            )
            kept = " and ".join(path.name for path in aside)
            problems = [f"{self._json}: {shown}; the files as they were are {kept}"]
        self.rows = [row for row in rows if row["update"] <= update]
        self._rewrite()
        return problems

    def _rewrite(self) -> None:
        """Writes both files anew."""
        write_bytes(self._json, b"".join(_json_line(row) for row in self.rows))
        write_bytes(self._csv, self._csv_lines(self.rows, header=True) if self.rows else b"")
        self._written = len(self.rows)

    def _rows_of_csv(self) -> float:
        """Rows of the second file, which is never ahead of the first; infinite if it is no CSV."""
        try:
            text = self._csv.read_bytes().decode(errors="replace")
            return sum(1 for _ in csv.reader(io.StringIO(text, newline=""))) - 1
        except FileNotFoundError:
            return 0
        except csv.Error:
            return math.inf

    def _csv_lines(self, rows: list[dict[str, Any]], *, header: bool) -> bytes:
        text = io.StringIO()
        writer = csv.DictWriter(
            text, list(flat(self.rows[0])), extrasaction="ignore", lineterminator="\n"
        )
        if header:
            writer.writeheader()
        writer.writerows(flat(row) for row in rows)
        return text.getvalue().encode(errors="backslashreplace")


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A row without nesting.

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


def _json_line(row: Mapping[str, Any]) -> bytes:
    return (json.dumps(row, allow_nan=False) + "\n").encode()


def _without_nan(value: Any) -> Any:
    """None instead of numbers that JSON does not know."""
    if isinstance(value, Mapping):
        return {name: _without_nan(x) for name, x in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
