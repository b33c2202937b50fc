"""Checkpoints of a run: everything that training needs to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from veenv.agents.files import set_aside
from veenv.agents.run.checkpoint_files import (
    DamagedError,
    read_checkpoint,
    read_state,
    write_checkpoint,
)


@dataclasses.dataclass(frozen=True)
class Restored:
    """The contents of a checkpoint.

    Attributes:
      number: of the train step.
      state: the train state.
      run: what else the run remembers, as JSON.
    """

    number: int
    state: Any
    run: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run: the newest few, and the best one.

    Attributes:
      folder: where they are, one file for each, named by the number of the train step.
    """

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        *,
        keep: int = 3,
        warn: Callable[[str], None] = lambda text: None,
    ):
        """Nothing is read or written yet.

        What is read must agree in `identity`, JSON; `keep` of the newest are kept, and the best
        one; `warn` is a callback for what cannot be read.
        """
        self.folder = folder
        self._identity = json.loads(json.dumps(identity))
        self._keep, self._warn = keep, warn
        self._scores: dict[int, float] = {}

    def save(self, number: int, state: Any, run: Mapping[str, Any], score: float = 0.0) -> bool:
        """Writes a checkpoint unless it is there, then deletes those that need not be kept.

        It holds the state after a train step, arrays and typed keys, and what else the run
        remembers, as JSON.  That with the lowest score is the best.

        Returns:
          Whether it is the best one.

        Raises:
          OSError: it cannot be written; earlier ones stay as they are.
        """
        path = self.path(number)
        if path.exists():
            return False
        known = score if math.isfinite(score) else None
        record = {"identity": self._identity, "run": json.loads(json.dumps(run)), "score": known}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(path, state, record)
        self._scores[number] = math.inf if known is None else known
        return self._delete_old(number)

    def path(self, number: int) -> Path:
        """Returns the file of a checkpoint."""
        return self.folder / f"{number}.checkpoint"

    def restore(self, like: Any) -> Restored | None:
        """Reads the newest checkpoint that is whole.

        Returns:
          What it held; None if there never was a checkpoint.

        Raises:
          ValueError: all are damaged, or the newest one is of another task or network.
        """
        numbers = self.numbers()
        for number in reversed(numbers):
            path = self.path(number)
            try:
                record, body = read_checkpoint(path)
                self._check_identity(path, record)
                return Restored(number, read_state(record, body, like), record["run"])
            except DamagedError as error:
                self._warn(f"checkpoint {path} is damaged ({error}); trying the one before it")
        if numbers:
            raise ValueError(f"every checkpoint in {self.folder} is damaged")
        return None

    def numbers(self) -> list[int]:
        """Returns the numbers of the checkpoints there are, oldest first."""
        matches = (re.fullmatch(r"(0|[1-9][0-9]*)\.checkpoint", name) for name in self._names())
        return sorted(int(match[1]) for match in matches if match)

    def set_aside_after(self, number: int) -> None:
        """Renames the checkpoints after a number (damaged ones); deletes what is half written."""
        for name in self._names():
            if name.startswith(".") and name.endswith(".part"):
                (self.folder / name).unlink()
        for later in self.numbers():
            if later > number:
                set_aside(self.path(later))

    def _delete_old(self, newest: int) -> bool:
        """Deletes checkpoints that need not be kept; returns whether the newest is the best."""
        scores = {number: self._score(number) for number in self.numbers()}
        best = min(scores, key=lambda number: (scores[number], -number))
        for number in sorted(scores)[: -self._keep]:
            if number != best:
                self.path(number).unlink()
        return best == newest

    def _score(self, number: int) -> float:
        if number not in self._scores:
            try:
                score = read_checkpoint(self.path(number))[0]["score"]
            except DamagedError:
                score = None
            self._scores[number] = math.inf if score is None else score
        return self._scores[number]

    def _names(self) -> list[str]:
        """Returns the names of what is in the folder; none where there is no folder."""
        try:
            return [path.name for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _check_identity(self, path: Path, record: Mapping[str, Any]) -> None:
        for what in {**self._identity, **record["identity"]}:
            expected, recorded = self._identity.get(what), record["identity"].get(what)
            if recorded != expected:
                raise ValueError(
                    f"checkpoint {path} is of another {what}: it is {_shown(recorded, expected)}, "
                    f"this run's is {_shown(expected, recorded)}"
                )


class Schedule:
    """When to write a checkpoint."""

    def __init__(self, seconds: float, updates: int | None = None):
        """The first is due an interval from now, of seconds or, if given, of train steps."""
        self._seconds, self._updates = seconds, updates
        self._last = time.monotonic()

    def is_due(self, number: int) -> bool:
        """Returns whether to write one after train step `number`; then the next interval begins."""
        now = time.monotonic()
        if self._updates is not None:
            return number % self._updates == 0
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def _shown(value: Any, other: Any) -> str:
    """A value for an error message; of two mappings only what differs."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        differing = {k: v for k, v in value.items() if k not in other or other[k] != v}
        return ", ".join(f"{k} {v}" for k, v in differing.items()) or "without the rest"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
