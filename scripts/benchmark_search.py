"""The searches against each other: equal time and equal evaluations, several seeds."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from benchmark_machine import machine

import veenv
from veenv.graph.graph import CostModel, Graph
from veenv.search import METHODS, SearchResult
from veenv.search import search as run_search
from veenv.search.problem import prepare

DEFAULT_TASKS = (
    "RoeFlux_1d",
    "RobotArm_6DOF",
    "HumanHeartDipole",
    "PropaneCombustion",
    "RoeFlux_3d",
    "mlp",
    "Encoder",
)


def search(
    task: tuple[str, ...] = DEFAULT_TASKS,
    method: tuple[str, ...] = METHODS,
    seconds: float = 5.0,
    evaluations: int = 20_000,
    seeds: int = 3,
    cost: CostModel = "multiplications",
    plot: Path | None = None,
) -> None:
    """Every method on every task, at equal wall-clock time and at equal evaluations.

    Args:
        task: tasks to search on.
        method: methods of `veenv.search`.
        seconds: time budget of each search.
        evaluations: budget of each search in the second comparison.
        seeds: number of seeds of each search.
        cost: the cost model.
        plot: folder for one picture a task of the best count over time; none by default.
    """
    print(
        f"{machine()}\n\n| task | method | best in {seconds:g} s | median "
        f"| best in {evaluations:,} evaluations | median | bound |\n| --- | --- |{' ---: |' * 5}"
    )
    for name in task:
        found = veenv.tasks.get(name)
        graph = veenv.make_graph(found.fun, found.argnums)(*found.example_args())
        curves: dict[str, list[SearchResult]] = {}
        for how in method:
            timed = _runs(graph, how, f"{seconds}s", seeds, cost)
            counted = _runs(graph, how, evaluations, seeds, cost)
            curves[how] = timed
            a, b = [r.cost for r in timed], [r.cost for r in counted]
            bound = max(r.lower_bound for r in timed)
            print(
                f"| {name} | {how} | {min(a):,} | {statistics.median(a):,g} | {min(b):,} "
                f"| {statistics.median(b):,g} | {bound:,} |",
                flush=True,
            )
        if plot is not None:
            _plot(name, curves, seconds, plot)


def evaluations(
    task: tuple[str, ...] = ("RoeFlux_1d", "RobotArm_6DOF", "RoeFlux_3d", "Encoder"),
    orders: int = 20_000,
    repeats: int = 5,
    cost: CostModel = "multiplications",
) -> None:
    """Full random orders that the searches' evaluator counts in a second, on one core.

    Args:
        task: tasks to count orders of.
        orders: orders in each measurement.
        repeats: measurements, of which the fastest counts.
        cost: the cost model.
    """
    print(machine() + "\n\n| task | vertices | orders/s |\n| --- | ---: | ---: |")
    rng = np.random.default_rng(0)
    for name in task:
        found = veenv.tasks.get(name)
        problem = prepare(veenv.make_graph(found.fun, found.argnums)(*found.example_args()), cost)
        batch = np.stack([rng.permutation(problem.n) for _ in range(orders)]).astype(np.int64)
        problem.totals(batch)  # compiles, and fills the tables of structures
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            problem.totals(batch)
            times.append(time.perf_counter() - start)
        print(f"| {name} | {problem.n} | {orders / min(times):,.0f} |", flush=True)


def _runs(
    graph: Graph, method: str, budget: str | int, seeds: int, cost: CostModel
) -> list[SearchResult]:
    return [run_search(graph, method, cost=cost, budget=budget, seed=s) for s in range(seeds)]


def _plot(name: str, curves: dict[str, list[SearchResult]], seconds: float, folder: Path) -> None:
    """Best count over time, a line for each method (its seed that ended median)."""
    figure, axes = plt.subplots(figsize=(8, 5))
    for method, results in curves.items():
        middle = sorted(results, key=lambda r: r.cost)[len(results) // 2]
        times = [max(t, 1e-4) for t, _, _ in middle.trace] + [seconds]
        costs = [c for _, _, c in middle.trace] + [middle.cost]
        axes.step(times, costs, where="post", label=f"{method}: {middle.cost}")
    axes.set(xscale="log", xlabel="seconds", ylabel="multiplications", title=name)
    axes.legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=120, bbox_inches="tight")
    plt.close(figure)
