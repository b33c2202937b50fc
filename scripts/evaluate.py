"""Plays tasks with trained weights: ``python scripts/evaluate.py --run RUN`` (see ``--help``)."""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import OmitArgPrefixes, arg

from agents.config.args import fail, parse
from agents.config.function import FunctionConfig
from agents.evaluation import Evaluation, evaluate
from agents.nn.networks import GraphNetwork
from agents.nn.weights import load_weights
from agents.training.curriculum import EVALUATION_SEEDS
from agents.training.played import Played
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import CostModel
from veenv.orders.documents import parse_object
from veenv.search import search
from veenv.tasks import RandomFunctions
from veenv.tasks.evaluation_sets import TRAIN_SUFFIX, EvaluationSet, evaluation_set
from veenv.tasks.user import refuse_function

COLUMNS = (
    "forward",
    "reverse",
    "Markowitz",
    "classical",
    "annealing",
    "random",
    "untrained",
    "greedy",
    "mean",
)


@dataclasses.dataclass(frozen=True)
class EvaluateArgs:
    """Plays tasks with trained weights, without learning, next to other ways to find an order.

    Columns: the classical orders and the best of them, simulated annealing (of a set: the reference
    costs that come with it), and, each with the same number of episodes,
    the best of uniformly random play, of a network with fresh parameters, and of the trained one,
    whose greedy order and mean cost are there too.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    run: str
    """Run folder of `scripts/train.py` (its `weights.eqx`), or a file of weights."""

    task: str | None = None
    """Tasks to play, separated by commas, or `random` for random functions; without it those the
    run was trained on."""

    set: str | None = None
    """A named set of functions instead of tasks: scalar-small, scalar-large, arrays or real, or, of
    the first three, the functions to train with, such as scalar-small-train."""

    own: Annotated[OmitArgPrefixes[FunctionConfig], arg(help="Instead of --task.")] = (
        dataclasses.field(default_factory=FunctionConfig)
    )

    cost: CostModel = "multiplications"
    """What an elimination costs."""

    samples: int = 32
    """Episodes sampled on each task, by the policy, by fresh parameters and by random play."""

    temperature: float = 1.0
    """Temperature of the sampling; below 1 the policy is surer of itself."""

    anneal: str = "10s"
    """Time, or number of evaluations, of simulated annealing on each task; `0` leaves it out."""

    functions: int = 100
    """Number of random functions."""

    vertices: tuple[int, int] = (20, 60)
    """Least and largest number of equations of a random function."""

    arrays: float = 0.0
    """Share of random functions of small arrays."""

    seeds: int = 1
    """Number of seeds of the sampling, from --seed on; the table shows the first."""

    seed: int = 0
    """Seed of the sampling, and of random functions, which no training sees."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.set is not None and (self.task is not None or self.own.function is not None):
            raise ValueError("set and task or function exclude each other")
        if self.set is not None and self.cost != "multiplications":
            raise ValueError(f"the references of sets are multiplications, got cost {self.cost}")
        for name in ("samples", "functions", "seeds"):
            if getattr(self, name) < 1:
                got = getattr(self, name)
                raise ValueError(f"{name} must be an integer of at least 1, got {got}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a number above 0, got {self.temperature}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be an integer from 0 to 2**32 - 1, got {self.seed}")


def main() -> None:
    """Parses the command line, plays and prints the table."""
    args = parse(EvaluateArgs)
    try:
        network = read_network(args.run)
        played = read_tasks(args)
        annealed = others(played, args)
        runs = [
            evaluate(network, played, samples=args.samples, temperature=args.temperature, seed=seed)
            for seed in range(args.seed, args.seed + args.seeds)
        ]
    except (ValueError, OSError) as error:
        fail(str(error))
    rows = table(played, runs[0], annealed)
    print("\n".join(rows))
    print(summary(played, runs, annealed))


def read_network(run: str) -> GraphNetwork:
    """The weights of a run folder or file.

    Raises:
      ValueError: the file holds no weights.
      OSError: it cannot be read.
    """
    path = Path(run)
    return load_weights(path / "weights.eqx" if path.is_dir() else path)


def read_tasks(args: EvaluateArgs) -> TaskDistribution:
    """What is played.

    Raises:
      ValueError: a task is unknown, or the run does not say which.
      OSError: the run's settings cannot be read.
    """
    if args.set is not None:
        return tasks_of_set(evaluation_set(args.set))
    if args.task is not None and args.own.function is not None:
        args.own.check_one(args.task)
    function = args.own.read()
    if function is not None:
        return Played.of(function, args.cost).tasks
    task = args.task or trained_on(args.run)
    if task != "random":
        return Played.named(task, args.cost).tasks
    family = RandomFunctions(vertices=args.vertices, arrays=args.arrays)
    return TaskDistribution.random(
        EVALUATION_SEEDS + args.seed, args.functions, args.cost, **dataclasses.asdict(family)
    )


def tasks_of_set(chosen: EvaluationSet) -> TaskDistribution:
    """The graphs of a set, with their names or numbers.

    Raises:
      ValueError: one of its functions cannot be played.
    """
    if chosen.family is None:
        return Played.named(",".join(chosen.tasks)).tasks
    ranges = dataclasses.asdict(chosen.family)
    drawn = TaskDistribution.random(chosen.seed, chosen.draws[-1] + 1, **ranges)
    # Sizes of the functions that were drawn, which are less than those that the ranges allow.
    return TaskDistribution.of({f"{chosen.name} {k}": drawn.graphs[k] for k in chosen.draws})


def others(played: TaskDistribution, args: EvaluateArgs) -> list[int | None]:
    """What annealing finds of every task; of a test set, what it has found.

    Raises:
      ValueError: there is no such set.
    """
    chosen = None if args.set is None else evaluation_set(args.set)
    if chosen is None or chosen.name.endswith(TRAIN_SUFFIX):
        return [anneal(played, index, args) for index in range(len(played))]
    pairs = zip(chosen.functions, played.graphs, strict=True)
    return [chosen.reference(name, graph) for name, graph in pairs]


def trained_on(run: str) -> str:
    """The tasks of a run folder.

    Raises:
      ValueError: it is no run folder, or of a function of the user's own.
      OSError: its settings cannot be read.
    """
    if not Path(run).is_dir():
        raise ValueError("weights alone do not say what to play; name it with --task or --function")
    path = Path(run) / "config.json"
    try:
        settings = parse_object(path.read_bytes())
        names, own = settings.get("graphs"), settings.get("own")
        if not isinstance(names, dict):
            raise ValueError("expected the graphs of a run")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if isinstance(own, dict) and own.get("function"):
        refuse_function(path, own["function"])
    return ",".join(names)


def anneal(played: TaskDistribution, index: int, args: EvaluateArgs) -> int | None:
    """Cost of the order that annealing finds; None if it is left out."""
    if args.anneal == "0":
        return None
    budget = int(args.anneal) if args.anneal.isdecimal() else args.anneal
    return search(
        played.graphs[index], "anneal", cost=args.cost, budget=budget, seed=args.seed
    ).cost


def table(
    played: TaskDistribution, results: Sequence[Evaluation], annealed: Sequence[int | None]
) -> list[str]:
    """The lines of the table."""
    best_of = f"best of {results[0].samples}"
    lines = [f"{'task':<22}" + "".join(f"{column:>12}" for column in (*COLUMNS, best_of))]
    for result, classical, other in zip(results, played.classical, annealed, strict=True):
        costs = (result.random, result.untrained, result.greedy, result.mean, result.best)
        cells = [
            "-" if cost is None else f"{cost:,.1f}" if isinstance(cost, float) else f"{cost:,}"
            for cost in (*classical.values(), min(classical.values()), other, *costs)
        ]
        lines.append(f"{result.name:<22}" + "".join(f"{cell:>12}" for cell in cells))
    return lines


def summary(
    played: TaskDistribution,
    runs: Sequence[Sequence[Evaluation]],
    annealed: Sequence[int | None],
) -> str:
    """How often the best sample costs less than the others, and by how much.

    Of several seeds: how often in the mean, and the ratio's mean and standard deviation.
    """
    best = np.array([[result.best for result in results] for results in runs])
    known = np.array([cost is not None for cost in annealed])
    ways: dict[str, list[int]] = {
        "Markowitz": [c["Markowitz"] for c in played.classical],
        "reverse": [c["reverse"] for c in played.classical],
        "the best classical order": [min(c.values()) for c in played.classical],
        "random play": [result.random for result in runs[0]],
        "an untrained network": [result.untrained for result in runs[0]],
        "annealing": [cost for cost in annealed if cost is not None],
    }
    lines = [f"\nbest of {runs[0][0].samples} samples against"]
    for name, costs in ways.items():
        ours = best[:, known] if name == "annealing" else best
        if costs:
            logs = np.log(np.maximum(ours, 1)) - np.log(np.maximum(costs, 1))
            ratios = np.exp(logs.mean(1))
            spread = f" ± {ratios.std(ddof=1):.3f}" if len(runs) > 1 else ""
            less, same = np.mean(ours < costs, 0).sum(), np.mean(ours == costs, 0).sum()
            lines.append(
                f"  {name + ':':<26} less on {less:>3.3g} of {len(costs)}, "
                f"the same on {same:>3.3g}, "
                f"geometric mean of ratios {ratios.mean():.3f}{spread}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(main)
