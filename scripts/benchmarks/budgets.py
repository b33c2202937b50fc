"""Wall time from call to return of searches with a budget of seconds, on a fresh cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax

import veenv
from scripts.benchmarks.cases import Case, find
from scripts.benchmarks.tables import Table
from veenv.tasks import RandomFunctions

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


def budgets(only: str = "", calls: int = 2) -> Iterator[Table]:
    """Budgets, and what calls of `veenv.optimize` took by the clock.

    Every row is a process of its own with an empty cache of compiled kernels, and all its calls
    are made there, so that the first is what a new checkout sees.  The time until the process has
    ended is shown besides: a compilation that is under way has to end first.

    Args:
        only: rows whose function or method holds this text; all by default.
        calls: calls in each process.
    """
    columns = "function", "method", "cost", "budget, s", "call to return, s", "counts", "kept"
    table = Table(*columns, "process ends, s")
    yield table
    for case in CASES:
        if not any(only in text for text in case[:2]):
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", __name__, json.dumps(case), str(calls)],
                env=os.environ | {"NUMBA_CACHE_DIR": folder},
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        whole = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"{case}: {done.stderr}")
        found, seconds = json.loads(done.stdout), case[-1]
        kept = all(spent <= max(seconds + 1.0, 1.1 * seconds) for spent in found["seconds"])
        spent = ", ".join(f"{spent:.2f}" for spent in found["seconds"])
        counts = ", ".join(f"{count:,}" for count in found["counts"])
        end = f"{whole - found['until_end']:.1f}"
        table.add(*case[:3], f"{seconds:g}", spent, counts, "yes" if kept else "NO", end)


def measure(case: tuple[str, str, str, float], calls: int) -> dict[str, list[float] | float]:
    """Seconds and counts of calls, in this process; and how long it has lived."""
    began = time.perf_counter()
    name, method, cost, budget = case
    _, fun, args, argnums = function(name)
    seconds, counts = [], []
    for seed in range(calls):
        start = time.perf_counter()
        order = veenv.optimize(
            fun,
            *args,
            argnums=argnums,
            budget=f"{budget:g}s",
            method=method,
            cost=cost,  # pyright: ignore[reportArgumentType]
            seed=seed,
        )
        seconds.append(time.perf_counter() - start)
        counts.append(order.counts[cost])
    return {"seconds": seconds, "counts": counts, "until_end": time.perf_counter() - began}


def function(name: str) -> Case:
    """A task's function, or a random one of so many vertices."""
    if not name.startswith("random-"):
        return find(name)
    size = int(name.rpartition("-")[2])
    family = RandomFunctions(
        vertices=(size, size), inputs=(10, 10), outputs=(5, 5), arrays=0.5 * ("arrays" in name)
    )
    fun, point = family.draw((0,))
    return Case(name, fun, point, tuple(range(len(point))))


if __name__ == "__main__":
    jax.devices()  # what JAX takes to start is not the search's
    found = measure(json.loads(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(found))
