"""Metrics shown elsewhere: TensorBoard and Weights & Biases, where they are installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from veenv.agents.run.metrics import flat


class TensorBoard:
    """Event files in ``<run>/tensorboard``; the step is the number of environment steps."""

    def __init__(self, run: Path, steps: int):
        """Opens a new file; events after `steps` in older ones are void."""
        writer = need("tensorboardX", "tensorboard").SummaryWriter
        self._writer = writer(str(run / "tensorboard"), purge_step=steps + 1 if steps else None)

    def log(self, row: Mapping[str, Any]) -> None:
        """Takes one row."""
        for name, value in numbers(row).items():
            self._writer.add_scalar(name.replace(".", "/"), value, row["steps"])

    def close(self) -> None:
        """Writes what is still held back."""
        self._writer.close()


class WeightsAndBiases:
    """A run of the project ``veenv``, its files in ``<run>/wandb``; resumed by its name."""

    def __init__(self, run: Path, settings: Mapping[str, Any], warn: Callable[[str], None]):
        """Starts the run, or goes on with it; without an account or a network it stays offline."""
        wandb = need("wandb", "wandb")
        options = {
            "settings": wandb.Settings(console="off"),
            "project": "veenv",
            "dir": str(run),
            "id": f"{run.parent.name}-{run.name}".replace("+", "-"),
            "name": f"{run.parent.name}/{run.name}",
            "config": dict(settings),
            "resume": "allow",
        }
        try:
            self._run = wandb.init(**options)
        except wandb.errors.Error as error:
            warn(f"wandb logs to {run / 'wandb'} only, for `wandb sync`: {error}")
            self._run = wandb.init(**options, mode="offline")

    def log(self, row: Mapping[str, Any]) -> None:
        """Takes one row."""
        self._run.log({n.replace(".", "/"): x for n, x in numbers(row).items()}, step=row["update"])

    def close(self) -> None:
        """Writes what is still held back."""
        self._run.finish()


Tracker = TensorBoard | WeightsAndBiases


class Trackers:
    """Any number of trackers as a context manager; what they cannot write is warned of, once."""

    def __init__(self, trackers: Sequence[Tracker], warn: Callable[[str], None]):
        """Takes open trackers; `warn` is a callback."""
        self._trackers, self._warn = tuple(trackers), warn
        self._failed = False

    def __enter__(self) -> Self:
        """The trackers, which are open already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes them."""
        self._for_all(lambda tracker: tracker.close())

    def log(self, row: Mapping[str, Any]) -> None:
        """Gives each of them a row."""
        self._for_all(lambda tracker: tracker.log(row))

    def _for_all(self, action: Callable[[Tracker], None]) -> None:
        for tracker in self._trackers:
            try:
                action(tracker)
            except OSError as error:
                if not self._failed:
                    self._warn(f"cannot write to {type(tracker).__name__}: {error}")
                self._failed = True


def need(module: str, extra: str) -> ModuleType:
    """Imports a package that not everybody has and that an extra of veenv installs.

    Raises:
      ValueError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"--{extra} needs {module} ({error}); pip install 'veenv[{extra}]'"
        ) from None


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a row, by name."""
    return {n: x for n, x in flat(row).items() if isinstance(x, int | float)}
