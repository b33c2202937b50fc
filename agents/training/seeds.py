"""Several seeds side by side: one compiled train step, one table."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.agents.nn.own import OwnNetwork
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.ppo.updates import TrainState
from veenv.agents.training.best import BestOrders
from veenv.agents.training.curriculum import FixedTasks
from veenv.agents.training.loop import Limits


@dataclasses.dataclass(frozen=True)
class SeedsProgress:
    """What is known after a round of train steps, one of each seed.

    Attributes:
      steps: environment steps of each seed so far.
      seconds: since the start.
      states: the train states, every leaf with a first axis over seeds.
      measured: of each seed what `FixedTasks.measure` says.
    """

    steps: int
    seconds: float
    states: TrainState
    measured: tuple[dict[str, Any], ...]


def first_states(trainer: Trainer, seeds: Sequence[int]) -> TrainState:
    """The states before the first step, stacked; weights that are given are every seed's."""
    states = []
    for seed in seeds:
        other = copy.copy(trainer)
        other.config = dataclasses.replace(trainer.config, seed=seed)
        state = other.init()
        if isinstance(state.network, OwnNetwork) and state.network.initial is not None:
            state = other.renew(state)
        states.append(state)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def train_side_by_side(
    trainer: Trainer,
    curricula: Sequence[FixedTasks],
    seeds: Sequence[int],
    time_limit: float | None,
    started: float | None = None,
) -> Iterator[SeedsProgress]:
    """Trains every seed, each with one start and with a curriculum that keeps its orders.

    Ends as `veenv.agents.training.loop.train`.
    """
    budget = Limits(trainer.config.steps, time_limit, started)
    states, steps = first_states(trainer, seeds), 0
    step = jax.jit(jax.vmap(trainer._train_step, in_axes=(0, None, None)))
    pace, before = None, budget.elapsed()
    while not budget.spent(steps, 0.0 if pace is None else before + pace):
        over = np.float32(budget.fraction(steps, before))
        states, found = step(states, over, trainer._params)
        found, steps = jax.device_get(found), steps + trainer.steps_per_update
        each = [jax.tree.map(lambda x, k=k: x[k], found) for k in range(len(seeds))]
        measured = tuple(
            curriculum.measure({"tasks": one}, steps, unseen=False)
            for curriculum, one in zip(curricula, each, strict=True)
        )
        now = budget.elapsed()
        pace, before = 0.0 if pace is None else now - before, now
        yield SeedsProgress(steps, now, states, measured)


def seeds_table(best: Sequence[BestOrders], seeds: Sequence[int]) -> str:
    """A line for each task: the cheapest classical order, the spread over seeds, and each seed."""
    tasks, first = best[0].tasks, "classical best middle mean worst".split()
    width = max(8, *(len(name) for name in tasks.names))
    lines = [f"{'task':<{width}}" + "".join(f"{name:>11}" for name in first) + "  by seed"]
    for name, classical in zip(tasks.names, tasks.classical, strict=True):
        costs = [one.cost(name) for one in best]
        ordered, cut = np.sort(np.array(costs, float)), len(costs) // 4
        middle = ordered[cut : len(costs) - cut].mean()
        numbers = f"{min(classical.values()):>11,}{min(costs):>11,}{middle:>11,.1f}"
        numbers += f"{np.mean(costs):>11,.1f}{max(costs):>11,}"
        by_seed = ", ".join(f"{seed}: {cost:,}" for seed, cost in zip(seeds, costs, strict=True))
        lines.append(f"{name:<{width}}{numbers}  {by_seed}")
    return "\n".join(lines)
