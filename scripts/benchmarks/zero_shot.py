"""Plays functions with the pretrained policy: ``python scripts/benchmark.py zero-shot --help``."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence

import numpy as np

from agents.config.args import fail, parse, task_names
from agents.config.checks import check_integers, check_positive
from agents.policy import policy_orders, pretrained
from agents.training.played import Played
from scripts.benchmarks.result_file import Table, write_result
from veenv import tasks
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import Graph
from veenv.search import search
from veenv.tasks.evaluation_sets import evaluation_set

COLUMNS = ("forward", "reverse", "Markowitz", "annealing", "greedy", "policy")


@dataclasses.dataclass(frozen=True)
class ZeroShotArgs:
    """Plays functions with the policy that comes with the package, without learning.

    Of every function the weights are read anew, and the cheapest of the first games counts, next
    to the classical orders and simulated annealing.  Bold orders are below every classical one.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    set: str | None = None
    """Named sets, separated by commas: scalar-small, scalar-large, arrays or real, or, of the first
    three, the functions to train with, such as scalar-small-train."""

    task: str | None = None
    """Tasks instead of sets, separated by commas; without either all tasks."""

    games: int = 32
    """Games that count, the greedy one among them."""

    seconds: float = 10.0
    """Seconds after which no more games count, from the graph on, loading included."""

    anneal: int = 2000
    """Evaluations of simulated annealing."""

    seed: int = 0
    """Seed of the games and of annealing."""

    seeds: int = 1
    """Number of seeds, from --seed on; the first one is shown, of the others how the ratio to
    annealing varies."""

    out: str | None = None
    """File to write the result to, as JSON: the summary, and the tables of functions."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.set is not None and self.task is not None:
            raise ValueError("give --set NAMES or --task NAMES, not both")
        check_integers(self, "games anneal seeds")
        check_integers(self, "seed", 0)
        check_positive(self, "seconds")

    def played(self) -> Iterator[tuple[str, TaskDistribution]]:
        """What is played, by name.

        Raises:
          ValueError: there is no such set or task.
        """
        if self.set is None:
            named = ",".join(tasks.list()) if self.task is None else self.task
            yield "tasks", Played.named(named).tasks
            return
        for chosen in [evaluation_set(name) for name in task_names(self.set)]:
            yield chosen.name, TaskDistribution.of(chosen)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line, plays, prints the tables and writes them."""
    args = parse(ZeroShotArgs, arguments)
    best = f"best of {args.games}"
    functions = Table(("function", *COLUMNS[:-1], best, "seconds"))
    rows = []
    try:
        for name, chosen in args.played():
            functions.begin()
            rows.append(summary(name, play_all(chosen, args, functions)))
    except ValueError as error:
        fail(str(error))
    totals = Table(
        ("set", "functions", "to annealing", "above it on", "to the best classical order")
        + ("below that on", "above it"),
        rows,
    )
    totals.show()
    if args.out is not None:
        if args.set is None:
            write_result(args.out, functions, totals)
        else:
            write_result(args.out, totals, functions=functions)


def play_all(played: TaskDistribution, args: ZeroShotArgs, table: Table) -> np.ndarray:
    """Plays functions and adds a row of each to a table.

    Returns:
      Costs in the order of `COLUMNS`, -1 of games that were not over in time, int64
      [functions, seeds, 6].
    """
    found = []
    for name, graph, classical in zip(played.names, played.graphs, played.classical, strict=True):
        costs, taken = [], 0.0
        for seed in range(args.seed, args.seed + args.seeds):
            games, seconds = play(graph, args, seed)
            annealed = search(graph, "anneal", budget=args.anneal, seed=seed).cost
            ends = (games[0], min(games)) if games else (-1, -1)
            costs.append((*classical.values(), annealed, *ends))
            taken = taken if seed > args.seed else seconds
        cells = ["-" if cost < 0 else f"{cost:,}" for cost in costs[0]]
        if 0 <= costs[0][-1] < min(classical.values()):
            cells[-1] = f"**{cells[-1]}**"
        table.add(name, *cells, f"{taken:.2f}")
        found.append(costs)
    return np.array(found)


def play(graph: Graph, args: ZeroShotArgs, seed: int) -> tuple[list[int], float]:
    """Costs of the games that the policy plays in time, and the seconds that they took."""
    pretrained.cache_clear()
    costs: list[int] = []
    began = ended = time.perf_counter()
    for order in policy_orders(graph, "multiplications", seed):
        now = time.perf_counter()
        if now - began > args.seconds:
            break
        ended = now
        costs.append(graph.cost(order))
        if len(costs) == args.games:
            break
    return costs, ended - began


def summary(name: str, costs: np.ndarray) -> tuple[str, ...]:
    """How the policy's costs compare, those of functions that it played in time with all seeds.

    Args:
      name: of the set.
      costs: as `play_all` returns them.

    Returns:
      Cells: geometric means of ratios of the first seed, with the range over seeds of that to
      annealing, and on how many functions the policy is above annealing, below the best classical
      order and above it.
    """
    played = costs[(costs[..., -1] >= 0).all(1)]
    if not len(played):
        return (name, "0", *["-"] * 5)
    policy, annealed = played[..., -1], played[..., 3]
    classical = played[..., :3].min(-1)
    to_annealing = np.exp(_logs(policy, annealed).mean(0))
    low, high = to_annealing.min(), to_annealing.max()
    spread = f" ({low:.3f} … {high:.3f})" if costs.shape[1] > 1 else ""
    return (
        name,
        f"{len(played)}",
        f"{to_annealing[0]:.3f}{spread}",
        f"{(policy > annealed)[:, 0].sum()}",
        f"{np.exp(_logs(policy, classical)[:, 0].mean()):.3f}",
        f"{(policy < classical)[:, 0].sum()}",
        f"{(policy > classical)[:, 0].sum()}",
    )


def _logs(costs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Logarithms of ratios of costs."""
    return np.log(np.maximum(costs, 1)) - np.log(np.maximum(others, 1))
