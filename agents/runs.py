"""The folder of a run: ``runs/<task>/<time>/`` with its settings, metrics, orders, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import re
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import veenv
from agents.best import BestOrders
from agents.checkpoints import Checkpoints
from agents.cli import TrainArgs
from agents.curve import plot_curve
from agents.files import lock_folder, new_folder, write_bytes
from agents.games import Game
from agents.metrics import Metrics
from agents.networks import GraphNetwork
from agents.settings import CONFIG_NAME, to_toml
from agents.training import Progress
from agents.weights import architecture, save_weights
from veenv.orders import fingerprint

_FOUND_BY = "{}, after {} environment steps"


class RunFolder:
    """Writes what a run leaves behind; files are replaced atomically or only ever grow.

    What cannot be written (a full disk) is warned of, kept in memory and tried again: training
    goes on.

    Attributes:
      path: the folder.
      metrics: the rows so far.
    """

    def __init__(self, path: Path, game: Game, warn: Callable[[str], None] = lambda text: None):
        """Locks the folder for this process; see `create` and `take_up`.

        Args:
          path: the folder, which exists.
          game: what is trained on.
          warn: told of what cannot be written.

        Raises:
          OSError: the folder cannot be opened, or another process uses it.
        """
        self.path, self.metrics = path, Metrics(path)
        self._game, self._warn = game, warn
        self._failing: set[str] = set()
        self._unsaved: set[str] = set()
        self._lock = lock_folder(path)

    @classmethod
    def create(
        cls,
        root: str | os.PathLike[str],
        game: Game,
        warn: Callable[[str], None] = lambda text: None,
    ) -> RunFolder:
        """Makes a new folder; its name is the time, with a number added if that is taken.

        Args:
          root: folder of all runs.
          game: what is trained on.
          warn: told of what cannot be written.

        Raises:
          OSError: the folder cannot be created.
        """
        return cls(new_folder(Path(root) / "+".join(game.names)), game, warn)

    def close(self) -> None:
        """Lets other processes use the folder; the end of this one does so, too."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write_settings(self, args: TrainArgs) -> None:
        """Writes ``config.toml``, for --config, and ``config.json``: what ran besides.

        Raises:
          OSError: they cannot be written.
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
        record = {**dataclasses.asdict(args), "graphs": graphs, "versions": versions}
        write_bytes(self.path / "config.json", (json.dumps(record, indent=1) + "\n").encode())
        write_bytes(self.path / CONFIG_NAME, to_toml(args).encode())

    def log(self, progress: Progress, best: BestOrders) -> dict[str, Any]:
        """Adds an update to the metrics and, where one improved, rewrites the orders.

        Returns:
          The row of the metrics.
        """
        row = {f.name: getattr(progress, f.name) for f in dataclasses.fields(progress)}
        del row["state"], row["improved"]
        row["best_cost"] = {name: best[name].cost for name in self._game.names}
        self._unsaved |= set(progress.improved)
        self.save_orders(best)
        self._attempt("the metrics", lambda: self.metrics.add(row))
        return row

    def save_orders(self, best: BestOrders) -> bool:
        """Writes the best orders that are not yet on disk; True if all of them are."""
        for name in sorted(self._unsaved):
            if self._attempt(self.order_path(name).name, lambda n=name: self._write_order(n, best)):
                self._unsaved.remove(name)
        return not self._unsaved

    def save_checkpoint(
        self, checkpoints: Checkpoints, progress: Progress, best: BestOrders
    ) -> None:
        """Writes a checkpoint, and ``best.eqx`` where it is the best one.

        Args:
          checkpoints: of this run.
          progress: of the train step after which it is.
          best: the orders so far.
        """
        run = {
            "seconds": progress.seconds,
            "num_rows": len(self.metrics.rows),
            "best": best.record(),
        }
        score = mean_ratio(progress, self._game)

        def write() -> None:
            if checkpoints.save(progress.update, progress.state, run, score):
                save_weights(self.path / "best.eqx", progress.state.network)

        self._attempt("a checkpoint", write)

    def take_up(self, num_rows: int, best: BestOrders) -> None:
        """Goes on in a folder: drops later metrics, merges the orders in it with the best ones.

        Args:
          num_rows: rows of the metrics to keep.
          best: the orders so far, which are told of cheaper ones in the folder.

        Raises:
          OSError: the metrics cannot be read or written.
        """
        self.metrics.take_up(num_rows)
        found = {}
        for name, graph in zip(self._game.names, self._game.graphs, strict=True):
            path = self.order_path(name)
            if path.exists():
                try:
                    order = veenv.Order.load(path)
                    ids = order.ids_for(graph)
                except ValueError as error:
                    self._warn(str(error))
                    continue
                steps = re.search(r"after (\d+) ", order.found_by)
                cost = order.counts[self._game.cost]
                found[name] = {"ids": ids, "cost": cost, "steps": int(steps[1]) if steps else 0}
        best.merge(found)
        self._unsaved = {
            name
            for name in best.record()
            if name not in found or best[name].cost < found[name]["cost"]
        }
        self.save_orders(best)

    def write_weights(self, network: GraphNetwork) -> None:
        """Writes ``weights.eqx``, the network at the end of training."""
        path = self.path / "weights.eqx"
        self._attempt(path.name, lambda: save_weights(path, network))

    def write_polished(self, name: str, ids: Sequence[int], found_by: str) -> Path:
        """Writes an order made from the best one, as ``order-polished.json``; its path."""
        graph = self._game.graphs[self._game.names.index(name)]
        path = self._path(name, "order-polished", "json")
        order = veenv.Order.from_graph(graph, ids, name, found_by)
        self._attempt(path.name, lambda: order.save(path))
        return path

    def order_path(self, name: str) -> Path:
        """``order.json``, or ``order-<name>.json`` in a run of several graphs."""
        return self._path(name, "order", "json")

    def draw(self) -> None:
        """Draws ``learning_curve.png`` (``learning_curve-<name>.png`` for several graphs)."""
        for name, classical in zip(self._game.names, self._game.classical, strict=True):
            path = self._path(name, "learning_curve", "png")
            self._attempt(
                path.name,
                lambda p=path, n=name, c=classical: plot_curve(p, n, self.metrics.rows, c),
            )

    def _write_order(self, name: str, best: BestOrders) -> None:
        graph = self._game.graphs[self._game.names.index(name)]
        record = best[name]
        found_by = _FOUND_BY.format(best.agent, record.steps)
        veenv.Order.from_graph(graph, record.ids, name, found_by).save(self.order_path(name))

    def _attempt(self, what: str, action: Callable[[], object]) -> bool:
        """Whether something could be written; says so when that changes."""
        try:
            action()
        except OSError as error:
            if what not in self._failing:
                self._warn(f"cannot write {what}: {error}")
                self._failing.add(what)
            return False
        if what in self._failing:
            self._warn(f"{what} can be written again")
            self._failing.remove(what)
        return True

    def _path(self, name: str, stem: str, suffix: str) -> Path:
        several = len(self._game.names) > 1
        return self.path / (f"{stem}-{name}.{suffix}" if several else f"{stem}.{suffix}")


def identity(agent: str, game: Game, network: GraphNetwork) -> dict[str, Any]:
    """What a checkpoint must agree in with the run that goes on from it."""
    return {
        "agent": agent,
        "task": list(game.names),
        "cost model": game.cost,
        "network": architecture(network),
        "graph": {
            name: fingerprint(graph)[:16]
            for name, graph in zip(game.names, game.graphs, strict=True)
        },
    }


def mean_ratio(progress: Progress, game: Game) -> float:
    """Mean cost of an update's episodes over the best classical cost, averaged over the graphs."""
    ratios = [
        progress.mean_cost[name] / max(1, min(classical.values()))
        for name, classical in zip(game.names, game.classical, strict=True)
    ]
    return math.fsum(ratios) / len(ratios)


def _version(package: str) -> str:
    """The installed version of a package; a checkout that is only on the path has none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
