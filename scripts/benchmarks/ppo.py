"""PPO on tasks with several seeds: ``python scripts/benchmark.py ppo --help``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import jax
import numpy as np

from agents.config.args import fail, parse, task_names
from agents.config.ppo import PPOConfig
from agents.ppo.trainer import Trainer
from agents.training.curriculum import FixedTasks
from agents.training.loop import train
from agents.training.played import Played
from scripts.benchmarks import learning_curves
from scripts.benchmarks.result_file import Table, write_result
from veenv.env.random_play import random_episodes
from veenv.search import search

STEPS = {
    "RoeFlux_1d": 2_000_000,
    "RobotArm_6DOF": 200_000,
    "HumanHeartDipole": 100_000,
    "PropaneCombustion": 80_000,
    "mlp": 30_000,
    "Encoder": 1_000_000,
}
"""Environment steps that suffice for the goals."""

PUBLISHED = {
    "RoeFlux_1d": 320,
    "RobotArm_6DOF": 231,
    "HumanHeartDipole": 148,
    "PropaneCombustion": 88,
}
"""Best published counts of a learned order (AlphaZero; Lohoff & Neftci 2024)."""

POINTS = 40
"""Points of a learning curve."""

COLUMNS = (
    "task",
    "goal",
    "best",
    "median",
    "worst",
    "steps",
    "steps to the goal",
    "seconds",
    "last quarter",
    "random play",
    "annealing",
)


@dataclasses.dataclass(frozen=True)
class ResultsArgs:
    """Trains PPO on tasks with several seeds, one after another, next to simulated annealing.

    Prints a table in Markdown: the goal (the best published count of a learned order, or reverse
    mode), the best order of each seed (best, median and worst), environment steps of a run and
    those after which every seed had reached the goal, wall-clock seconds of a run without
    compilation, the largest mean cost of any update in the last quarter of any run and the mean
    cost of random play (a run that has collapsed comes near it), and annealing.

    Raises:
      ValueError: there are no seeds.
    """

    task: str = ",".join(STEPS)
    """Tasks, separated by commas."""

    seeds: int = 3
    """Number of seeds, from 0 on."""

    steps: int | None = None
    """Environment steps of every run; by default as many as suffice."""

    anneal: str = "20s"
    """Most time for annealing, which otherwise gets as long as a run took."""

    out: str | None = None
    """File to write the table and the learning curves to, as JSON, after every task."""

    plot: str | None = None
    """File to draw the learning curves to, SVG, after every task."""

    def __post_init__(self) -> None:
        """Checks the number of seeds."""
        if self.seeds < 1:
            raise ValueError(f"seeds must be an integer of at least 1, got {self.seeds}")


@dataclasses.dataclass(frozen=True)
class Run:
    """What a seed has shown.

    Attributes:
      best: cost of the best order.
      reached: environment steps after which the goal was reached; None if it never was.
      seconds: wall-clock time, without that of compiling.
      last: the largest mean cost of an update in the last quarter.
      curve: steps, mean cost and best cost so far, at points of its course.
    """

    best: int
    reached: int | None
    seconds: float
    last: float
    curve: tuple[tuple[float, ...], ...]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, trains, and prints the table line by line."""
    args = parse(ResultsArgs, arguments)
    table, curves, goals = Table(COLUMNS), Table(learning_curves.COLUMNS), dict[str, int]()
    table.begin()
    try:
        for name in task_names(args.task):
            cells, runs = row(name, args)
            table.add(*cells)
            goals[cells[0]] = int(cells[1].replace(",", ""))
            for seed, each in enumerate(runs):
                texts = (" ".join(f"{x:.5g}" for x in line) for line in each.curve)
                curves.rows.append((cells[0], str(seed), *texts))
            if args.out is not None:
                write_result(args.out, table, curves=curves)
            if args.plot is not None:
                learning_curves.draw(curves.rows, goals, args.plot)
    except ValueError as error:
        fail(str(error))


def row(name: str, args: ResultsArgs) -> tuple[tuple[str, ...], list[Run]]:
    """Trains on a task with every seed; its row of the table, and the runs.

    Raises:
      ValueError: there is no such task.
    """
    played = Played.named(name).tasks
    goal = PUBLISHED.get(played.names[0], played.classical[0]["reverse"])
    config = PPOConfig(steps=args.steps or STEPS.get(played.names[0], 100_000))
    trainer = Trainer(config, played)
    trainer.step(trainer.init(), 0.0)  # compiles
    runs = [run(trainer, dataclasses.replace(config, seed=k), goal) for k in range(args.seeds)]
    costs = [r.best for r in runs]
    seconds = float(np.mean([r.seconds for r in runs]))
    reached = [r.reached for r in runs]
    steps = max(filter(None, reached), default=0) if None not in reached else None
    play = jax.jit(lambda key: random_episodes(played.env, key, 1000).cost.astype(float).mean())
    budget = max(1.0, min(seconds, float(args.anneal.removesuffix("s"))))
    annealed = search(played.graphs[0], "anneal", budget=f"{budget:.0f}s")
    cells = (
        played.names[0],
        f"{goal:,}",
        f"{min(costs):,}",
        f"{np.median(costs):,.0f}",
        f"{max(costs):,}",
        f"{config.steps:,}",
        "not by all" if steps is None else f"{steps:,}",
        f"{seconds:.0f}",
        f"{max(r.last for r in runs):,.1f}",
        f"{float(play(jax.random.key(0))):,.1f}",
        f"{annealed.cost:,} ({budget:.0f} s)",
    )
    return cells, runs


def run(trainer: Trainer, config: PPOConfig, goal: int) -> Run:
    """Trains with the seed of a configuration, in a program that is compiled already."""
    [name] = trainer.tasks.names
    curriculum, course, reached = FixedTasks(trainer), list[tuple[float, ...]](), None
    state = Trainer(config, trainer.tasks).init()
    began = time.monotonic()
    for progress in train(curriculum, state=state):
        [mean] = progress.measured["mean_cost"].values()
        course.append((progress.steps, mean, curriculum.best.cost(name)))
        if reached is None and curriculum.best.cost(name) <= goal:
            reached = progress.steps
    seconds = time.monotonic() - began
    last = max(mean for _, mean, _ in course[-max(1, len(course) // 4) :])
    shown = np.linspace(0, len(course) - 1, min(POINTS, len(course))).round().astype(int)
    curve = tuple(zip(*(course[k] for k in shown), strict=True))
    return Run(curriculum.best.cost(name), reached, seconds, last, curve)
