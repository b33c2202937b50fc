"""The folder of a run: ``runs/<task>/<time>/`` with its settings, metrics, orders, checkpoints."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import veenv
from agents.config.args import TrainArgs
from agents.files import new_folder
from agents.games import Game
from agents.nn.networks import GraphNetwork
from agents.nn.weights import architecture
from agents.run.checkpoints import Checkpoints
from agents.run.curve import plot_curve
from agents.run.folder import Folder
from agents.train.best import BestOrders
from agents.train.training import Progress
from veenv.orders.order import fingerprint

_FOUND_BY = "{}, after {} environment steps"


class RunFolder(Folder):
    """The folder of a run on tasks: its best orders and its learning curves besides."""

    def __init__(self, path: Path, game: Game, warn: Callable[[str], None] = lambda text: None):
        """Locks the folder for this process; see `create` and `take_up`.

        Args:
          path: the folder, which exists.
          game: what is trained on.
          warn: told of what cannot be written.

        Raises:
          OSError: the folder cannot be opened, or another process uses it.
        """
        super().__init__(path, warn)
        self._game = game
        self._unsaved: set[str] = set()

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

    def write_settings(self, args: TrainArgs) -> None:
        """Writes ``config.toml`` and ``config.json``, with the sizes and costs of the graphs.

        Raises:
          OSError: they cannot be written.
        """
        graphs = {
            name: {"vertices": len(graph.eliminable), "edges": len(graph.edges), **classical}
            for name, graph, classical in zip(
                self._game.names, self._game.graphs, self._game.classical, strict=True
            )
        }
        self.write_config(args, {"graphs": graphs})

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
        self.add_row(row)
        return row

    def save_orders(self, best: BestOrders) -> bool:
        """Writes the best orders that are not yet on disk; True if all of them are."""
        for name in sorted(self._unsaved):
            if self.attempt(self.order_path(name).name, lambda n=name: self._write_order(n, best)):
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
        run = {"seconds": progress.seconds, "best": best.record()}
        score = mean_ratio(progress, self._game)
        self.write_checkpoint(checkpoints, progress.update, progress.state, run, score)

    def take_up(self, num_rows: int, best: BestOrders) -> None:
        """Goes on in a folder: drops later metrics, merges the orders in it with the best ones.

        Args:
          num_rows: rows of the metrics to keep.
          best: the orders so far, which are told of cheaper ones in the folder.

        Raises:
          OSError: the metrics cannot be read or written.
        """
        self.drop_after(num_rows)
        found = {}
        for name, graph in zip(self._game.names, self._game.graphs, strict=True):
            path = self.order_path(name)
            if path.exists():
                try:
                    order = veenv.Order.load(path)
                    ids = order.ids_for(graph)
                except ValueError as error:
                    self.warn(str(error))
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

    def write_polished(self, name: str, ids: Sequence[int], found_by: str) -> Path:
        """Writes an order made from the best one, as ``order-polished.json``; its path."""
        graph = self._game.graphs[self._game.names.index(name)]
        path = self._path(name, "order-polished", "json")
        order = veenv.Order.from_graph(graph, ids, name, found_by)
        self.attempt(path.name, lambda: order.save(path))
        return path

    def order_path(self, name: str) -> Path:
        """``order.json``, or ``order-<name>.json`` in a run of several graphs."""
        return self._path(name, "order", "json")

    def draw(self) -> None:
        """Draws ``learning_curve.png`` (``learning_curve-<name>.png`` for several graphs)."""
        for name, classical in zip(self._game.names, self._game.classical, strict=True):
            path = self._path(name, "learning_curve", "png")
            self.attempt(
                path.name,
                lambda p=path, n=name, c=classical: plot_curve(p, n, self.metrics.rows, c),
            )

    def _write_order(self, name: str, best: BestOrders) -> None:
        graph = self._game.graphs[self._game.names.index(name)]
        record = best[name]
        found_by = _FOUND_BY.format(best.agent, record.steps)
        veenv.Order.from_graph(graph, record.ids, name, found_by).save(self.order_path(name))

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
