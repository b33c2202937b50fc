"""PPO on tasks with several seeds, and where the time of an update goes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from scripts.benchmarks.cases import PUBLISHED
from scripts.benchmarks.tables import Table
from veenv.agents.config.args import task_names
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.ppo.phases import PHASES
from veenv.agents.ppo.ppo import make_loss, play_batch
from veenv.agents.ppo.rollouts import rollout
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.ppo.updates import fit
from veenv.agents.training.inputs import Played
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import train
from veenv.env.random_play import random_episodes
from veenv.measure.timing import interleaved
from veenv.search import search

STEPS = {
    "RoeFlux_1d": 2_000_000, "RobotArm_6DOF": 200_000, "HumanHeartDipole": 100_000,
    "PropaneCombustion": 80_000, "mlp": 30_000, "Encoder": 1_000_000,
}  # fmt: skip
"""Environment steps that suffice for the goals."""

POINTS = 40
"""Points of a learning curve."""


class CoursePoint(NamedTuple):
    """A training's progress after an update.

    Attributes:
      steps: environment steps so far.
      mean: mean cost of the update's episodes.
      best: cost of the best order so far.
      seconds: since it began, without compiling.
    """

    steps: int
    mean: float
    best: int
    seconds: float


def agents(
    parts: tuple[Literal["training", "time"], ...] = ("training", "time"),
    task: str = ",".join(STEPS),
    seeds: int = 3,
    steps: int | None = None,
    anneal: str = "20s",
) -> Iterator[Table]:
    """Trains PPO on tasks with several seeds, one after another, next to simulated annealing.

    The first table shows the goal (the best published count of a learned order, or reverse
    mode), the best order of each seed (best, median and worst), environment steps of a run and
    those after which every seed had reached the goal, wall-clock seconds of a run without
    compilation, the largest mean cost of any update in the last quarter of any run and the mean
    cost of random play (a run that has collapsed comes near it), and annealing. The file has the
    learning curves, too.

    The second table shows where an update of the first task spends its processor time, in µs an
    environment step, the least of five. Playing is compiled three times: with a network that reads
    and computes nothing, with one that only reads, and with PPO's own.

    Args:
        parts: of the benchmark.
        task: tasks, separated by commas.
        seeds: number of seeds, from 0 on.
        steps: environment steps of every run; by default as many as suffice.
        anneal: most time for annealing, which otherwise gets as long as a run took.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be an integer of at least 1, got {seeds}")
    names = task_names(task)
    if "training" in parts:
        yield from _training(names, seeds, steps, anneal)
    if "time" in parts:
        yield (table := Table("task", "part", "µs a step"))
        for part, seconds in seconds_by_part(names[0]).items():
            table.add(names[0], part, f"{1e6 * seconds:.1f}")


def _training(names: Sequence[str], seeds: int, steps: int | None, anneal: str) -> Iterator[Table]:
    """Yields the table of trainings, with its curves beside it."""
    columns = "task", "goal", "best", "median", "worst", "steps", "steps to the goal", "seconds"
    table = Table(*columns, "last quarter", "random play", "annealing")
    curves = table.beside["curves"] = Table("task", "seed", "steps", "mean cost", "best cost")
    yield table
    for name in names:
        cells, courses = row(name, seeds, steps, anneal)
        for seed, course in enumerate(courses):
            shown = np.linspace(0, len(course) - 1, min(POINTS, len(course))).round().astype(int)
            lines = list(zip(*(course[k] for k in shown), strict=True))[:3]
            texts = (" ".join(f"{x:.5g}" for x in line) for line in lines)
            curves.rows.append((cells[0], str(seed), *texts))
        table.add(*cells)


def row(
    name: str, seeds: int, steps: int | None, anneal: str
) -> tuple[tuple[str, ...], list[list[CoursePoint]]]:
    """Trains on a task with every seed; its row of the table, and the courses of the runs.

    Raises:
      ValueError: there is no such task.
    """
    played = Played.named(name).tasks
    [name] = played.names
    goal = PUBLISHED.get(name, played.classical[0]["reverse"])
    trainer = Trainer(PPOConfig(steps=steps or STEPS.get(name, 100_000)), played)
    courses = [course_of(trainer, seed) for seed in range(seeds)]
    costs = [course[-1].best for course in courses]
    seconds = float(np.mean([course[-1].seconds for course in courses]))
    reached = [next((p.steps for p in course if p.best <= goal), None) for course in courses]
    known = [n for n in reached if n is not None]
    last = max(p.mean for course in courses for p in course[-max(1, len(course) // 4) :])
    play = jax.jit(lambda key: random_episodes(played.env, key, 1000).cost.astype(float).mean())
    budget = max(1.0, min(seconds, float(anneal.removesuffix("s"))))
    annealed = search(played.graphs[0], "anneal", budget=f"{budget:.0f}s")
    everyone = f"{max(known):,}" if len(known) == seeds else "not by all"
    cells = (
        *(name, f"{goal:,}", f"{min(costs):,}", f"{np.median(costs):,.0f}", f"{max(costs):,}"),
        *(f"{trainer.config.steps:,}", everyone, f"{seconds:.0f}", f"{last:,.1f}"),
        *(f"{float(play(jax.random.key(0))):,.1f}", f"{annealed.cost:,} ({budget:.0f} s)"),
    )
    return cells, courses


def course_of(trainer: Trainer, seed: int, time_limit: float | None = None) -> list[CoursePoint]:
    """The course of a training on one task with a seed, in a program that is compiled before."""
    [name] = trainer.tasks.names
    trainer.step(trainer.init(), 0.0)  # compiles
    config = dataclasses.replace(trainer.config, seed=seed)
    state = Trainer(config, trainer.tasks, agent=trainer.agent).init()
    curriculum, course, began = Learner(trainer), list[CoursePoint](), time.monotonic()
    for progress in train(curriculum, state=state, time_limit=time_limit):
        [mean] = progress.measured["mean_cost"].values()
        best, now = curriculum.best.cost(name), time.monotonic()
        course.append(CoursePoint(progress.steps, mean, best, now - began))
    return course


class _Mask(NamedTuple):
    """The inputs of a network that reads nothing else."""

    mask: Any


class _Blind:
    """A network that reads the mask alone, and prefers no vertex."""

    def read(self, env: Any, state: Any, params: Any, slots: Any = None) -> Any:
        """Returns the mask of the slots that may be eliminated."""
        del env, params
        return _Mask(state.action_mask if slots is None else state.action_mask[slots])

    def __call__(self, inputs: Any) -> tuple[Any, Any]:
        """Returns equal logits and a value of zero."""
        return jnp.zeros(inputs.mask.shape), jnp.zeros(())


class _Reading(_Blind):
    """A network that reads what PPO's does, and prefers no vertex."""

    def __init__(self, network: Any):
        """Reads as `network`."""
        self.read = network.read


def seconds_by_part(name: str) -> dict[str, float]:
    """Measures the processor seconds of an update of a task by parts, for one environment step."""
    trainer = Trainer(PPOConfig(steps=100_000), Played.named(name).tasks)
    env, config, key = trainer.tasks.env, trainer.config, jax.random.key(0)
    params = jax.tree.map(
        lambda x: np.repeat(x, trainer.num_envs // len(trainer.tasks), 0), trainer.tasks.params
    )
    state, _ = trainer.step(trainer.init(), 0.0)

    def play(network: Any) -> Callable[..., Any]:
        return jax.jit(lambda key: rollout(env, params, network, key, PHASES))

    batch = jax.jit(lambda key: play_batch(env, params, state, key, config)[0])(key)
    learn = jax.jit(
        partial(
            fit, make_loss(config, jnp.zeros(())), config=config, progress=jnp.zeros(()),
            placement=trainer.placement,
        )
    )  # fmt: skip
    parts: dict[str, Callable[[], Any]] = {
        "playing, without a network": partial(play(_Blind()), key),
        "playing, with the network's inputs": partial(play(_Reading(state.network)), key),
        "playing": partial(play(state.network), key),
        "learning": lambda: learn(state.network, state.opt_state, batch, key=key),
        "whole update": lambda: trainer.step(state, 0.0),
    }
    times = interleaved(parts, (), 5, clock=time.process_time)
    return {part: float(t.min()) / trainer.steps_per_update for part, t in times.items()}
