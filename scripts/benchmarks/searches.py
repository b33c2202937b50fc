"""Searches for orders: whether they keep their budgets of seconds, and graphs of thousands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import veenv
from scripts.benchmarks.cases import Case, find
from scripts.benchmarks.tables import Table, geometric_mean
from veenv.agents.policy import policy_orders
from veenv.env.rewards import classical_cost
from veenv.graph.graph import Graph
from veenv.search import search
from veenv.tasks import RandomFunctions
from veenv.tasks.evaluation_sets import FIRST_TEST_SEED

ROOT = Path(__file__).parents[2]
CASES = (
    ("RoeFlux_1d", "auto", "multiplications", 2.0),
    ("RoeFlux_1d", "auto", "multiplications", 10.0),
    ("RoeFlux_1d", "markowitz", "multiplications", 10.0),
    ("Encoder", "auto", "multiplications", 10.0),
    ("random-1000", "auto", "multiplications", 10.0),
    ("random-arrays-1000", "anneal", "executed", 10.0),
    ("random-3000", "auto", "multiplications", 10.0),
    ("RoeFlux_1d", "policy", "multiplications", 20.0),
    ("random-1000", "policy", "multiplications", 20.0),
)
"""Function, method, cost and seconds of each search."""


def searches(
    parts: tuple[Literal["budgets", "large"], ...] = ("budgets",),
    only: str = "",
    calls: int = 2,
    sizes: tuple[int, ...] = (3000, 10_000),
    seconds: tuple[float, ...] = (60.0, 300.0),
    functions: int = 10,
    methods: tuple[str, ...] = ("anneal", "auto"),
) -> Iterator[Table]:
    """Wall time from call to return of searches, and what they find on large graphs.

    Args:
        parts: `budgets`: each row is a process with an empty cache of compiled kernels, which ends
            when the compilations that are under way do; `large`: a greedy game of the policy, and
            searches at equal time, of which the last one is compared with the others.
        only: rows of `budgets` whose function or method holds this text.
        calls: of each process of `budgets`.
        sizes: numbers of vertices of `large`.
        seconds: time of each search there, one for each size.
        functions: random functions of each size.
        methods: the searches there.
    """
    if "budgets" in parts:
        yield from _budgets(only, calls)
    if "large" in parts:
        for size, budget in zip(sizes, seconds, strict=True):
            yield from _large(size, budget, functions, methods)


def _budgets(only: str, calls: int) -> Iterator[Table]:
    columns = "function", "method", "cost", "budget, s", "call to return, s", "counts", "kept"
    table = Table(*columns, "process ends, s")
    yield table
    for case in CASES:
        if not any(only in text for text in case[:2]):
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", __name__, json.dumps(case), str(calls)]
            env = os.environ | {"NUMBA_CACHE_DIR": folder}
            done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
        whole = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"{case}: {done.stderr}")
        measured, limit = json.loads(done.stdout), max(case[-1] + 1.0, 1.1 * case[-1])
        spent = ", ".join(f"{seconds:.2f}" for seconds in measured["seconds"])
        counts = ", ".join(f"{count:,}" for count in measured["counts"])
        in_time = "yes" if max(measured["seconds"]) <= limit else "NO"
        end = f"{whole - measured['until_end']:.1f}"
        table.add(*case[:3], f"{case[-1]:g}", spent, counts, in_time, end)


def measure(case: tuple[str, str, Any, float], calls: int) -> dict[str, list[float] | float]:
    """Returns seconds and counts of calls in this process, and how long it has lived."""
    began = time.perf_counter()
    name, method, cost, budget = case
    _, fun, args, argnums = random_case(name) if name.startswith("random-") else find(name)
    seconds, counts = [], []
    for seed in range(calls):
        start = time.perf_counter()
        how: Any = {"budget": f"{budget:g}s", "method": method, "cost": cost, "seed": seed}
        order = veenv.optimize(fun, *args, argnums=argnums, **how)
        seconds.append(time.perf_counter() - start)
        counts.append(order.counts[cost])
    return {"seconds": seconds, "counts": counts, "until_end": time.perf_counter() - began}


def random_case(name: str) -> Case:
    """Returns a random function of so many vertices as its name ends with."""
    size, arrays = int(name.rpartition("-")[2]), 0.5 * ("arrays" in name)
    family = RandomFunctions(vertices=(size, size), inputs=(10, 10), outputs=(5, 5), arrays=arrays)
    fun, point = family.draw((0,))
    return Case(name, fun, point, tuple(range(len(point))))


def _wide(vertices: int, index: int) -> Graph:
    """The graph of a random function of 8 to 64 inputs and outputs."""
    family = RandomFunctions(vertices=(vertices, vertices), inputs=(8, 64), outputs=(8, 64))
    fun, point = family.draw([FIRST_TEST_SEED, index])
    return veenv.make_graph(fun, tuple(range(len(point))))(*point)


def _large(size: int, seconds: float, functions: int, methods: tuple[str, ...]) -> Iterator[Table]:
    graph = _wide(500, 0)  # so that all is compiled
    next(policy_orders(graph, "multiplications", 0))
    for how in methods:
        search(graph, how, budget=1000)
    names = [f"`{method}`" for method in methods]
    columns = "set", "function", "vertices", "best classical", "policy, greedy", "game, seconds"
    yield (table := Table(*columns, *names))
    games, rows = [], []
    for index in range(functions):
        graph, began = _wide(size, index), time.perf_counter()
        order = next(policy_orders(graph, "multiplications", 0))
        games.append(time.perf_counter() - began)
        rows.append([search(graph, how, budget=f"{seconds}s").cost for how in methods])
        counts = classical_cost(graph, "multiplications"), graph.cost(order)
        sizes = f"wide {index}", len(graph.eliminable)
        table.add("wide", *sizes, *counts, f"{games[-1]:.2f}", *rows[-1])
    columns = "set", "vertices", "seconds of a search", "longest game, s", f"{names[-1]} against"
    yield (table := Table(*columns, "cheaper on", "ratio, geometric mean"))
    costs = np.array(rows, float)
    for k, other in enumerate(names[:-1]):
        ratio = costs[:, -1] / costs[:, k]
        cheaper = f"{np.sum(ratio < 1)} of {len(ratio)}"
        means = cheaper, f"{geometric_mean(ratio):.3f}"
        table.add("wide", size, f"{seconds:g}", f"{max(games):.2f}", other, *means)


if __name__ == "__main__":
    jax.devices()  # what JAX takes to start is not the search's
    print(json.dumps(measure(json.loads(sys.argv[1]), int(sys.argv[2]))))
