"""PPO alone on functions of the named sets: ``python scripts/benchmark.py ppo-sets --help``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from tyro.conf import OmitArgPrefixes, arg

from agents.api import train
from agents.config.args import fail, parse, parse_duration, task_names
from agents.config.checks import check_integers
from agents.config.ppo import PPOConfig
from agents.training.played import Played
from scripts.benchmarks.result_file import Table, write_result
from veenv.env import TaskDistribution
from veenv.graph.graph import Graph
from veenv.search import Budget, search
from veenv.tasks.evaluation_sets import evaluation_set

NEAR = 1.01
"""Most ratio of PPO's cost to that of annealing that counts as near."""

COLUMNS = ("function", "vertices", "best classical", "annealing", "PPO", "ratio", "steps")


@dataclasses.dataclass(frozen=True)
class SetsArgs:
    """Trains PPO on one function after another, each from fresh parameters, next to annealing.

    No annealing and no search is in what PPO finds, and with ``--window 0`` no game of the shipped
    policy.  The time of PPO includes that of compiling.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    set: str = "scalar-small,scalar-large,arrays"
    """Named sets, separated by commas."""

    functions: int = 5
    """The first so many functions of each set are played."""

    task: str | None = None
    """Tasks that are played as well, separated by commas."""

    time_limit: str = "120s"
    """Time of a training."""

    anneal: str = "10s"
    """Time, or number of evaluations, of annealing."""

    out: str | None = None
    """File to write the result to, as JSON, after every function."""

    ppo: Annotated[
        OmitArgPrefixes[PPOConfig], arg(help="The agent, its network, its training.")
    ] = dataclasses.field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        """Checks numbers and times."""
        check_integers(self, "functions")
        parse_duration(self.time_limit)
        Budget.parse(self.anneal)

    def played(self) -> Iterator[tuple[str, str, Graph]]:
        """Name of the set, name of the function, and graph.

        Raises:
          ValueError: there is no such set or task.
        """
        for chosen in [evaluation_set(name) for name in task_names(self.set)]:
            drawn = TaskDistribution.of(chosen)
            pairs = zip(drawn.names, drawn.graphs, strict=True)
            for (name, graph), _ in zip(pairs, range(self.functions), strict=False):
                yield chosen.name, name, graph
        if self.task is not None:
            named = Played.named(self.task).tasks
            for name, graph in zip(named.names, named.graphs, strict=True):
                yield "tasks", name, graph


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, trains, prints the tables and writes them."""
    args = parse(SetsArgs, arguments)
    functions, ratios = Table(COLUMNS), dict[str, list[float]]()
    functions.begin()
    try:
        for chosen, name, graph in args.played():
            found, steps = learned(graph, args)
            annealed = search(graph, "anneal", budget=args.anneal, seed=args.ppo.seed).cost
            ratio = max(found, 1) / max(annealed, 1)
            ratios.setdefault(chosen, []).append(ratio)
            orders = graph.forward(), graph.reverse(), graph.markowitz()
            costs = min(map(graph.cost, orders)), annealed, found
            cells = [f"{x:,}" for x in (len(graph.eliminable), *costs)]
            functions.add(name, *cells, f"{ratio:.3f}", f"{steps:,}")
            if args.out is not None:
                write_result(args.out, summary(ratios), functions)
    except ValueError as error:
        fail(str(error))
    summary(ratios).show()


def learned(graph: Graph, args: SetsArgs) -> tuple[int, int]:
    """Cost of the best order that PPO finds of a graph, and the environment steps it played."""
    run = train(graph, args.ppo, time_limit=args.time_limit)
    return run.order.counts["multiplications"], run.steps


def summary(ratios: dict[str, list[float]]) -> Table:
    """How PPO's costs compare with those of annealing: a row for each set, and one for all."""
    table = Table(("set", "functions", "within 1 %", "below", "geometric mean", "largest"))
    whole = [ratio for some in ratios.values() for ratio in some]
    for name, some in (ratios | {"all": whole}).items():
        table.rows.append((name, *_row(some)))
    return table


def _row(ratios: Sequence[float]) -> tuple[str, ...]:
    """Cells on some functions."""
    near, below = (sum(ratio <= NEAR for ratio in ratios), sum(ratio < 1 for ratio in ratios))
    mean = float(np.exp(np.log(ratios).mean()))
    return f"{len(ratios)}", f"{near}", f"{below}", f"{mean:.3f}", f"{max(ratios):.3f}"
