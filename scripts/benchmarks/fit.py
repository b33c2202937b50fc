"""`benchmark.py fit`: measures programs, and fits the numbers by which veenv prices them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.stats import spearmanr

import veenv
from scripts.benchmarks.functions.case import Case
from scripts.benchmarks.functions.realistic import REALISTIC
from scripts.benchmarks.prices import FILE, Measured, chosen, fitted, read, write
from scripts.benchmarks.programs import MODES, Timings, at_batch, compiled
from scripts.benchmarks.tables import Table, geometric_mean, named
from veenv.graph.program import normalise_argnums
from veenv.kernel.fusing import fuse, trace_point
from veenv.kernel.price import counts_of, kernel_counts
from veenv.kernel.scalar_program import CannotFuseError, ScalarProgram
from veenv.measure.timing import interleaved, machine
from veenv.orders.documents import write_text
from veenv.rules.operations import FILE as WEIGHTS

_LARGEST_KERNEL = 10_000
_ORDERS = ("reverse", "markowitz")
_INPUTS = 8
_SHORTEST = 0.005
"""Seconds of a measurement."""
_CALLS = 24
"""How often an operation is done beyond what surrounds it."""
_AROUND = 60, 180
"""Steps, of two multiplications and an addition each, of the programs that give the unit."""
Unary = Callable[[Any], Any]

OPERATIONS: Mapping[str, Unary] = {
    "div": lambda x: (x + 0.1) / (x + 0.2),
    "sqrt": jnp.sqrt,
    "rem": lambda x: lax.rem(x + 1.3, x + 0.2),
    "select": lambda x: jnp.where(x + 0.1 > 0.5, x + 0.2, x),
    "max": lambda x: jnp.maximum(x + 0.1, 0.5),
    "floor": lambda x: jnp.floor(x + 0.1),
    "acosh": lambda x: lax.acosh(x + 1.1),
    "atan2": lambda x: lax.atan2(x + 0.1, x + 0.2),
    "pow": lambda x: lax.pow(x + 0.1, x + 0.2),
    "nextafter": lambda x: lax.nextafter(x + 0.1, x + 0.2),
    "sincos": lambda x: lax.sin(x) * lax.cos(x),
    **{
        name: getattr(lax, name)
        for name in (
            "exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh atanh "
            "cbrt erf erfc lgamma"
        ).split()
    },
}
"""For each operation a function that does it once."""
_BESIDE = {
    "div": 2, "rem": 2, "select": 2, "max": 1, "floor": 1, "acosh": 1, "atan2": 2, "pow": 2,
    "nextafter": 2, "sincos": 1,
}  # fmt: skip
"""Additions in these functions that are not what is measured."""


def fit(
    parts: tuple[Literal["prices", "weights"], ...] = ("prices",),
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256),
    points: int = 8192,
    seconds: float = 0.5,
    repeats: int = 25,
    measurements: Path = FILE,
    weights: Path = WEIGHTS,
) -> Iterator[Table]:
    """Measures and fits what programs and operations take, in float32; yields the tables.

    `prices` measures JAX's two modes and `jacve` under two orders, by XLA and as one kernel, and
    fits the numbers of `veenv/kernel/price.py`, which are copied there by hand, by relative errors;
    what the measurements leave open stays as it was. Measurements are kept: a later run replaces
    those of the same function, form and batch. `weights` measures divisions and functions within
    programs of multiplications and additions on one core, as the difference that twenty-four of
    them make. The unit is what one multiplication more takes there. Weights are medians, rounded.

    Args:
        parts: what is fitted.
        function: names of functions of `realistic` for `prices`; all by default.
        batch: numbers of points of `prices`.
        points: of a call of `weights`.
        seconds: of timing for each function and batch.
        repeats: measurements of each program of `weights`, interleaved.
        measurements: the file of measurements of `prices`.
        weights: the table of weights; the package reads its own.
    """
    if "prices" in parts:
        yield from _prices(function, batch, seconds, measurements)
    if "weights" in parts:
        yield from _weights(points, repeats, weights)


def _prices(
    function: tuple[str, ...], batch: tuple[int, ...], seconds: float, measurements: Path
) -> Iterator[Table]:
    known = read(measurements if measurements.exists() else FILE)
    rows = {(r.function, r.form, r.batch): r for r in known}
    table = Table("measured", "batch")
    yield table
    for name in named(function, REALISTIC, "function"):
        for size in batch:
            for row in _rows(REALISTIC[name], size, seconds):
                rows[row.function, row.form, row.batch] = row
            _write(measurements, [*rows.values()])
            table.add(name, size)
    costs, rank, ratio = _write(measurements, [*rows.values()])
    table = Table("number", "microseconds")
    yield table
    for name, each in costs.items():
        table.add(name, f"{each:.3g}")
    print(f"\n{len(rows)} programs: Spearman {rank:.3f}, chosen {ratio:.3f} of the fastest")


def _rows(case: Case, size: int, seconds: float) -> Iterator[Measured]:
    """Counts and measures the forms of a function at a batch."""
    forms = {name: (jacobian, program) for name, jacobian, program in _forms(case)}
    points = case.points(size)
    methods = {form: jacobian for form, (jacobian, _) in forms.items()}
    timed = Timings(compiled(at_batch(methods, size), points), points, seconds)
    for form, (jacobian, program) in forms.items():
        if program is None:
            fixed, each = counts_of(jax.make_jaxpr(jacobian)(*case.args), points=size)
        else:
            fixed, each = kernel_counts(program)
        measured = float(f"{np.quantile(timed.times[form], 0.25):.4g}")
        counts = (fixed + size * each).round(4).tolist()
        yield Measured(case.name, form, size, counts, measured)


def _forms(case: Case) -> Iterator[tuple[str, Callable[..., Any], ScalarProgram | None]]:
    """Name and function of each form, and its scalar program if it is one kernel."""
    _, fun, args, argnums = case
    for mode, make in MODES.items():
        yield mode, make(fun, argnums), None
    graph = veenv.make_graph(fun, argnums)(*args)
    for order in _ORDERS:
        ids = graph.legal(graph.markowitz() if order == "markowitz" else graph.reverse())
        yield order, veenv.jacve(fun, ids, argnums, kernel="xla"), None
        wanted = normalise_argnums(argnums, len(args))
        plain = veenv.jacve(fun, ids, argnums, kernel="xla", pin=False)
        try:
            program = trace_point(plain, args, {}, wanted).program(_LARGEST_KERNEL)
        except CannotFuseError:
            continue
        yield f"{order}, one kernel", veenv.jacve(fun, ids, argnums, kernel="fused"), program


def _write(out: Path, rows: list[Measured]) -> tuple[dict[str, float], float, float]:
    """Fits and writes; gives numbers, rank correlation, time of the cheapest by the fastest."""
    costs = fitted(rows)
    predicted = [float(np.dot([*costs.values()], row.counts)) for row in rows]
    agreement: Any = spearmanr(predicted, [row.seconds for row in rows])
    rank = float(agreement.statistic)
    ratio = geometric_mean(chosen(rows, costs))
    notes = {"microseconds": costs, "spearman": round(rank, 4), "chosen": round(ratio, 4)}
    write(out, rows, machine=machine(), **notes)
    return costs, rank, ratio


def _weights(batch: int, repeats: int, weights: Path) -> Iterator[Table]:
    if hasattr(os, "sched_setaffinity"):  # one thread, so that nothing waits for another
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    table = Table("operation", "weight")
    yield table
    rng = np.random.default_rng(0)
    points = [jnp.asarray(rng.uniform(0.2, 0.9, batch), jnp.float32) for _ in range(_INPUTS)]
    few, many = _AROUND
    methods = {str(n): _program(n, None) for n in (few, many)}
    methods["calls"] = _program(few, lambda x: x)
    methods |= {name: _program(few, operation) for name, operation in OPERATIONS.items()}
    runs = {name: program.run for name, program in compiled(methods, points).items()}
    seconds = interleaved(runs, points, repeats, shortest=_SHORTEST, clock=time.process_time)
    unit = np.median(seconds[str(many)] - seconds[str(few)]) / (3 * (many - few))
    by_operation = {}
    for name in OPERATIONS:
        more = np.median(seconds[name] - seconds["calls"]) / _CALLS
        by_operation[name] = max(1, round(float(more / unit)) - _BESIDE.get(name, 0))
        table.add(name, by_operation[name])
    document = {"machine": machine(), "unit_ns": unit / batch * 1e9, "weights": by_operation}
    write_text(weights, json.dumps(document, indent=1) + "\n")


def _program(steps: int, operation: Unary | None) -> Callable[..., Any]:
    """Means of earlier values, and the sum of an operation on some of them."""

    def fun(*inputs: Any) -> Any:
        rng = np.random.default_rng(1)
        values = list(inputs)
        for _ in range(steps):
            i, j = rng.integers(max(0, len(values) - 30), len(values), 2)
            share = float(rng.uniform(0.3, 0.7))
            values.append(values[int(i)] * share + values[int(j)] * (1.01 - share))
        total = values[-1] + values[-2]
        for k in range(_CALLS if operation else 0):
            assert operation is not None
            total = total + operation(values[-3 - k]) * (0.5 + k)
        return total

    return jax.vmap(fuse(fun))
