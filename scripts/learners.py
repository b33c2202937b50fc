"""A row of the leaderboard of learners: ``python scripts/learners.py --help``."""

from __future__ import annotations

from veenv.agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import json
import math
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from veenv.agents.api import train
from veenv.agents.config.args import fail, parse_duration, say
from veenv.agents.config.checks import check_integers
from veenv.agents.config.ppo import PPOConfig, window_on
from veenv.agents.training.inputs import AGENTS, AgentName
from veenv.agents.training.loop import TrainProgress

sys.path.insert(0, str(Path(__file__).parents[1]))  # a checkout is not installed

from veenv.env import TaskDistribution
from veenv.env.factory import make
from veenv.graph.graph import Graph
from veenv.measure.timing import machine
from veenv.orders.documents import parse_object, write_text
from veenv.orders.fields import read_field
from veenv.orders.order import fingerprint
from veenv.search import search
from veenv.search.api import LARGE as LARGE_SEARCH
from veenv.search.api import check_method
from veenv.search.evaluation import Evaluation

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "leaderboard" / "learners"
EXAMPLES = ROOT / "docs" / "examples"

POINTS = 20
"""Points of a learning curve."""

OTHERS = "one-file", "rejax"
"""Learners that are not agents of the package."""

FROM_NOTHING = "-from-nothing"
"""What the name of an agent ends with that knows no order and no weights when it starts."""

BINS = 10
"""Least costs that are kept of each factor of ten in seconds."""

PARTLY = ", others not counted"
"""What the name of a learner ends with where an older file has not every run's order."""

Point = tuple[int, float, float, int]
"""Environment steps or evaluations, seconds, mean cost of the last episodes, least cost so far."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Runs a learner or a search on tasks with several seeds, and writes a row of the leaderboard.

    The file is written after every run. The same command again goes on where it was, and begins
    anew where a run has no order; with more seeds it adds those. Seconds include compiling, anew
    in every run.

    Raises:
      ValueError: the number of seeds is not positive.
    """

    learner: str
    """One of ppo, ppo-from-nothing, alphazero, one-file (docs/examples/ppo_one_file.py), rejax, or
    a method of search such as anneal or policy."""
    on: str
    """Name of a set or of a task."""
    budget: str = "1m"
    """Time of a run, or its environment steps or evaluations."""
    seeds: int = 5
    """Number of seeds, from 0 on."""
    where: str = ""
    """What there is to say of the machine."""
    folder: Path = FOLDER
    """Where rows are."""

    def __post_init__(self) -> None:
        """Checks the number of seeds."""
        check_integers(self, "seeds")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
      order: vertex ids of the cheapest order.
      course: all points; the last one is the end.
    """

    order: tuple[int, ...]
    course: list[Point]


Learner = Callable[[Graph, int, str], RunResult]
"""From a graph, a seed and a budget."""


def main(config: Config) -> None:
    """Plays what the file of the row does not have yet, a seed after the other.

    Raises:
      ValueError: there is no such learner, set or task, or a budget is none.
    """
    learner, played = learner_of(config.learner), TaskDistribution.of(config.on)
    if not config.budget.isdecimal():
        parse_duration(config.budget)
    path = config.folder / f"{config.learner}-{played.title}-{config.budget}.json"
    row = parse_object(path.read_bytes()) if path.exists() else {}
    runs = row.get("runs", [])
    row = {
        "learner": config.learner,
        "on": played.title,
        "budget": config.budget,
        "machine": config.where or row.get("machine") or machine(),
        "jax": jax.__version__,
        "tasks": [_task(played, k) for k in range(len(played))],
        "runs": runs if all("order" in run for run in runs) else [],
    }
    done = {(run["task"], run["seed"]) for run in row["runs"]}
    wanted = [(seed, k) for seed in range(config.seeds) for k in range(len(played))]
    for seed, k in wanted:
        name, graph = played.names[k], played.graphs[k]
        if (name, seed) not in done:
            jax.clear_caches()  # so that every seed compiles
            began = time.monotonic()
            shown_run = learner(graph, seed, config.budget)
            seconds, cost = time.monotonic() - began, graph.cost(shown_run.order)
            steps, _, mean, least = shown_run.course[-1]
            if cost != least:
                raise RuntimeError(f"{name}: an order of {cost} is said to cost {least}")
            shown = np.linspace(0, len(shown_run.course) - 1, min(POINTS, len(shown_run.course)))
            curve = [shown_run.course[i] for i in shown.round().astype(int)]
            texts = [[n, round(s, 1), round(float(m), 1), c] for n, s, m, c in curve]
            result = {"cost": cost, "mean": round(float(mean), 1), "steps": steps}
            result["best"] = anytime(shown_run.course)
            result |= {"seconds": round(seconds, 1), "curve": texts, "order": list(shown_run.order)}
            row["runs"].append({"task": name, "seed": seed} | result)
            write_text(path, _text(row))
            print(f"{name}, seed {seed}: {cost:,} in {seconds:.0f} s, {steps:,} steps", flush=True)
    write_text(path, _text(row))
    say(f"{path}\n{evaluation_of(row)}")


def anytime(course: Sequence[Point]) -> list[tuple[float, int]]:
    """Seconds and least cost at improvements, the last of each tenth of a factor of ten.

    >>> anytime([(1, 0.50, 9.0, 9), (2, 0.51, 9.0, 9), (3, 0.52, 8.0, 8), (4, 30.0, 7.0, 7)])
    [(0.52, 8), (30.0, 7)]
    """
    lowest: dict[int, tuple[float, int]] = {}
    least = math.inf
    for _, seconds, _, cost in course:
        if cost < least:
            least = cost
            lowest[math.floor(BINS * math.log10(max(seconds, 1e-3)))] = (
                round(seconds, 3),
                cost,
            )
    return list(lowest.values())


def start_of(learner: str, vertices: int) -> str:
    """Returns what a learner or a search knows of a function of so many vertices at first.

    >>> start_of("ppo", 500), start_of("ppo-from-nothing", 500), start_of("anneal", 500)
    ('the shipped policy', 'nothing', 'classical orders')
    """
    window = learner == "ppo" and window_on(vertices, PPOConfig())
    advised = learner == "auto" and vertices > LARGE_SEARCH
    if learner.partition("-")[0] == "policy" or window or advised:
        return "the shipped policy"
    learns = learner in (*AGENTS, *OTHERS) or learner.endswith(FROM_NOTHING)
    return "nothing" if learns else "classical orders"


def _task(played: TaskDistribution, k: int) -> dict[str, Any]:
    """Describes a task: its graph, classical cost and reference."""
    return {
        "task": played.names[k],
        "fingerprint": fingerprint(played.graphs[k]),
        "classical": min(played.classical[k].values()),
        "reference": played.references[k],
    }


def _text(row: dict[str, Any]) -> str:
    """A row as JSON, a line for each task and run."""
    parts = [
        f'"{name}": ' + (f"[\n{lines}\n]" if lines is not None else json.dumps(value))
        for name, value in row.items()
        for lines in [",\n".join(map(json.dumps, value)) if isinstance(value, list) else None]
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def evaluation_of(row: dict[str, Any]) -> Evaluation | None:
    """A row, of the seeds that every task was played with, as `veenv.evaluate` would say it.

    None if there is no such seed yet. Where runs lack their orders, which older files have of the
    cheapest alone, the row is of that one, and its name says so.

    Raises:
      ValueError: it is no row.
    """
    try:
        runs = {(run["task"], run["seed"]): run for run in row["runs"]}
        names = [task["task"] for task in row["tasks"]]
        seeds = sorted({seed for _, seed in runs})
        seeds = [s for s in seeds if all((name, s) in runs for name in names)]
        if not seeds:
            return None
        rows, learner = [], row["learner"]
        whole = all("order" in run for run in runs.values())
        for task in row["tasks"]:
            of_task = [runs[task["task"], seed] for seed in seeds]
            if not whole:
                of_task = [min(of_task, key=lambda run: (run["cost"], "order" not in run))]
            of_runs = {
                "costs": [run["cost"] for run in of_task],
                "mean": float(np.mean([run["mean"] for run in of_task])),
                "steps": sum(run["steps"] for run in of_task),
                "seconds": math.fsum(run["seconds"] for run in of_task),
                "orders": [run.get("order", []) for run in of_task],
            }
            rows.append(task | of_runs)
        if not whole:
            learner, seeds = f"{learner}, best of {len(seeds)}{PARTLY}", seeds[:1]
        fields = {"policy": learner, "tasks": row["on"], "cost": "multiplications"}
        fields |= {"seeds": seeds, "samples": 1, "rows": rows}
        return read_field("", Evaluation, row | fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no row of a learner: {error}") from None


def learner_of(name: str) -> Learner:
    """A learner or a method of search.

    Raises:
      ValueError: there is none of this name.
    """
    if name in AGENTS:
        return partial(agent, name)
    if name == f"ppo{FROM_NOTHING}":
        return partial(agent, "ppo", from_nothing=True)
    if name in OTHERS:
        return {"one-file": one_file, "rejax": rejax}[name]
    try:
        check_method(name)
    except ValueError as error:
        learners = ", ".join((*AGENTS, f"ppo{FROM_NOTHING}", *OTHERS))
        raise ValueError(
            f"learner must be one of {learners} or a method of search: {error}"
        ) from None
    return partial(searched, name)


def agent(name: AgentName, graph: Graph, seed: int, budget: str, **settings: Any) -> RunResult:
    """PPO or AlphaZero, with its default settings but for those.

    What it is given without playing counts only where it starts from that.
    """
    course: list[Point] = []

    def note(progress: TrainProgress) -> None:
        [mean] = progress.measured["mean_cost"].values()
        [least] = progress.measured["best_cost" if from_known_order else "min_cost"].values()
        least = min([least, *(point[3] for point in course[-1:])])
        course.append((progress.steps, progress.seconds, mean, least))

    steps, limit = (int(budget), None) if budget.isdecimal() else (None, budget)
    config = PPOConfig(seed=seed, steps=steps, **settings)
    window = name == "ppo" and window_on(len(graph.eliminable), config)
    from_known_order = window and not config.from_nothing
    run = train(graph, config, agent=name, callback=note, time_limit=limit)
    played = run.best.played(run.order.name)
    return RunResult(run.order.ids if from_known_order or played is None else played, course)


def searched(method: str, graph: Graph, seed: int, budget: str) -> RunResult:
    """A method of search."""
    limit = int(budget) if budget.isdecimal() else budget
    end = search(graph, method, budget=limit, seed=seed)
    course = [(n, s, cost, cost) for s, n, cost in end.trace]
    return RunResult(end.order, [*course, (end.evaluations, end.seconds, end.cost, end.cost)])


def one_file(graph: Graph, seed: int, budget: str) -> RunResult:
    """The PPO of docs/examples/ppo_one_file.py."""
    example = runpy.run_path(str(EXAMPLES / "ppo_one_file.py"))
    begin, learn = example["make_train"](graph, updates=1)

    def update(carry: Any, key: Any) -> tuple[Any, Any]:
        carry, episodes = learn(carry, key)
        return carry, episodes.order[0]

    return by_updates(graph, seed, budget, begin, update)


def rejax(graph: Graph, seed: int, budget: str) -> RunResult:
    """The PPO of rejax, as in docs/examples/rejax_ppo.py.

    Raises:
      ValueError: it is not installed.
    """
    try:
        from rejax import PPO  # pyright: ignore[reportMissingImports]  # of the extra `clients`
    except ImportError as error:
        raise ValueError(f"pip install 'veenv[clients]' brings rejax ({error})") from None
    played: list[Any] = []

    class Recorded(PPO):
        def collect_trajectories(self, ts: Any) -> Any:
            ts, seen = super().collect_trajectories(ts)
            played.append(seen.action)
            return ts, seen

    example = runpy.run_path(str(EXAMPLES / "rejax_ppo.py"))
    inner = make(graph, normalise=True, observation="flat")
    ppo = example["make_ppo"](inner, inner.max_steps, Recorded)

    def update(state: Any, _: Any) -> tuple[Any, Any]:
        state = ppo.train_iteration(state)
        return state, jnp.asarray(graph.eliminable)[played.pop().T]

    return by_updates(graph, seed, budget, ppo.init_state, update)


def by_updates(
    graph: Graph,
    seed: int,
    budget: str,
    begin: Callable[[Any], Any],
    update: Callable[[Any, Any], tuple[Any, Any]],
) -> RunResult:
    """A learner that is a function of its state and a key, and tells the orders of its episodes."""
    began, (first, rest) = time.monotonic(), jax.random.split(jax.random.key(seed))
    state, step = jax.jit(begin)(first), jax.jit(update)
    course: list[Point] = []
    order, least, pace = (), math.inf, 0.0
    while not course or not _is_spent(budget, course[-1], pace):
        state, orders = step(state, jax.random.fold_in(rest, len(course)))
        orders = [tuple(int(v) for v in ids if v >= 0) for ids in np.asarray(orders)]
        costs = [graph.cost(graph.check_order(ids)) for ids in orders]
        if min(costs) < least:
            least, order = min(costs), orders[int(np.argmin(costs))]
        now, before = time.monotonic() - began, course[-1] if course else (0, 0.0, 0.0, 0)
        pace = now - before[1] if course else 0.0
        steps = before[0] + len(orders) * len(graph.eliminable)
        course.append((steps, now, float(np.mean(costs)), int(least)))
    return RunResult(order, course)


def _is_spent(budget: str, last: Point, pace: float) -> bool:
    """Whether steps are enough, or another update would take too long."""
    if budget.isdecimal():
        return last[0] >= int(budget)
    return last[1] + pace > parse_duration(budget)


def run() -> None:
    """Parses the command line; what is wrong with it is one line."""
    try:
        main(tyro.cli(Config))
    except ValueError as error:
        fail(str(error))


if __name__ == "__main__":
    run_script(run)
