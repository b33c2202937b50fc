"""Training one policy for all graphs: PPO on random functions that are renewed all the time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from agents.config.ppo import PPOConfig
from agents.games import Game, pool_game
from agents.nn.networks import GraphNetwork
from agents.ppo.ppo import Trainer, TrainState
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import CostModel
from veenv.tasks import RandomFunctions

UPDATES_PER_POOL = 20
"""Train steps on the same functions, before others are drawn."""

EVALUATION_SEEDS = 2**32
"""Pools of random functions with seeds from here on are kept for evaluation."""


@dataclasses.dataclass(frozen=True)
class GeneralProgress:
    """What the loop reports after every round: one train step on each pool.

    Attributes:
      update: number of train steps so far.
      steps: environment steps so far.
      seconds: since the start.
      fraction: share of the budget that is spent, from 0 to 1.
      unseen: the functions of this round are new to the policy, which had not learned from them.
      ratio: for each pool the mean over its functions of (mean cost of this step's episodes /
        cost of Markowitz).
      stats: losses, entropy, KL and so on, for each pool.
      state: the train state after the round.
    """

    update: int
    steps: int
    seconds: float
    fraction: float
    unseen: bool
    ratio: dict[str, float]
    stats: dict[str, dict[str, float]]
    state: TrainState


class Generalist:
    """PPO on pools of random functions: one of scalar functions and one of array functions.

    The two play in environments of their own, since scalar functions play several times as fast.

    Attributes:
      trainers: the trainer of each pool, by name (``"scalar"``, ``"array"``).
    """

    def __init__(
        self,
        config: PPOConfig,
        family: RandomFunctions,
        num_functions: int,
        cost: CostModel = "multiplications",
    ):
        """Draws the first pools.

        Args:
          config: the settings of PPO; `num_envs` environments for each pool.
          family: ranges of the functions; its `arrays` is the share of array functions.
          num_functions: functions drawn at a time, of both kinds together.
          cost: the cost model.

        Raises:
          ValueError: as `TaskDistribution.random`.
        """
        num_arrays = round(family.arrays * num_functions)
        self._pools: dict[str, TaskDistribution] = {}
        for name, share, num in (
            ("scalar", 0.0, num_functions - num_arrays),
            ("array", 1.0, num_arrays),
        ):
            if num:
                ranges = dataclasses.asdict(dataclasses.replace(family, arrays=share))
                self._pools[name] = TaskDistribution.random(
                    pool_seed(config.seed, 0), num, cost, **ranges
                )
        self.config = config
        self.trainers = {
            name: Trainer(config, pool_game(pool)) for name, pool in self._pools.items()
        }

    def init(self, network: GraphNetwork | None = None) -> TrainState:
        """The state before the first step, with the parameters of a network; see `Trainer.init`."""
        return next(iter(self.trainers.values())).init(network)

    def renew(self, number: int) -> None:
        """Plays the pools of another number from now on: other functions of the same ranges."""
        seed = pool_seed(self.config.seed, number)
        for name, trainer in self.trainers.items():
            game = pool_game(self._pools[name].renewed(seed))
            self.trainers[name] = trainer.with_game(game)

    def train(
        self,
        *,
        state: TrainState,
        steps: int = 0,
        time_limit: float | None = None,
        started: float | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[GeneralProgress]:
        """Trains, and yields after every round.

        Args:
          state: where to start, between two rounds.
          steps: environment steps that led to it.
          time_limit: seconds, or None.
          started: `time.monotonic()` from which the limit counts; now by default.
          should_stop: asked after every round; True ends the training.

        Raises:
          ValueError: there is neither a number of steps nor a time limit.
        """
        total = self.config.steps
        if total is None and time_limit is None:
            raise ValueError("training needs a number of steps or a time limit")
        started = time.monotonic() if started is None else started
        rounds = int(state.num_updates) // len(self.trainers)
        if rounds:
            self.renew(rounds // UPDATES_PER_POOL)
        while not should_stop():
            seconds = time.monotonic() - started
            shares = (steps / total if total else 0.0, seconds / time_limit if time_limit else 0.0)
            if max(shares) >= 1.0:
                return
            if rounds and rounds % UPDATES_PER_POOL == 0:
                self.renew(rounds // UPDATES_PER_POOL)
            ratio: dict[str, float] = {}
            stats: dict[str, dict[str, float]] = {}
            for name, trainer in self.trainers.items():
                state, seen = trainer.step(state, max(shares))
                ratio[name] = mean_ratio(np.asarray(seen.mean_cost), trainer.game)
                stats[name] = {k: float(x) for k, x in jax.device_get(seen.stats).items()}
                steps += trainer.steps_per_update
            unseen = rounds % UPDATES_PER_POOL == 0
            rounds += 1
            yield GeneralProgress(
                update=int(state.num_updates),
                steps=steps,
                seconds=time.monotonic() - started,
                fraction=max(shares),
                unseen=unseen,
                ratio=ratio,
                stats=stats,
                state=state,
            )


def pool_seed(seed: int, number: int) -> int:
    """Seed of a numbered pool of a run; below `EVALUATION_SEEDS`."""
    return int(np.random.default_rng((seed, number)).integers(EVALUATION_SEEDS))


def mean_ratio(costs: np.ndarray, game: Game) -> float:
    """Mean over the graphs of cost / Markowitz's cost; graphs that cost nothing are left out."""
    markowitz = np.array([c["Markowitz"] for c in game.classical])
    return float(np.mean(costs[markowitz > 0] / markowitz[markowitz > 0]))
