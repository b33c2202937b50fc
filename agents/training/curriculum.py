"""What a run trains on: tasks that stay, or random functions that are renewed all the time."""

from __future__ import annotations

import abc
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from veenv.agents.config.ppo import LARGE, PPOConfig
from veenv.agents.nn.own import Network
from veenv.agents.ppo.trainer import Trainer, Update
from veenv.agents.ppo.updates import TrainState
from veenv.agents.training.best import BestOrders
from veenv.env import TaskDistribution
from veenv.env.rewards import cheaper_classical
from veenv.graph.graph import CostModel
from veenv.orders.order import Order
from veenv.tasks import RandomFunctions

UPDATES_PER_POOL = 20
"""Train steps on the same random functions, before others are drawn."""

EVALUATION_SEEDS = 2**32
"""Pools of random functions with seeds from here on are kept for evaluation."""


class Curriculum(abc.ABC):
    """Task sets that a policy learns in rounds, each a train step on every one of them.

    Attributes:
      trainers: the trainer of each task set, by name.
      start_updates: train steps of a start from fresh parameters, at least; 0 for one start.
    """

    start_updates = 0

    def __init__(self, trainers: Mapping[str, Trainer]):
        """Nothing is played yet."""
        self.trainers = dict(trainers)

    @property
    def config(self) -> PPOConfig:
        """The settings of all trainers."""
        return next(iter(self.trainers.values())).config

    def steps_until(self, state: TrainState) -> int:
        """Environment steps that led to a state, if all rounds were on the present task sets."""
        rounds = int(state.num_updates) // len(self.trainers)
        return rounds * sum(trainer.steps_per_update for trainer in self.trainers.values())

    def init(self) -> TrainState:
        """The state before the first round; as `Trainer.init`."""
        return next(iter(self.trainers.values())).init()

    def restart(self, state: TrainState) -> TrainState:
        """The state before the first round of another start; as `Trainer.renew`."""
        return next(iter(self.trainers.values())).renew(state)

    def networks(self, network: Network) -> dict[str, Network]:
        """The networks to write of that of a state, by the name of the file."""
        return {"weights": network}

    @abc.abstractmethod
    def renew(self, rounds: int) -> bool:
        """Draws other tasks if it is time; whether no round before has played these."""

    @abc.abstractmethod
    def measure(self, updates: Mapping[str, Update], steps: int, *, unseen: bool) -> dict[str, Any]:
        """What a round says for the metrics, as JSON; the best orders are kept."""

    @abc.abstractmethod
    def score(self, measured: Mapping[str, Any]) -> float:
        """How costly the policy's orders are, over those of classical orders."""

    @abc.abstractmethod
    def describe(self, measured: Mapping[str, Any]) -> str:
        """What `measure` says, for people."""


class FixedTasks(Curriculum):
    """Tasks that stay; the best order of each is kept.

    Attributes:
      tasks: the tasks.
      best: the best orders.
    """

    def __init__(self, trainer: Trainer, agent: str = "PPO", best: BestOrders | None = None):
        """Starts from the orders that the trainer knows, or from a classical one of large tasks."""
        super().__init__({"tasks": trainer})
        self.start_updates = trainer.config.start_updates
        self.tasks, self.best = trainer.tasks, best or BestOrders(trainer.tasks, agent)
        known: Sequence[Order | None] = trainer.known
        for order, name in zip(known, self.tasks.names, strict=False):
            if order is not None:
                self.best.keep(name, dataclasses.replace(order, name=name))
        self.settle(LARGE)

    def settle(self, above: int = 0) -> None:
        """Takes the cheapest classical order of each task of more vertices that has none yet."""
        for name, graph in zip(self.tasks.names, self.tasks.graphs, strict=True):
            if self.best.get(name) is None and len(graph.eliminable) > above:
                found = cheaper_classical(graph, self.tasks.env.cost, sys.maxsize)
                if found is not None:
                    self.best.keep(name, dataclasses.replace(found[1], name=name))

    def renew(self, rounds: int) -> bool:
        """Keeps the tasks."""
        return False

    def measure(self, updates: Mapping[str, Update], steps: int, *, unseen: bool) -> dict[str, Any]:
        """Mean, least and best cost by task, and the statistics."""
        names, seen = self.tasks.names, updates["tasks"]
        self.best.offer(np.asarray(seen.min_cost), np.asarray(seen.best_order), steps)
        return {
            "mean_cost": dict(zip(names, seen.mean_cost.tolist(), strict=True)),
            "min_cost": dict(zip(names, seen.min_cost.tolist(), strict=True)),
            "stats": {name: float(x) for name, x in seen.stats.items()},
            "best_cost": {name: self.best.cost(name) for name in names},
        }

    def score(self, measured: Mapping[str, Any]) -> float:
        """Mean cost over the cheapest classical order's, averaged over the tasks."""
        costs = zip(measured["mean_cost"].values(), self.tasks.classical, strict=True)
        return float(np.mean([mean / max(1, min(c.values())) for mean, c in costs]))

    def describe(self, measured: Mapping[str, Any]) -> str:
        """Best and mean costs."""
        best = ", ".join(f"{name} {cost:,}" for name, cost in measured["best_cost"].items())
        mean = ", ".join(f"{cost:,.1f}" for cost in measured["mean_cost"].values())
        return f"best {best if len(self.tasks) > 1 else best.split(' ', 1)[1]}  mean {mean}"


class RandomPools(Curriculum):
    """Pools of random functions, one of scalar and one of array functions, renewed all the time.

    The two play in environments of their own, since scalar functions play several times as fast.
    """

    def __init__(
        self,
        config: PPOConfig,
        family: RandomFunctions,
        num_functions: int,
        cost: CostModel = "multiplications",
        make: Callable[[TaskDistribution], Trainer] | None = None,
    ):
        """Draws the first pools: so many functions in all, `family.arrays` of them of arrays.

        Each has the trainer that `make` makes, by default of PPO with fresh parameters.

        Raises:
          ValueError: as `TaskDistribution.random`.
        """
        make = partial(Trainer, config) if make is None else make
        num_arrays, trainers = round(family.arrays * num_functions), {}
        for name, arrays, num in (
            ("scalar", 0.0, num_functions - num_arrays),
            ("array", 1.0, num_arrays),
        ):
            if num:
                ranges = dataclasses.asdict(dataclasses.replace(family, arrays=arrays))
                seed = pool_seed(config.seed, 0)
                pool = TaskDistribution.random(seed, num, cost, normalise=True, **ranges)
                trainers[name] = make(pool)
        super().__init__(trainers)
        self._number = 0

    def renew(self, rounds: int) -> bool:
        """Draws pools of other functions, of the same ranges, every `UPDATES_PER_POOL` rounds."""
        number, used = divmod(rounds, UPDATES_PER_POOL)
        if number != self._number:
            seed = pool_seed(self.config.seed, number)
            for name, trainer in self.trainers.items():
                self.trainers[name] = trainer.with_tasks(trainer.tasks.renewed(seed))
            self._number = number
        return used == 0

    def measure(self, updates: Mapping[str, Update], steps: int, *, unseen: bool) -> dict[str, Any]:
        """For each pool the mean of cost / Markowitz's cost, and the statistics."""
        return {
            "unseen": unseen,
            "ratio": {
                name: mean_ratio(np.asarray(seen.mean_cost), self.trainers[name].tasks)
                for name, seen in updates.items()
            },
            "stats": {
                name: {k: float(x) for k, x in seen.stats.items()} for name, seen in updates.items()
            },
        }

    def score(self, measured: Mapping[str, Any]) -> float:
        """The mean of the ratios."""
        return float(np.mean(list(measured["ratio"].values())))

    def describe(self, measured: Mapping[str, Any]) -> str:
        """The ratios."""
        ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in measured["ratio"].items())
        return f"mean cost / Markowitz: {ratios}" + " (unseen functions)" * measured["unseen"]


def pool_seed(seed: int, number: int) -> int:
    """Seed of a numbered pool of a run; below `EVALUATION_SEEDS`."""
    return int(np.random.default_rng((seed, number)).integers(EVALUATION_SEEDS))


def mean_ratio(costs: np.ndarray, tasks: TaskDistribution) -> float:
    """Mean over the graphs of cost / Markowitz's cost; graphs that cost nothing are left out."""
    markowitz = np.array([c["Markowitz"] for c in tasks.classical])
    return float(np.mean(costs[markowitz > 0] / markowitz[markowitz > 0]))
