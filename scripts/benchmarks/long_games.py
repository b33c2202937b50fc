"""Graphs of thousands of vertices: greedy games of the policy, and searches at equal time."""

from __future__ import annotations

import time
from typing import Literal

import numpy as np

from agents.policy import policy_orders
from scripts.benchmarks.functions.large import large_graph
from scripts.benchmarks.machine import machine
from veenv.env.rewards import classical_cost
from veenv.graph.graph import Graph
from veenv.search import search

Set = Literal["wide", "narrow", "structured"]


def long_games(
    sizes: tuple[int, ...] = (1000, 3000, 10_000),
    seconds: tuple[float, ...] = (30.0, 60.0, 300.0),
    sets: tuple[Set, ...] = ("wide",),
    functions: int = 10,
    first: int = 0,
    methods: tuple[str, ...] = ("anneal", "regions", "auto"),
    seed: int = 0,
) -> None:
    """A greedy game, and what each search finds; the last method is compared with the others.

    Args:
        sizes: numbers of vertices.
        seconds: time of each search, one for each size.
        sets: random functions of 8 to 64 inputs and outputs ("wide"), of few ("narrow"), or
            unrolled loops ("structured").
        functions: functions of each set and size.
        first: number of the first of them in its set.
        methods: the searches: annealing alone, by regions, and by regions from the policy's order.
        seed: of the searches.
    """
    _compile(methods)
    names = [f"`{method}`" for method in methods]
    print(
        f"{machine()}\n\n| set | function | vertices | best classical | policy, greedy "
        f"| game, seconds | {' | '.join(names)} |\n| --- | --- |{' ---: |' * (4 + len(names))}"
    )
    rows: dict[tuple[str, int, float], list[tuple[float, list[int]]]] = {}
    for size, budget in zip(sizes, seconds, strict=True):
        for name in sets:
            for index in range(first, first + functions):
                title, graph = large_graph(name, size, index)
                row = _row(title, graph, budget, methods, seed, name)
                rows.setdefault((name, size, budget), []).append(row)
    _summary(rows, methods)


def _row(
    title: str, graph: Graph, budget: float, methods: tuple[str, ...], seed: int, name: str
) -> tuple[float, list[int]]:
    """Prints a row; the seconds of the greedy game, and the costs by method."""
    classical = classical_cost(graph, "multiplications")
    began = time.perf_counter()
    order = next(policy_orders(graph, "multiplications", seed))
    game = time.perf_counter() - began
    costs = [search(graph, how, budget=f"{budget}s", seed=seed).cost for how in methods]
    cells = [f"{cost:,}" for cost in costs]
    print(
        f"| {name} | {title} | {len(graph.eliminable):,} | {classical:,} | {graph.cost(order):,} "
        f"| {game:.2f} | {' | '.join(cells)} |",
        flush=True,
    )
    return game, costs


def _summary(
    rows: dict[tuple[str, int, float], list[tuple[float, list[int]]]], methods: tuple[str, ...]
) -> None:
    """The last method against each of the others, by set and size."""
    last = methods[-1]
    print(
        f"\n| set | vertices | seconds of a search | longest game, s | `{last}` against "
        "| cheaper on | ratio, geometric mean |\n| --- | ---: | ---: | ---: | --- | ---: | ---: |"
    )
    for (name, size, budget), found in rows.items():
        games, costs = [game for game, _ in found], np.array([row for _, row in found], float)
        for k, other in enumerate(methods[:-1]):
            ratio = np.maximum(costs[:, -1], 1.0) / np.maximum(costs[:, k], 1.0)
            print(
                f"| {name} | {size:,} | {budget:g} | {max(games):.2f} | `{other}` "
                f"| {np.sum(ratio < 1)} of {len(ratio)} | {np.exp(np.log(ratio).mean()):.3f} |"
            )


def _compile(methods: tuple[str, ...]) -> None:
    """Has everything compiled that is timed later."""
    _, graph = large_graph("wide", 500, 0)
    next(policy_orders(graph, "multiplications", 0))
    for how in methods:
        search(graph, how, budget=1000)
