"""What agents find: PPO on tasks with several seeds, beside AlphaZero, and on named sets."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import jax
import numpy as np
from tyro.conf import OmitArgPrefixes, arg

from scripts.benchmarks.cases import PUBLISHED
from scripts.benchmarks.tables import Table, cell, check_positive, geometric_mean
from veenv.agents.api import train as train_alone
from veenv.agents.config.args import parse_duration, task_names
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.curriculum import FixedTasks
from veenv.agents.training.loop import train
from veenv.agents.training.played import AGENTS, Played, make_trainer
from veenv.env import TaskDistribution
from veenv.env.random_play import random_episodes
from veenv.env.rewards import classical_cost
from veenv.graph.graph import Graph
from veenv.search import Budget, search
from veenv.tasks.evaluation_sets import evaluation_set

STEPS = {
    "RoeFlux_1d": 2_000_000, "RobotArm_6DOF": 200_000, "HumanHeartDipole": 100_000,
    "PropaneCombustion": 80_000, "mlp": 30_000, "Encoder": 1_000_000,
}  # fmt: skip
"""Environment steps that suffice for the goals."""

NEAR = 1.01
"""Most ratio of PPO's cost to that of annealing that counts as near."""

POINTS = 40
"""Points of a learning curve."""

Agent = Annotated[OmitArgPrefixes[PPOConfig], arg(help="The agent, its network, its training.")]


class CoursePoint(NamedTuple):
    """Where a training is after an update.

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


def ppo(
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
    check_positive(seeds=seeds)
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
    curriculum, course, began = FixedTasks(trainer), list[CoursePoint](), time.monotonic()
    for progress in train(curriculum, state=state, time_limit=time_limit):
        [mean] = progress.measured["mean_cost"].values()
        best, now = curriculum.best.cost(name), time.monotonic()
        course.append(CoursePoint(progress.steps, mean, best, now - began))
    return course


def equal_time(
    task: str = ",".join(PUBLISHED),
    time_limit: str = "30s",
    seeds: int = 3,
    ppo: Agent = PPOConfig(),  # noqa: B008  # frozen
    search: Annotated[OmitArgPrefixes[SearchConfig], arg(help="Of AlphaZero.")] = SearchConfig(),  # noqa: B008
) -> Iterator[Table]:
    """Trains both agents on tasks with several seeds, every run for the same time.

    The time of a run leaves out compiling, which the seeds share.

    Args:
        task: tasks, separated by commas.
        time_limit: time of every run.
        seeds: number of seeds, from 0 on.
        ppo: settings of both agents, as far as they have them.
        search: settings of AlphaZero.
    """
    check_positive(seeds=seeds)
    limit = parse_duration(time_limit)
    table = Table("task", "published", "agent", "best", "median", "worst", "steps of a run")
    yield table
    for name in task_names(task):
        played = Played.named(name).tasks
        for agent, written in AGENTS.items():
            own = search if agent == "alphazero" else SearchConfig()
            trainer = make_trainer(agent, ppo, own, played)
            ends = [course_of(trainer, seed, limit)[-1] for seed in range(seeds)]
            costs = [end.best for end in ends]
            numbers = min(costs), np.median(costs), max(costs), np.mean([end.steps for end in ends])
            cells = (f"{x:,.0f}" for x in numbers)
            table.add(name, cell(PUBLISHED.get(name, "-")), written, *cells)


def ppo_sets(
    set: str = "scalar-small,scalar-large,arrays",
    functions: int = 5,
    task: str | None = None,
    time_limit: str = "120s",
    anneal: str = "10s",
    ppo: Agent = PPOConfig(),  # noqa: B008  # frozen
) -> Iterator[Table]:
    """Trains PPO on one function after another, each from fresh parameters, next to annealing.

    No annealing and no search is in what PPO finds, and with ``--window 0`` no game of the shipped
    policy.  The time of PPO includes that of compiling.

    Args:
        set: named sets, separated by commas.
        functions: the first so many functions of each set are played.
        task: tasks that are played as well, separated by commas.
        time_limit: time of a training.
        anneal: time, or number of evaluations, of annealing.
        ppo: settings of the agent.
    """
    check_positive(functions=functions)
    parse_duration(time_limit)
    Budget.parse(anneal)
    played = list(_played(set, functions, task))
    columns = "function", "vertices", "best classical", "annealing", "PPO", "ratio", "steps"
    yield (table := Table(*columns))
    ratios: dict[str, list[float]] = {}
    for chosen, name, graph in played:
        found, steps = learned(graph, ppo, time_limit)
        annealed = search(graph, "anneal", budget=anneal, seed=ppo.seed).cost
        ratio = max(found, 1) / max(annealed, 1)
        ratios.setdefault(chosen, []).append(ratio)
        costs = classical_cost(graph, "multiplications"), annealed, found
        table.add(name, len(graph.eliminable), *costs, f"{ratio:.3f}", steps)
    yield (table := Table("set", "functions", "within 1 %", "below", "geometric mean", "largest"))
    whole = [ratio for some in ratios.values() for ratio in some]
    for name, some in (ratios | {"all": whole}).items():
        table.add(name, *_compared(some))


def _played(sets: str, functions: int, task: str | None) -> Iterator[tuple[str, str, Graph]]:
    """Name of the set, name of the function, and graph.

    Raises:
      ValueError: there is no such set or task.
    """
    for chosen in [evaluation_set(name) for name in task_names(sets)]:
        drawn = TaskDistribution.of(chosen)
        pairs = zip(drawn.names, drawn.graphs, strict=True)
        for (name, graph), _ in zip(pairs, range(functions), strict=False):
            yield chosen.name, name, graph
    if task is not None:
        named = Played.named(task).tasks
        for name, graph in zip(named.names, named.graphs, strict=True):
            yield "tasks", name, graph


def learned(graph: Graph, ppo: PPOConfig, time_limit: str) -> tuple[int, int]:
    """Cost of the best order that PPO finds of a graph, and the environment steps it played."""
    run = train_alone(graph, ppo, time_limit=time_limit)
    return run.order.counts["multiplications"], run.steps


def _compared(ratios: Sequence[float]) -> tuple[int | str, ...]:
    """Cells on how PPO's costs compare with those of annealing on some functions."""
    near, below = (sum(ratio <= NEAR for ratio in ratios), sum(ratio < 1 for ratio in ratios))
    mean = geometric_mean(ratios)
    return len(ratios), near, below, f"{mean:.3f}", f"{max(ratios):.3f}"
