"""Checkpoints of a run: everything that training needs to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from veenv.agents.files import remove_folder, set_aside
from veenv.agents.run.checkpoint_files import (
    DamagedError,
    is_checkpoint,
    is_unfinished,
    near,
    read_record,
    read_state,
    write_checkpoint,
)


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a checkpoint held.

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
      folder: where they are, one folder for each, named by the number of the train step.
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
          OSError: it cannot be written; earlier ones stay as they are.  What is half written has
            another name, is never read and goes with the next save at the latest.
        """
        path = self.folder / str(number)
        if path.exists():
            if number not in self.numbers():
                raise FileExistsError(f"{path} is no checkpoint, so there is no room for one")
            return False
        record = {
            "identity": self._identity,
            "run": dict(run),
            "score": score if math.isfinite(score) else None,
        }
        self._remove_unfinished()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_checkpoint(path, state, record)
        except BaseException:
            self._remove_unfinished()
            raise
        self._scores[number] = score if math.isfinite(score) else math.inf
        return self._delete_old(number)

    def restore(self, like: Any) -> Restored | None:
        """Reads the newest checkpoint that is whole.

        Returns:
          What it held; None if there never was a checkpoint.

        Raises:
          ValueError: all are damaged, or the newest one is of another task or network.
        """
        numbers = self.numbers()
        for number in reversed(numbers):
            path = self.folder / str(number)
            try:
                with near(path) as folder:
                    record = read_record(folder)
                    self._check_identity(path, record)
                    state = read_state(folder, record, like)
            except DamagedError as error:
                self._warn(f"checkpoint {path} is damaged ({error}); trying the one before it")
                continue
            return Restored(number, state, record["run"])
        if numbers:
            raise ValueError(f"every checkpoint in {self.folder} is damaged")
        return None

    def numbers(self) -> list[int]:
        """The checkpoints there are, oldest first; those half written are left out."""
        return sorted(int(path.name) for path in self._entries() if is_checkpoint(path))

    def set_aside_after(self, number: int) -> None:
        """Renames the checkpoints after a number (damaged ones); deletes what is half written."""
        self._remove_unfinished()
        for later in self.numbers():
            if later > number:
                set_aside(self.folder / str(later))

    def _delete_old(self, newest: int) -> bool:
        scores = {number: self._score(number) for number in self.numbers()}
        best = min(scores, key=lambda number: (scores[number], -number))
        for number in sorted(scores)[: -self._keep]:
            if number != best:
                remove_folder(self.folder / str(number))
        return best == newest

    def _score(self, number: int) -> float:
        if number not in self._scores:
            try:
                with near(self.folder / str(number)) as folder:
                    score = read_record(folder)["score"]
            except DamagedError:
                score = None
            self._scores[number] = math.inf if score is None else score
        return self._scores[number]

    def _remove_unfinished(self) -> None:
        """Deletes what is half written.

        TensorStore's threads may bring some of it back a moment after a write that failed, so every
        save begins with this.
        """
        for path in self._entries():
            if is_unfinished(path):
                remove_folder(path)

    def _entries(self) -> list[Path]:
        """What is in the folder; nothing where there is none."""
        try:
            return list(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _check_identity(self, path: Path, record: Mapping[str, Any]) -> None:
        for what in {**self._identity, **record["identity"]}:
            expected, found = self._identity.get(what), record["identity"].get(what)
            if found != expected:
                raise ValueError(
                    f"checkpoint {path} is of another {what}: it is {_shown(found, expected)}, "
                    f"this run's is {_shown(expected, found)}"
                )


class Schedule:
    """When to write a checkpoint."""

    def __init__(self, seconds: float, updates: int | None = None):
        """The first is due an interval from now, of seconds or, if given, of train steps."""
        self._seconds, self._updates = seconds, updates
        self._last = time.monotonic()

    def is_due(self, number: int) -> bool:
        """Whether to write one now, after train step `number`; if so, the next interval begins."""
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
