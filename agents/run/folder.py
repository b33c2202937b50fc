"""The folder of a run: ``runs/<task>/<time>/`` with its settings, metrics, orders, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax

import veenv
from veenv.agents.config.args import TrainArgs
from veenv.agents.config.settings import CONFIG_NAME, to_toml
from veenv.agents.files import lock_folder, set_aside
from veenv.agents.nn.custom import Network
from veenv.agents.nn.weights import architecture, save_weights
from veenv.agents.ppo.updates import TrainState
from veenv.agents.run.checkpoints import Checkpoints, Restored
from veenv.agents.run.curve import plot_curve
from veenv.agents.run.metrics import Metrics
from veenv.agents.training.best import BestOrders
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import TrainProgress
from veenv.env import TaskDistribution
from veenv.graph.graph import CostModel
from veenv.orders.documents import file_name, is_local, write_bytes
from veenv.orders.fields import read_field
from veenv.orders.order import Order, fingerprint


class RunFolder:
    """Locks a run's folder, writes what the run leaves behind, and resumes from it.

    Files are replaced atomically or only ever grow.

    What cannot be written (a full disk) is warned of, kept in memory and tried again: training
    goes on.

    Attributes:
      path: the folder.
      best: the best orders so far.
      metrics: the rows so far.
      checkpoints: those there are.
    """

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, Any],
        best: BestOrders,
        *,
        keep: int = 3,
        warn: Callable[[str], None] = lambda text: None,
    ):
        """Locks the folder for this process.

        Args:
          path: the folder, which exists.
          identity: of the run (`identity_of`).
          best: the best orders, of all tasks of the run.
          keep: how many checkpoints to keep, as `Checkpoints`.
          warn: callback for what cannot be written or read.

        Raises:
          OSError: the folder cannot be opened, or another process uses it.
        """
        self.path, self.best, self.metrics, self._warn = path, best, Metrics(path), warn
        self.checkpoints = Checkpoints(path / "checkpoints", identity, keep=keep, warn=warn)
        self._names, self._classical = best.tasks.names, best.tasks.classical
        self._written: dict[str, Order] = {}
        self._failing: set[str] = set()
        self._lock = lock_folder(path)

    def close(self) -> None:
        """Lets other processes use the folder; the end of this one does so, too."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write_settings(self, args: TrainArgs) -> None:
        """Writes ``config.toml``, for --config, and ``config.json``: what else ran.

        Raises:
          OSError: they cannot be written.
        """
        record = dataclasses.asdict(args)
        record["graphs"] = {
            name: {"vertices": len(graph.eliminable), "edges": len(graph.edges), **classical}
            for name, graph, classical in zip(
                self._names, self.best.tasks.graphs, self._classical, strict=True
            )
        }
        record["versions"] = {
            "veenv": veenv.__version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
        }
        write_bytes(self.path / "config.json", (json.dumps(record, indent=1) + "\n").encode())
        write_bytes(self.path / CONFIG_NAME, to_toml(args).encode())

    def log(self, row: Mapping[str, Any]) -> None:
        """Adds a row to the metrics and, where one improved, rewrites the orders.

        At an address the rows are written before the next checkpoint; going on drops later ones.
        """
        self.save_orders()
        self._attempt("the metrics", lambda: self.metrics.add(row))

    def save_orders(self) -> bool:
        """Writes the best orders that are not yet on disk; True if all of them are."""
        saved = True
        for name in self._names:
            order = self.best.get(name)
            if order and self._written.get(name) is not order:
                if self._write_order(order, self.order_path(name)):
                    self._written[name] = order
                else:
                    saved = False
        return saved

    def write_beside(self, name: str, kind: str, order: Order) -> Path:
        """Writes an order beside the best one, as ``order-<kind>.json``; its path."""
        path = self._path(name, f"order-{kind}", "json")
        self._write_order(order, path)
        return path

    def write_classical(self, name: str) -> Path | None:
        """Writes ``order-classical.json`` where that costs less than the best order; its path."""
        path = self._path(name, "order-classical", "json")
        classical = self.best.classical(name)
        if classical is None:
            self._attempt(path.name, lambda: path.unlink(missing_ok=True))
            return None
        return self.write_beside(name, "classical", classical[1])

    def write_weights(self, network: Network) -> None:
        """Writes ``weights.eqx``, the network at the end of training."""
        path = self.path / "weights.eqx"
        self._attempt(path.name, lambda: save_weights(path, network))

    def checkpoint(self, progress: TrainProgress, learner: Learner) -> None:
        """Writes a checkpoint with a learner's score."""
        self.save_checkpoint(progress, learner.score(progress.measured))

    def save_checkpoint(self, progress: TrainProgress, score: float) -> None:
        """Writes a checkpoint, and ``best.eqx`` where its score is the lowest."""
        run = {"seconds": progress.seconds, "steps": progress.steps, "best": self.best.record()}
        self._attempt("the metrics", self.metrics.flush)

        def write() -> None:
            if self.checkpoints.save(progress.update, progress.state, run, score):
                save_weights(self.path / "best.eqx", progress.state.network)

        self._attempt("a checkpoint", write)

    def resume(self, state: TrainState) -> Restored:
        """Goes on from the newest checkpoint that is whole; where there is none, from a state.

        What is later in the folder is dropped, but for the orders: the cheapest ones of checkpoint
        and folder are the best ones from now on.

        Raises:
          ValueError: as `Checkpoints.restore`; nothing has been changed then.
          OSError: the folder cannot be read or written.
        """
        restored = self.checkpoints.restore(state) or Restored(0, state, {})
        try:
            for name, kind in (("seconds", float), ("steps", int)):
                read_field(name, kind, restored.run.get(name, 0))
            self.best.merge(restored.run.get("best", {}))
        except ValueError as error:
            path = self.checkpoints.path(restored.number)
            raise ValueError(f"checkpoint {path}: {error}") from None
        self.checkpoints.set_aside_after(restored.number)
        for path in self.path.glob(".*.part"):
            path.unlink()
        for problem in self.metrics.resume(restored.number):
            self._warn(problem)
        self._merge_orders()
        return restored

    def _merge_orders(self) -> None:
        """Keeps the orders in the folder that are cheaper than the best ones, writes others."""
        for name, graph in zip(self._names, self.best.tasks.graphs, strict=True):
            try:
                order = Order.load(self.order_path(name))
                order.ids_for(graph)
                order = order.counted(graph, self.best.tasks.env.cost)
            except FileNotFoundError:
                continue
            except ValueError as error:
                aside = set_aside(self.order_path(name))
                self._warn(f"{error}; it is kept in {aside.name}")
                continue
            self.best.keep(name, order)
            self._written[name] = order
        self.save_orders()

    def order_path(self, name: str) -> Path:
        """``order.json``, or ``order-<name>.json`` in a run of several tasks."""
        return self._path(name, "order", "json")

    def draw(self) -> None:
        """Draws ``learning_curve.png`` (``learning_curve-<name>.png`` for several tasks)."""
        for name, classical in zip(self._names, self._classical, strict=True):
            path = self._path(name, "learning_curve", "png")
            draw = partial(plot_curve, path, name, self.metrics.rows, classical)
            self._attempt(path.name, draw)

    def _write_order(self, order: Order, path: Path) -> bool:
        return self._attempt(path.name, lambda: order.save(path))

    def _attempt(self, what: str, action: Callable[[], object]) -> bool:
        """Tries to write something and returns whether it could; warns when that changes."""
        try:
            action()
        except Exception as error:
            if is_local(self.path) and not isinstance(error, OSError):  # each store has its own
                raise
            if what not in self._failing:
                self._warn(f"cannot write {what}: {error}")
                self._failing.add(what)
            return False
        if what in self._failing:
            self._warn(f"{what} can be written again")
            self._failing.remove(what)
        return True

    def _path(self, name: str, stem: str, suffix: str) -> Path:
        several = f"-{file_name(name, self._names)}" if len(self._names) > 1 else ""
        return self.path / f"{stem}{several}.{suffix}"


def identity_of(
    agent: str,
    cost: CostModel,
    network: Network,
    played: TaskDistribution,
) -> dict[str, Any]:
    """Returns what a checkpoint must agree in with the run that goes on from it."""
    shared: dict[str, Any] = {"agent": agent, "cost model": cost, "network": architecture(network)}
    prints = [fingerprint(graph)[:16] for graph in played.graphs]
    graphs = dict(zip(played.names, prints, strict=True))
    return {"task": list(played.names), **shared, "graph": graphs}
