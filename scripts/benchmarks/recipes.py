"""Whole solutions with sparse Jacobians, in seconds: the recipes of docs/sparse.md and others'."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from scripts.benchmarks.functions import solved as problems
from scripts.benchmarks.functions.solved import SolverProblem
from scripts.benchmarks.programs import difference
from scripts.benchmarks.recipe_variants import Solve, Ways, adjust, implicit, integrate, newton
from scripts.benchmarks.tables import Table, has
from veenv.measure.timing import interleaved

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

    problem: Callable[[int], SolverProblem]
    ways: Callable[[SolverProblem], Ways]
    size: int
    small: int


RECIPES = {
    name: Recipe(problem, ways, size, small)
    for name, problem, ways, size, small in (
        ("solve_ivp, Brusselator 1-D", problems.brusselator_line,
         lambda p: integrate(p, (0, 10)), 800, 40),
        ("solve_ivp, Brusselator 2-D", problems.brusselator_grid,
         lambda p: integrate(p, (0, 11.5)), 800, 32),
        ("Newton on a line", problems.phase_line, newton, 100_000, 200),
        ("Newton on a grid", problems.phase_grid, newton, 100_000, 200),
        ("bundle adjustment", problems.cameras, adjust, 990, 120),
        ("Newton, hyperelastic hexahedra", problems.elastic, newton, 3000, 81),
        ("pose graph", problems.pose_graph, lambda p: adjust(p, by_scipy=False), 3000, 60),
        ("diffrax Kvaerno5, Brusselator 1-D", problems.brusselator_line,
         lambda p: implicit(p, 0.5), 800, 40),
        ("diffrax Kvaerno5, Brusselator 2-D", problems.brusselator_grid,
         lambda p: implicit(p, 0.02), 800, 32),
    )
}  # fmt: skip


def recipes(names: tuple[str, ...], repeats: int, *, small: bool = False) -> Iterator[Table]:
    """For each problem, the seconds of each way to solve it.

    The first solution of a way is timed with all its preparation: compilation, colouring. Then the
    ways are run in turn. The ratio is to the fastest way without veenv. The error is the largest
    difference from the solution of the first way, in proportion to its largest number; of an
    adjustment it is that of the cost.

    Args:
      names: of `RECIPES`.
      repeats: solutions of each way after the first, fewer of slow ways; the median is shown.
      small: solve for few unknowns: whether all of it works.
    """
    table = Table("problem", "ratio", "way", "first", "seconds", "took", "off by")
    yield table
    absent = []
    for name in names:
        recipe = RECIPES[name]
        size = recipe.small if small else recipe.size
        ways = recipe.ways(recipe.problem(size))
        absent_of = {way: [m for m in needs if not has(m)] for way, (needs, _) in ways.items()}
        missing = {way: ", ".join(modules) for way, modules in absent_of.items() if modules}
        found = [
            one
            for way, (needs, prepare) in ways.items()
            if way not in missing and (one := _first(way, needs, prepare, missing)) is not None
        ]
        solvers = {one.way: one.solve for one in found}
        times = interleaved(solvers, (), repeats, _LONG, fewest=0)
        seconds = {way: round(float(np.median(t)), 4) for way, t in times.items()}
        others = [seconds[way] for way in seconds if "veenv" not in way]
        for way, _, value, took, first in found:
            off = difference(value, found[0].value)
            ratio = f"{seconds[way] / min(others):.2f}" if others else "–"
            cells = str(first), str(seconds[way]), took, f"{off:.1e}"
            table.add(f"{name}, {size:,}", ratio, way, *cells)
        absent += [f"{name} by {way} (needs {modules})" for way, modules in missing.items()]
    if absent:
        print(f"\nNot measured: {'; '.join(absent)}.", flush=True)


class _Solved(NamedTuple):
    way: str
    solve: Solve
    value: Any
    took: str
    first: float


def _first(
    way: str, needs: Sequence[str], prepare: Callable[[], Solve], missing: dict[str, str]
) -> _Solved | None:
    """The first solution; None, and why, where there is none."""
    for module in needs:
        importlib.import_module(module)
    start = time.perf_counter()
    try:
        solve = prepare()
    except NotImplementedError:  # asdex, of a primitive that it does not know
        missing[way] = "a pattern of each primitive"
        return None
    value, took = solve()
    return _Solved(way, solve, value, took, round(time.perf_counter() - start, 3))
