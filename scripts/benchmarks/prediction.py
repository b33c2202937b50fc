"""Measures forms of Jacobians and fits the numbers of `veenv.kernel.price`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import veenv
from scripts.benchmarks.functions.case import Case
from scripts.benchmarks.functions.fitted import FITTED
from scripts.benchmarks.functions.realistic import FUNCTIONS
from scripts.benchmarks.prices import FILE, Measured, chosen, fitted, read, write
from scripts.benchmarks.programs import MODES, Timings, at_batch, compiled
from scripts.benchmarks.realistic import from_file
from scripts.benchmarks.tables import Table, geometric_mean, named, spearman
from veenv.graph.program import normalise_argnums
from veenv.kernel.cpu.spans import size_of
from veenv.kernel.fusing import trace_point
from veenv.kernel.price import MICROSECONDS, counts_of, kernel_counts
from veenv.kernel.scalar_program import CannotFuseError, ScalarProgram
from veenv.measure.timing import machine
from veenv.rules import walk

_LARGEST_KERNEL = 10_000
_ORDERS = ("reverse", "markowitz")


def prediction(
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256),
    seconds: float = 0.5,
    file: str | None = None,
    measure: bool = True,
    measurements: Path = FILE,
) -> Iterator[Table]:
    """Fits the price of a program to measurements; float32.

    Measured are JAX's two modes and `jacve` under two orders, by XLA and as one kernel. The fit
    minimises relative errors, and what the measurements leave open stays as it was. The
    measurements are kept: a later run replaces those of the same function, form and batch, so that
    it can be made in parts. The numbers go into `veenv/kernel/price.py`; a test compares them.

    Args:
        function: names of functions; all of `realistic` and those of `fitted.py` by default.
        batch: numbers of points.
        seconds: of timing for each function and batch.
        file: a Python file as for `realistic`.
        measure: measure, or only count anew what has been measured, and fit.
        measurements: the file of measurements.
    """
    functions = FUNCTIONS | FITTED if file is None else from_file(file)
    known = read(measurements if measurements.exists() else FILE)
    rows = {(r.function, r.form, r.batch): r for r in known}
    table = Table("measured", "batch")
    yield table
    for name in named(function, functions, "function"):
        for size in batch:
            for row in _rows(functions[name], size, seconds if measure else 0.0):
                key = row.function, row.form, row.batch
                if measure:
                    rows[key] = row
                elif key in rows:
                    times = {"seconds": rows[key].seconds, "compile": rows[key].compile}
                    rows[key] = replace(row, **times)
            _write(measurements, [*rows.values()])
            table.add(name, size)
    costs, rank, ratio = _write(measurements, [*rows.values()])
    table = Table("number", "microseconds")
    yield table
    for name, each in costs.items():
        table.add(name, f"{each:.3g}")
    print(f"\n{len(rows)} programs: Spearman {rank:.3f}, chosen {ratio:.3f} of the fastest")


def _rows(case: Case, size: int, seconds: float) -> Iterator[Measured]:
    """What is counted of a function's forms at a batch, measured if there are seconds for it."""
    forms = {name: (jacobian, program, n) for name, jacobian, program, n in _forms(case)}
    points, ready, timed = case.points(size), {}, None
    if seconds:
        methods = {form: jacobian for form, (jacobian, _, _) in forms.items()}
        ready = compiled(at_batch(methods, size), points)
        timed = Timings(ready, points, seconds)
    for form, (jacobian, program, equations) in forms.items():
        if program is None:
            fixed, each = counts_of(jax.make_jaxpr(jacobian)(*case.args), points=size)
        else:
            fixed, each = kernel_counts(program)
        measured = float(f"{np.quantile(timed.times[form], 0.25):.4g}") if timed else 0.0
        took = float(f"{ready[form].compile:.4g}") if ready else 0.0
        length = 0 if program is None else size_of(program)
        counts = (fixed + size * each).round(4).tolist()
        yield Measured(case.name, form, size, counts, measured, took, equations, length)


def _forms(case: Case) -> Iterator[tuple[str, Callable[..., Any], ScalarProgram | None, int]]:
    """Name and function of each form, its scalar program if it is one kernel, its equations."""
    _, fun, args, argnums = case

    def equations(jacobian: Callable[..., Any]) -> int:
        jaxpr = jax.make_jaxpr(jacobian)(*args)
        return len(walk.equations(walk.part_of(jaxpr)))

    for mode, make in MODES.items():
        yield mode, make(fun, argnums), None, equations(make(fun, argnums))
    graph = veenv.make_graph(fun, argnums)(*args)
    for order in _ORDERS:
        ids = graph.legal(graph.markowitz() if order == "markowitz" else graph.reverse())
        jacobian = veenv.jacve(fun, ids, argnums, kernel="xla")
        yield order, jacobian, None, equations(jacobian)
        wanted = normalise_argnums(argnums, len(args))
        plain = veenv.jacve(fun, ids, argnums, kernel="xla", pin=False)
        try:
            program = trace_point(plain, args, {}, wanted).program(_LARGEST_KERNEL)
        except CannotFuseError:
            continue
        fused = veenv.jacve(fun, ids, argnums, kernel="fused")
        yield f"{order}, one kernel", fused, program, equations(plain)


def _write(out: Path, rows: list[Measured]) -> tuple[dict[str, float], float, float]:
    """Fits and writes; gives numbers, rank correlation, time of the cheapest by the fastest."""
    costs = fitted(rows)
    predicted = [float(np.dot([*costs.values()], row.counts)) for row in rows]
    rank = spearman(predicted, [row.seconds for row in rows])
    ratio = geometric_mean(chosen(rows, costs))
    notes = {"microseconds": costs, "spearman": round(rank, 4), "chosen": round(ratio, 4)}
    write(out, rows, machine=machine(), **notes)
    assert costs.keys() == MICROSECONDS.keys()
    return costs, rank, ratio
