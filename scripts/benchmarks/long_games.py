"""Graphs of thousands of vertices: greedy games of the policy, and searches at equal time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Literal

import numpy as np

from scripts.benchmarks.functions.large import large_graph
from scripts.benchmarks.tables import Table, geometric_mean
from veenv.agents.policy import policy_orders
from veenv.env.rewards import classical_cost
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
) -> Iterator[Table]:
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
    _, graph = large_graph("wide", 500, 0)  # so that all is compiled
    next(policy_orders(graph, "multiplications", 0))
    for how in methods:
        search(graph, how, budget=1000)
    names = [f"`{method}`" for method in methods]
    columns = "set", "function", "vertices", "best classical", "policy, greedy", "game, seconds"
    table = Table(*columns, *names)
    yield table
    rows: dict[tuple[str, int, float], list[tuple[float, list[int]]]] = {}
    for size, budget in zip(sizes, seconds, strict=True):
        for name, index in itertools.product(sets, range(first, first + functions)):
            title, graph = large_graph(name, size, index)
            began = time.perf_counter()
            order = next(policy_orders(graph, "multiplications", seed))
            game = time.perf_counter() - began
            costs = [search(graph, how, budget=f"{budget}s", seed=seed).cost for how in methods]
            known = classical_cost(graph, "multiplications"), graph.cost(order)
            table.add(name, title, len(graph.eliminable), *known, f"{game:.2f}", *costs)
            rows.setdefault((name, size, budget), []).append((game, costs))
    columns = "set", "vertices", "seconds of a search", "longest game, s", f"{names[-1]} against"
    table = Table(*columns, "cheaper on", "ratio, geometric mean")
    yield table
    for (name, size, budget), found in rows.items():
        longest, costs = max(game for game, _ in found), np.array([row for _, row in found], float)
        for k, other in enumerate(names[:-1]):
            ratio = np.maximum(costs[:, -1], 1.0) / np.maximum(costs[:, k], 1.0)
            mean = f"{geometric_mean(ratio):.3f}"
            cheaper = f"{np.sum(ratio < 1)} of {len(ratio)}"
            table.add(name, size, f"{budget:g}", f"{longest:.2f}", other, cheaper, mean)
