"""Holds what a run trains: an agent on tasks, and the best orders of these so far."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from veenv.agents.config.ppo import LARGE
from veenv.agents.ppo.trainer import Trainer, Update
from veenv.agents.training.best import BestOrders
from veenv.env.rewards import cheaper_classical
from veenv.orders.order import Order


class Learner:
    """An agent on tasks, and the best orders so far.

    Attributes:
      trainer: plays and learns.
      tasks: the tasks.
      best: the best orders.
    """

    def __init__(self, trainer: Trainer, agent: str = "PPO"):
        """Starts from the orders that the trainer knows, or from a classical one of large tasks."""
        self.trainer, self.tasks = trainer, trainer.tasks
        self.best = BestOrders(self.tasks, agent)
        known: Sequence[Order | None] = trainer.known
        for order, name in zip(known, self.tasks.names, strict=False):
            if order is not None:
                self.best.keep(name, dataclasses.replace(order, name=name))
        self.settle(LARGE)

    def settle(self, above: int = 0) -> None:
        """Takes the cheapest classical order of each task of more vertices that has none yet."""
        for name, graph in zip(self.tasks.names, self.tasks.graphs, strict=True):
            if self.best.get(name) is None and len(graph.eliminable) > above:
                classical = cheaper_classical(graph, self.tasks.env.cost, sys.maxsize, name)
                if classical is not None:
                    self.best.keep(name, classical[1])

    def measure(self, update: Update, steps: int) -> dict[str, Any]:
        """Returns mean, least and best cost by task, and the statistics, as JSON for the metrics.

        Cheaper orders that the update has found are kept.
        """
        names = self.tasks.names
        self.best.offer(np.asarray(update.min_cost), np.asarray(update.best_order), steps)
        return {
            "mean_cost": dict(zip(names, update.mean_cost.tolist(), strict=True)),
            "min_cost": dict(zip(names, update.min_cost.tolist(), strict=True)),
            "stats": {name: float(x) for name, x in update.stats.items()},
            "best_cost": {name: self.best.cost(name) for name in names},
        }

    def score(self, measured: Mapping[str, Any]) -> float:
        """Returns mean cost over the cheapest classical order's, averaged over the tasks."""
        costs = zip(measured["mean_cost"].values(), self.tasks.classical, strict=True)
        return float(np.mean([mean / max(1, min(c.values())) for mean, c in costs]))

    def describe(self, measured: Mapping[str, Any]) -> str:
        """Returns best and mean costs as a text."""
        best = ", ".join(f"{name} {cost:,}" for name, cost in measured["best_cost"].items())
        mean = ", ".join(f"{cost:,.1f}" for cost in measured["mean_cost"].values())
        return f"best {best if len(self.tasks) > 1 else best.split(' ', 1)[1]}  mean {mean}"
