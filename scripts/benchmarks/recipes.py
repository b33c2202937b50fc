"""Whole solutions with sparse Jacobians, in seconds: the recipes of docs/sparse.md and others'."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from scripts.benchmarks.functions import solved as problems
from scripts.benchmarks.functions.solved import Problem
from scripts.benchmarks.markdown_table import Row, has, header, line
from scripts.benchmarks.recipe_variants import Solve, Ways, adjust, implicit, integrate, newton

COLUMNS = ("problem", "ratio", "way", "first", "seconds", "took", "off by")
"""The ratio is to the fastest way without veenv."""


_LONG = 5.0
"""Seconds after which a way is not run again."""


class Recipe(NamedTuple):
    """A problem and the ways to solve it.

    Attributes:
      problem: makes it, of the number of unknowns.
      ways: makes the ways.
      size: number of unknowns that is measured.
      small: number of unknowns that `--quick` takes.
    """

    problem: Callable[[int], Problem]
    ways: Callable[[Problem], Ways]
    size: int
    small: int


RECIPES = {
    "solve_ivp, Brusselator 1-D": Recipe(
        problems.brusselator_line, lambda p: integrate(p, (0, 10)), 800, 40
    ),
    "solve_ivp, Brusselator 2-D": Recipe(
        problems.brusselator_grid, lambda p: integrate(p, (0, 11.5)), 800, 32
    ),
    "Newton on a line": Recipe(
        problems.phase_line, lambda p: newton(p, symmetric=True), 100_000, 200
    ),
    "Newton on a grid": Recipe(
        problems.phase_grid, lambda p: newton(p, symmetric=True), 100_000, 200
    ),
    "bundle adjustment": Recipe(problems.cameras, adjust, 990, 120),
    "Newton, hyperelastic hexahedra": Recipe(
        problems.elastic, lambda p: newton(p, symmetric=True), 3000, 81
    ),
    "pose graph": Recipe(problems.pose_graph, lambda p: adjust(p, by_scipy=False), 3000, 60),
    "diffrax Kvaerno5, Brusselator 1-D": Recipe(
        problems.brusselator_line, lambda p: implicit(p, 0.5), 800, 40
    ),
    "diffrax Kvaerno5, Brusselator 2-D": Recipe(
        problems.brusselator_grid, lambda p: implicit(p, 0.02), 800, 32
    ),
}


def recipes(names: tuple[str, ...], repeats: int, *, small: bool = False) -> list[Row]:
    """Prints, for each problem, the seconds of each way to solve it.

    The first solution of a way is timed with all its preparation: compilation, colouring. Then the
    ways are run in turn. The error is the largest difference from the solution of the first way, in
    proportion to its largest number; of an adjustment it is that of the cost.

    Args:
      names: of `RECIPES`.
      repeats: solutions of each way after the first, fewer of slow ways; the median is shown.
      small: solve for few unknowns: whether all of it works.
    """
    header(COLUMNS)
    rows, absent = [], []
    for name in names:
        recipe = RECIPES[name]
        size = recipe.small if small else recipe.size
        found, missing = _measured(recipe.ways(recipe.problem(size)), repeats)
        others = [row["seconds"] for row in found if "veenv" not in row["way"]]
        for row in found:
            if others:
                row["ratio"] = f"{row['seconds'] / min(others):.2f}"
            rows.append({"problem": f"{name}, {size:,}"} | row)
            line(rows[-1], COLUMNS)
        absent += [f"{name} by {way} (needs {modules})" for way, modules in missing.items()]
    if absent:
        print(f"\nNot measured: {'; '.join(absent)}.", flush=True)
    return rows


def _measured(ways: Ways, repeats: int) -> tuple[list[Row], dict[str, str]]:
    """Rows of the ways that can be measured, and what the others need."""
    missing = {w: ", ".join(needs) for w, (needs, _) in ways.items() if not all(map(has, needs))}
    rows: list[Row] = []
    solvers: list[Solve] = []
    reference: Any = None
    for way, (needs, prepare) in ways.items():
        if way in missing:
            continue
        for module in needs:
            importlib.import_module(module)
        start = time.perf_counter()
        try:
            solve = prepare()
        except NotImplementedError:  # asdex, of a primitive that it does not know
            missing[way] = "a pattern of each primitive"
            continue
        value, took = solve()
        solvers.append(solve)
        first = round(time.perf_counter() - start, 3)
        reference = value if reference is None else reference
        off = float(np.max(np.abs(value - reference)) / np.max(np.abs(reference)))
        rows.append({"way": way, "first": first, "took": took, "off by": f"{off:.1e}"})
    times: list[list[float]] = [[] for _ in solvers]
    for _ in range(repeats):
        for solve, seconds in zip(solvers, times, strict=True):
            if sum(seconds) > _LONG:
                continue
            start = time.perf_counter()
            solve()
            seconds.append(time.perf_counter() - start)
    for row, seconds in zip(rows, times, strict=True):
        row["seconds"] = round(float(np.median(seconds)), 4)
    return rows, missing
