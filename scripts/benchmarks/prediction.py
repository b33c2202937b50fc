"""Measures forms of Jacobians and fits the numbers of `veenv.kernel.price`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.models import MODELS
from scripts.benchmarks.functions.realistic import FUNCTIONS, Entry
from scripts.benchmarks.functions.recurrent import LOOPS
from scripts.benchmarks.machine import machine
from scripts.benchmarks.prices import FILE, Row, chosen, fitted, read, write
from scripts.benchmarks.realistic import compiled, from_file, named, timed
from scripts.benchmarks.realistic_plot import spearman
from veenv.engine.pins import part_of
from veenv.graph.program import normalise_argnums
from veenv.kernel.cpu.spans import size_of
from veenv.kernel.fusing import trace_point
from veenv.kernel.price import MICROSECONDS, counts_of, kernel_counts
from veenv.kernel.program import CannotFuseError, ScalarProgram
from veenv.measure.timing import near

_LARGEST_KERNEL = 10_000
_ORDERS = ("reverse", "markowitz")


def prediction(
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256),
    seconds: float = 0.5,
    file: str | None = None,
    measure: bool = True,
    out: Path = FILE,
) -> None:
    """Fits the price of a program to measurements; float32.

    Measured are JAX's two modes and `jacve` under two orders, by XLA and as one kernel. The fit
    minimises relative errors, and what the measurements leave open stays as it was. The
    measurements are kept: a later run replaces those of the same function, form and batch, so that
    it can be made in parts. The numbers go into `veenv/kernel/price.py`; a test compares them.

    Args:
        function: names of functions; all of `realistic`, of its models and some loops by default.
        batch: numbers of points.
        seconds: of timing for each function and batch.
        file: a Python file as for `realistic`.
        measure: measure, or only count anew what has been measured, and fit.
        out: the file of measurements.
    """
    functions = {**FUNCTIONS, **MODELS, **LOOPS} if file is None else from_file(file)
    rows = {(r.function, r.form, r.batch): r for r in read(out if out.exists() else FILE)}
    print(machine() + "\n\n| measured | batch |\n| --- | ---: |")
    for name in named(function, functions):
        for size in batch:
            for row in _rows(name, functions[name], size, seconds if measure else 0.0):
                key = row.function, row.form, row.batch
                if measure:
                    rows[key] = row
                elif key in rows:
                    known = rows[key]
                    rows[key] = replace(row, seconds=known.seconds, compile=known.compile)
            _write(out, [*rows.values()])
            print(f"| {name} | {size} |", flush=True)
    costs, rank, ratio = _write(out, [*rows.values()])
    print("\n| number | microseconds |\n| --- | ---: |")
    for name, each in costs.items():
        print(f"| {name} | {each:.3g} |")
    print(f"\n{len(rows)} programs: Spearman {rank:.3f}, chosen {ratio:.3f} of the fastest; {out}")


class _Form(NamedTuple):
    """A form of a Jacobian, its scalar program where it is one kernel, and its equations."""

    jacobian: Callable[..., Any]
    program: ScalarProgram | None
    equations: int


def _rows(name: str, entry: Entry, size: int, seconds: float) -> Iterator[Row]:
    """What is counted of a function's forms at a batch, measured if there are seconds for it."""
    fun, args, argnums = entry
    points = args if size == 1 else jax.tree.map(jnp.asarray, near(args, [0], size))
    forms = dict(_forms(fun, args, argnums))
    ready, times = {}, {}
    if seconds:
        ready = {
            form: compiled(jax.vmap(each.jacobian) if size > 1 else each.jacobian, points)
            for form, each in forms.items()
        }
        times = timed(ready, points, seconds)
    for form, (jacobian, program, equations) in forms.items():
        if program is None:
            fixed, each = counts_of(jax.make_jaxpr(jacobian)(*args), points=size)
        else:
            fixed, each = kernel_counts(program)
        measured = float(f"{np.quantile(times[form], 0.25):.4g}") if times else 0.0
        took = float(f"{ready[form].seconds:.4g}") if ready else 0.0
        length = 0 if program is None else size_of(program)
        counts = (fixed + size * each).round(4).tolist()
        yield Row(name, form, size, counts, measured, took, equations, length)


def _forms(
    fun: Callable[..., Any], args: tuple[Any, ...], argnums: Any
) -> Iterator[tuple[str, _Form]]:
    """The forms of a function, by name."""

    def equations(jacobian: Callable[..., Any]) -> int:
        jaxpr = jax.make_jaxpr(jacobian)(*args)
        return len(part_of(jaxpr, range(len(jaxpr.out_avals))).eqns)

    for mode, make in (("jacfwd", jax.jacfwd), ("jacrev", jax.jacrev)):
        yield mode, _Form(make(fun, argnums), None, equations(make(fun, argnums)))
    graph = veenv.make_graph(fun, argnums)(*args)
    for order in _ORDERS:
        ids = graph.legal(graph.markowitz() if order == "markowitz" else graph.reverse())
        jacobian = veenv.jacve(fun, ids, argnums, kernel="xla")
        yield order, _Form(jacobian, None, equations(jacobian))
        wanted = normalise_argnums(argnums, len(args))
        plain = veenv.jacve(fun, ids, argnums, kernel="xla", pin=False)
        try:
            program = trace_point(plain, args, {}, wanted).program(_LARGEST_KERNEL)
        except CannotFuseError:
            continue
        fused = veenv.jacve(fun, ids, argnums, kernel="fused")
        yield f"{order}, one kernel", _Form(fused, program, equations(plain))


def _write(out: Path, rows: list[Row]) -> tuple[dict[str, float], float, float]:
    """Fits and writes; gives numbers, rank correlation, time of the cheapest by the fastest."""
    costs = fitted(rows)
    predicted = [float(np.dot([*costs.values()], row.counts)) for row in rows]
    rank = spearman(predicted, [row.seconds for row in rows])
    ratio = float(np.exp(np.mean(np.log(chosen(rows, costs)))))
    notes = {"microseconds": costs, "spearman": round(rank, 4), "chosen": round(ratio, 4)}
    write(out, rows, machine=machine(), **notes)
    assert costs.keys() == MICROSECONDS.keys()
    return costs, rank, ratio
