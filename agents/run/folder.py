"""What the folders of all training runs have in common: settings, metrics, weights, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from agents.config.args import TrainArgs
from agents.config.settings import CONFIG_NAME, to_toml
from agents.files import lock_folder
from agents.nn.networks import GraphNetwork
from agents.nn.weights import save_weights
from agents.ppo.ppo import TrainState
from agents.run.checkpoints import Checkpoints
from agents.run.metrics import Metrics
from veenv.orders.documents import write_bytes


class Folder:
    """Writes what a run leaves behind; files are replaced atomically or only ever grow.

    What cannot be written (a full disk) is warned of, kept in memory and tried again: training
    goes on.

    Attributes:
      path: the folder.
      metrics: the rows so far.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda text: None):
        """Locks the folder for this process.

        Args:
          path: the folder, which exists.
          warn: told of what cannot be written.

        Raises:
          OSError: the folder cannot be opened, or another process uses it.
        """
        self.path, self.metrics, self.warn = path, Metrics(path), warn
        self._failing: set[str] = set()
        self._lock = lock_folder(path)

    def close(self) -> None:
        """Lets other processes use the folder; the end of this one does so, too."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def attempt(self, what: str, action: Callable[[], object]) -> bool:
        """Whether something could be written; says so when that changes."""
        try:
            action()
        except OSError as error:
            if what not in self._failing:
                self.warn(f"cannot write {what}: {error}")
                self._failing.add(what)
            return False
        if what in self._failing:
            self.warn(f"{what} can be written again")
            self._failing.remove(what)
        return True

    def write_config(self, args: TrainArgs, facts: Mapping[str, Any]) -> None:
        """Writes ``config.toml``, for --config, and ``config.json``: what ran besides.

        Args:
          args: the settings.
          facts: what else ``config.json`` is to say.

        Raises:
          OSError: they cannot be written.
        """
        versions = {
            "veenv": _version("veenv"),
            "jax": jax.__version__,
            "python": platform.python_version(),
        }
        record = {**dataclasses.asdict(args), **facts, "versions": versions}
        write_bytes(self.path / "config.json", (json.dumps(record, indent=1) + "\n").encode())
        write_bytes(self.path / CONFIG_NAME, to_toml(args).encode())

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Adds a row to the metrics."""
        self.attempt("the metrics", lambda: self.metrics.add(row))

    def write_weights(self, network: GraphNetwork) -> None:
        """Writes ``weights.eqx``, the network at the end of training."""
        path = self.path / "weights.eqx"
        self.attempt(path.name, lambda: save_weights(path, network))

    def write_checkpoint(
        self,
        checkpoints: Checkpoints,
        number: int,
        state: TrainState,
        run: Mapping[str, Any],
        score: float,
    ) -> None:
        """Writes a checkpoint, and ``best.eqx`` where it is the best one.

        Args:
          checkpoints: of this run.
          number: of the train step.
          state: after it.
          run: what else to remember; the number of rows of the metrics is added.
          score: the lower the better.
        """
        run = {**run, "num_rows": len(self.metrics.rows)}

        def write() -> None:
            if checkpoints.save(number, state, run, score):
                save_weights(self.path / "best.eqx", state.network)

        self.attempt("a checkpoint", write)

    def drop_after(self, num_rows: int) -> None:
        """Goes on in the folder: drops later rows of the metrics, and what is half written.

        Args:
          num_rows: rows of the metrics to keep.

        Raises:
          OSError: the metrics cannot be read or written.
        """
        for path in self.path.glob(".*.part"):
            path.unlink()
        self.metrics.take_up(num_rows)


def _version(package: str) -> str:
    """The installed version of a package; a checkout that is only on the path has none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
