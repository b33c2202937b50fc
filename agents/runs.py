"""The folder of a run: ``runs/<task>/<time>/`` with its settings, metrics, orders and picture."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import veenv
from agents.best import BestOrders
from agents.curve import plot_curve
from agents.files import write_bytes
from agents.games import Game
from agents.networks import GraphNetwork
from agents.training import Progress
from agents.weights import save_weights


class RunFolder:
    """Writes what a run leaves behind; every file but the metrics is replaced atomically.

    Attributes:
      path: the folder.
    """

    def __init__(self, root: str | os.PathLike[str], game: Game):
        """Creates the folder; its name is the time, with a number added if that is taken.

        Args:
          root: folder of all runs.
          game: what is trained on.

        Raises:
          OSError: the folder cannot be created.
        """
        self._game = game
        self._rows: list[dict[str, Any]] = []
        parent = Path(root) / "+".join(game.names)
        stamp = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
        for number in range(1, 1000):
            self.path = parent / (stamp if number == 1 else f"{stamp}-{number}")
            try:
                self.path.mkdir(parents=True)
                return
            except FileExistsError:
                continue
        raise FileExistsError(f"no free name for a run in {parent}")

    def write_config(self, settings: Mapping[str, Any]) -> None:
        """Writes ``config.json``: the settings, and the versions that ran.

        Raises:
          OSError: it cannot be written.
        """
        graphs = {
            name: {"vertices": len(graph.eliminable), "edges": len(graph.edges), **classical}
            for name, graph, classical in zip(
                self._game.names, self._game.graphs, self._game.classical, strict=True
            )
        }
        versions = {
            "veenv": _version("veenv"),
            "jax": jax.__version__,
            "python": platform.python_version(),
        }
        record = {**settings, "graphs": graphs, "versions": versions}
        self._write_json("config.json", record)

    def log(self, progress: Progress, best: BestOrders) -> None:
        """Appends an update to ``metrics.jsonl`` and, where one improved, rewrites the orders.

        Raises:
          OSError: they cannot be written.
        """
        row = {f.name: getattr(progress, f.name) for f in dataclasses.fields(progress)}
        del row["state"], row["improved"]
        row["best_cost"] = {name: best[name].cost for name in self._game.names}
        self._rows.append(row)
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        for name in progress.improved:
            self.write_order(name, best)

    def write_order(self, name: str, best: BestOrders) -> None:
        """Writes the best order of a graph; see `order_path`.

        Raises:
          OSError: it cannot be written.
        """
        graph = self._game.graphs[self._game.names.index(name)]
        record = best[name]
        found_by = f"PPO, after {record.steps} environment steps"
        order = veenv.Order.from_graph(graph, record.ids, name, found_by)
        order.save(self.order_path(name))

    def write_weights(self, network: GraphNetwork) -> None:
        """Writes ``weights.eqx``, the network at the end of training.

        Raises:
          OSError: it cannot be written.
        """
        save_weights(self.path / "weights.eqx", network)

    def order_path(self, name: str) -> Path:
        """``order.json``, or ``order-<name>.json`` in a run of several graphs."""
        return self._path(name, "order", "json")

    def draw(self) -> None:
        """Draws ``learning_curve.png`` (``learning_curve-<name>.png`` for several graphs).

        Raises:
          OSError: it cannot be written.
        """
        for name, classical in zip(self._game.names, self._game.classical, strict=True):
            plot_curve(self._path(name, "learning_curve", "png"), name, self._rows, classical)

    def _path(self, name: str, stem: str, suffix: str) -> Path:
        several = len(self._game.names) > 1
        return self.path / (f"{stem}-{name}.{suffix}" if several else f"{stem}.{suffix}")

    def _write_json(self, name: str, record: Any) -> None:
        write_bytes(self.path / name, (json.dumps(record, indent=1) + "\n").encode())


def _version(package: str) -> str:
    """The installed version of a package; a checkout that is only on the path has none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
