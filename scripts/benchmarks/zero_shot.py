"""The shipped policy on functions that it has not seen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from scripts.benchmarks.tables import Table, check_positive
from veenv import tasks
from veenv.agents.config.args import task_names
from veenv.agents.policy import policy_orders, pretrained
from veenv.agents.training.played import Played
from veenv.env.task_set import TaskDistribution
from veenv.graph.graph import Graph
from veenv.search import search
from veenv.tasks.evaluation_sets import evaluation_set

COLUMNS = ("forward", "reverse", "Markowitz", "annealing", "greedy", "policy")


def zero_shot(
    set: str | None = None,
    task: str | None = None,
    games: int = 32,
    seconds: float = 10.0,
    anneal: int = 2000,
    seed: int = 0,
    seeds: int = 1,
) -> Iterator[Table]:
    """Plays functions with the policy that comes with the package, without learning.

    Of every function the weights are read anew, and the cheapest of the first games counts, next
    to the classical orders and simulated annealing.  Bold orders are below every classical one.

    Args:
        set: named sets, separated by commas: scalar-small, scalar-large, arrays or real, or, of the
            first three, the functions to train with, such as scalar-small-train.
        task: tasks instead of sets, separated by commas; without either all tasks.
        games: games that count, the greedy one among them.
        seconds: seconds after which no more games count, from the graph on, loading included.
        anneal: evaluations of simulated annealing.
        seed: of the games and of annealing.
        seeds: number of seeds, from --seed on; the first one is shown, of the others how the ratio
            to annealing varies.
    """
    if set is not None and task is not None:
        raise ValueError("give --set NAMES or --task NAMES, not both")
    check_positive(games=games, anneal=anneal, seeds=seeds)
    chosen = list(played(set, task))
    functions = Table("function", *COLUMNS[:-1], f"best of {games}", "seconds")
    columns = "set", "functions", "to annealing", "above it on", "to the best classical order"
    totals = Table(*columns, "below that on", "above it")
    if set is None:
        yield functions
    else:  # too many for a page
        totals.beside["functions"] = functions
        print(functions.head())
    rows = []
    for name, tasks_of in chosen:
        costs = play_all(tasks_of, games, seconds, anneal, range(seed, seed + seeds), functions)
        rows.append(summary(name, costs))
    yield totals
    for cells in rows:
        totals.add(*cells)


def played(set: str | None, task: str | None) -> Iterator[tuple[str, TaskDistribution]]:
    """What is played, by name.

    Raises:
      ValueError: there is no such set or task.
    """
    if set is None:
        yield "tasks", Played.named(",".join(tasks.list()) if task is None else task).tasks
        return
    for chosen in [evaluation_set(name) for name in task_names(set)]:
        yield chosen.name, TaskDistribution.of(chosen)


def play_all(
    played: TaskDistribution,
    games: int,
    limit: float,
    anneal: int,
    seeds: Sequence[int],
    table: Table,
) -> np.ndarray:
    """Plays functions and adds a row of each to a table.

    Returns:
      Costs in the order of `COLUMNS`, -1 of games that were not over in time, int64
      [functions, seeds, 6].
    """
    found = []
    for name, graph, classical in zip(played.names, played.graphs, played.classical, strict=True):
        costs, taken = [], []
        for seed in seeds:
            found_by, seconds = play(graph, games, limit, seed)
            annealed = search(graph, "anneal", budget=anneal, seed=seed).cost
            ends = (found_by[0], min(found_by)) if found_by else (-1, -1)
            costs.append((*classical.values(), annealed, *ends))
            taken.append(seconds)
        cells = ["-" if cost < 0 else f"{cost:,}" for cost in costs[0]]
        if 0 <= costs[0][-1] < min(classical.values()):
            cells[-1] = f"**{cells[-1]}**"
        table.add(name, *cells, f"{taken[0]:.2f}")
        found.append(costs)
    return np.array(found)


def play(graph: Graph, games: int, limit: float, seed: int) -> tuple[list[int], float]:
    """Costs of the games that the policy plays in time, and the seconds that they took."""
    pretrained.cache_clear()
    costs: list[int] = []
    began = ended = time.perf_counter()
    for order in policy_orders(graph, "multiplications", seed):
        now = time.perf_counter()
        if now - began > limit:
            break
        ended = now
        costs.append(graph.cost(order))
        if len(costs) == games:
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
