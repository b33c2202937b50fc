"""Plays functions with the pretrained policy: ``python -m scripts.zero_shot --help``."""

from __future__ import annotations

from agents.cli.signals import exit_on_interrupt, run_script

exit_on_interrupt(__name__)

import dataclasses
import time

import numpy as np

from agents.config.args import fail, parse
from agents.config.checks import check_integers, check_positive
from agents.policy import policy_orders, pretrained
from agents.training.played import Played
from scripts.evaluate import tasks_of_set
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import Graph
from veenv.search import search
from veenv.tasks.evaluation_sets import evaluation_set


@dataclasses.dataclass(frozen=True)
class ZeroShotArgs:
    """Plays functions with the policy that comes with the package, without learning.

    Of every function the weights are read anew, and the cheapest of the first games counts, next
    to the classical orders and simulated annealing.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    set: str | None = None
    """A named set: scalar-small, scalar-large, arrays or real, or, of the first three, the
    functions to train with, such as scalar-small-train."""

    task: str | None = None
    """Tasks instead of a set, separated by commas."""

    games: int = 32
    """Games that count, the greedy one among them."""

    seconds: float = 10.0
    """Seconds after which no more games count, from the graph on, loading included."""

    anneal: int = 2000
    """Evaluations of simulated annealing."""

    seed: int = 0
    """Seed of the games and of annealing."""

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if (self.set is None) == (self.task is None):
            raise ValueError("give either --set NAME or --task NAMES")
        check_integers(self, "games anneal")
        check_integers(self, "seed", 0)
        check_positive(self, "seconds")

    @property
    def tasks(self) -> TaskDistribution:
        """What is played.

        Raises:
          ValueError: there is no such set or task.
        """
        if self.set is not None:
            return tasks_of_set(evaluation_set(self.set))
        return Played.named(self.task or "").tasks


COLUMNS = ("forward", "reverse", "Markowitz", "annealing", "greedy", "policy")


def main() -> None:
    """Parses the command line, plays and prints the table."""
    args = parse(ZeroShotArgs)
    try:
        tasks = args.tasks
    except ValueError as error:
        fail(str(error))
    print(f"{'task':<22}" + "".join(f"{name:>12}" for name in COLUMNS) + "   games   seconds")
    rows = []
    for name, graph, classical in zip(tasks.names, tasks.graphs, tasks.classical, strict=True):
        games, seconds = play(graph, args)
        annealed = search(graph, "anneal", budget=args.anneal, seed=args.seed).cost
        greedy, best = (games[0], min(games)) if games else (-1, -1)
        rows.append((min(classical.values()), annealed, best))
        cells = "".join(f"{cost:>12,}" for cost in (*classical.values(), annealed, greedy, best))
        print(f"{name:<22}{cells}{len(games):>8}{seconds:>10.2f}", flush=True)
    print(summary(np.array(rows)))


def play(graph: Graph, args: ZeroShotArgs) -> tuple[list[int], float]:
    """Costs of the games that the policy plays in time, and the seconds that they took."""
    pretrained.cache_clear()
    costs: list[int] = []
    began = ended = time.perf_counter()
    for order in policy_orders(graph, "multiplications", args.seed):
        now = time.perf_counter()
        if now - began > args.seconds:
            break
        ended = now
        costs.append(graph.cost(order))
        if len(costs) == args.games:
            break
    return costs, ended - began


def summary(costs: np.ndarray) -> str:
    """How the policy's costs compare; int64 [functions, 3], -1 where it did not play in time."""
    played = costs[costs[:, 2] >= 0]
    lines = [f"\nthe policy, which played {len(played)} of {len(costs)} in time, against"]
    for name, other in (("the best classical order", played[:, 0]), ("annealing", played[:, 1])):
        logs = np.log(np.maximum(played[:, 2], 1)) - np.log(np.maximum(other, 1))
        less, same = np.sum(played[:, 2] < other), np.sum(played[:, 2] == other)
        lines.append(
            f"  {name + ':':<26} less on {less:>2} of {len(played)}, the same on {same:>2}, "
            f"geometric mean of ratios {np.exp(logs.mean()):.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(main)
