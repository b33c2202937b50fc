"""Plays tasks with trained weights: ``veenv-evaluate --run RUN``, or ``scripts/evaluate.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from tyro.conf import OmitArgPrefixes

from veenv import evaluate, sets
from veenv.agents.config.args import fail, parse, say
from veenv.agents.config.checks import check_integers, check_positive
from veenv.agents.config.function import FunctionConfig
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.nn.weights import architecture, load_weights
from veenv.agents.training.inputs import Played
from veenv.env import TaskDistribution, random_action
from veenv.graph.graph import CostModel
from veenv.orders.documents import as_path, parse_object
from veenv.search.evaluation import Evaluation
from veenv.tasks.user import refuse_code


@dataclasses.dataclass(frozen=True)
class EvaluateArgs:
    """Plays tasks with trained weights, without learning, next to annealing and random play.

    Example: veenv-evaluate --run runs/RoeFlux_1d/2026-11-21T04-12-26 --task mlp

    Columns: the classical orders and the best of them, the reference costs that are known, or else
    simulated annealing, and, each with the same number of episodes, the best of uniformly
    random play, of a network with fresh parameters, and of the trained one, whose greedy order and
    mean cost are there too.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    run: str
    """Run folder of `veenv-train` (its `weights.eqx`), or a file of weights."""

    task: str | None = None
    """Tasks to play, separated by commas; without it those the run was trained on."""

    set: str | None = None
    """A named set of functions instead of tasks: core, real, scalar-small, scalar-large, arrays,
    named, hard, rising or solved; or, by the suffix -train, the functions to train with
    (scalar-small-train, scalar-large-train, arrays-train)."""

    own: OmitArgPrefixes[FunctionConfig] = dataclasses.field(default_factory=FunctionConfig)

    cost: CostModel = "multiplications"
    """What an elimination costs."""

    samples: int = 32
    """Episodes sampled on each task, by the policy, by fresh parameters and by random play."""

    temperature: float = 1.0
    """Temperature of the sampling; below 1 the policy is surer of itself."""

    anneal: str | None = None
    """Time, or number of evaluations, of simulated annealing on each task; `0` leaves it out. By
    default 10 seconds where no reference costs are known."""

    seeds: int = 1
    """Number of seeds of the sampling, from --seed on; the table shows the first."""

    seed: int = 0
    """Seed of the sampling."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.set is not None and (self.task is not None or self.own.function is not None):
            raise ValueError("set and task or function exclude each other")
        if self.set is not None and self.cost != "multiplications":
            raise ValueError(f"the references of sets are multiplications, got cost {self.cost}")
        check_integers(self, "samples seeds")
        check_positive(self, "temperature")
        check_integers(self, "seed", 0, 2**32 - 1)


COLUMNS = 6
"""Most columns of a table, beside the task's name."""


def main() -> None:
    """Parses the command line, plays and prints the table."""
    args = parse(EvaluateArgs)
    try:
        network = load_weights(args.run)
        played = read_tasks(args)
        results = play(network, played, args)
    except (ValueError, OSError) as error:
        fail(str(error))
    say("\n".join(table(played, results)))
    say(f"\n{results['best'].policy} to")
    for name in ("annealing", "random", "untrained"):
        if name in results:
            say(f"  {name + ':':<10} {results['best'].compared(results[name])}")
    for name in ("reference", "classical"):
        compared = results["best"].compared(name)
        if compared is not None:
            say(f"  {name + ':':<10} {compared}")


def play(
    network: GraphNetwork, played: TaskDistribution, args: EvaluateArgs
) -> dict[str, Evaluation]:
    """Evaluates the network, a fresh one, random play and annealing, by the names of columns.

    Raises:
      ValueError: a task cannot be played, or the budget of annealing is none.
    """
    seeds = range(args.seed, args.seed + args.seeds)
    fresh = GraphNetwork(**architecture(network), key=jax.random.key(args.seed))

    def evaluated(policy: Any, name: str, samples: int = args.samples) -> Evaluation:
        return evaluate(policy, played, samples=samples, seed=seeds, name=name)

    results = {}
    anneal = args.anneal or ("0" if any(played.references) else "10s")
    if anneal != "0":
        budget = int(anneal) if anneal.isdecimal() else anneal
        results["annealing"] = evaluate("anneal", played, budget=budget, seed=args.seed)
    results["random"] = evaluated(lambda key, seen, mask: random_action(key, mask), "random play")
    results["untrained"] = evaluated(fresh, "an untrained network")
    results["greedy"] = evaluated(network.as_policy(played.env, 0.0), "greedy", 1)
    policy = network.as_policy(played.env, args.temperature)
    results["best"] = evaluated(policy, f"best of {args.samples} samples")
    return results


def read_tasks(args: EvaluateArgs) -> TaskDistribution:
    """Returns the tasks to play.

    Raises:
      ValueError: a task is unknown, or the run does not say which.
      OSError: the run's settings cannot be read.
    """
    if args.set is not None:
        return sets(args.set)
    if args.task is not None and args.own.function is not None:
        args.own.check_one(args.task)
    function = args.own.read()
    if function is not None:
        return Played.of(function, args.cost).tasks
    return Played.named(args.task or trained_on(args.run), args.cost).tasks


def trained_on(run: str) -> str:
    """The tasks of a run folder.

    Raises:
      ValueError: it is no run folder, or of a function of the user's own.
      OSError: its settings cannot be read.
    """
    folder = as_path(run)
    if not folder.is_dir():
        raise ValueError("weights alone do not say what to play; name it with --task or --function")
    path = folder / "config.json"
    try:
        settings = parse_object(path.read_bytes())
        names, function_settings = settings.get("graphs"), settings.get("own")
        if not isinstance(names, dict):
            raise ValueError("expected the graphs of a run")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if isinstance(function_settings, dict) and function_settings.get("function"):
        refuse_code(path, function_settings["function"])
    return ",".join(names)


def table(played: TaskDistribution, results: Mapping[str, Evaluation]) -> list[str]:
    """The lines of the table, of the first seed."""
    head = *played.classical[0], "classical", "reference", *results, "mean"
    rows = [head]
    for index in range(len(played.names)):
        classical = played.classical[index]
        cells = [*classical.values(), min(classical.values()), played.references[index]]
        cells += [one.rows[index].costs[0] for one in results.values()]
        texts = ["-" if cost is None else f"{cost:,}" for cost in cells]
        rows.append((*texts, f"{results['best'].rows[index].mean:,.1f}"))
    lines = []
    for first in range(0, len(head), COLUMNS):  # 80 characters are enough
        for name, row in zip(("task", *played.names), rows, strict=True):
            columns = row[first : first + COLUMNS]
            lines.append(f"{name:<19}" + "".join(f"{text:>10}" for text in columns))
    return lines
