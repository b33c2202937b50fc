"""PPO on tasks with several seeds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from scripts.benchmarks.cases import PUBLISHED
from scripts.benchmarks.tables import Table
from veenv.agents.config.args import task_names
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.inputs import Played
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import train
from veenv.env.random_play import random_episodes
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
    task: str = ",".join(STEPS), seeds: int = 3, steps: int | None = None, anneal: str = "20s"
) -> Iterator[Table]:
    """Trains PPO on tasks with several seeds, one after another, next to simulated annealing.

    Shows the goal (the best published count of a learned order, or reverse
    mode), the best order of each seed (best, median and worst), environment steps of a run and
    those after which every seed had reached the goal, wall-clock seconds of a run without
    compilation, the largest mean cost of any update in the last quarter of any run and the mean
    cost of random play (a run that has collapsed comes near it), and annealing. The file has the
    learning curves, too.

    Args:
        task: tasks, separated by commas.
        seeds: number of seeds, from 0 on.
        steps: environment steps of every run; by default as many as suffice.
        anneal: most time for annealing, which otherwise gets as long as a run took.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be an integer of at least 1, got {seeds}")
    columns = "task", "goal", "best", "median", "worst", "steps", "steps to the goal", "seconds"
    table = Table(*columns, "last quarter", "random play", "annealing")
    curves = table.beside["curves"] = Table("task", "seed", "steps", "mean cost", "best cost")
    yield table
    for name in task_names(task):
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
