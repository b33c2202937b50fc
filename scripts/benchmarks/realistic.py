"""Functions that people differentiate: tuned, default and reverse forms beside JAX's modes."""

from __future__ import annotations

import itertools
import runpy
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.case import Case
from scripts.benchmarks.functions.realistic import REALISTIC
from scripts.benchmarks.programs import MODES, Timings, at_batch, compiled
from scripts.benchmarks.tables import Table, cell, named

FORMS = ("tune", "auto", "reverse")


def realistic(
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256),
    budget: str = "6s",
    seconds: float = 0.5,
    memory: float = 3.0,
    file: str | None = None,
) -> Iterator[Table]:
    """Ratios to the faster of JAX's two modes, of time and of trace + compile, for each function.

    All methods of a function at a batch are timed interleaved; a ratio is the median over the
    rounds of the method's time to that of the faster mode in the same round. `tune` is what
    `veenv.tune` returned, timed again beside the others; `auto` is
    ``jacve(f)``; `reverse` is ``jacve(f, "reverse")``. Compiling counts with the median of three
    times where it takes less than a second.

    It can be stopped and run again: rows that the results have are not measured anew.

    Args:
        function: names of functions; all by default. Named ones are measured again.
        batch: numbers of points.
        budget: of `veenv.tune`.
        seconds: time after which the rounds for one function and batch end (at least five).
        memory: GiB that results may take; larger batches are left out.
        file: a Python file with a dictionary `F` of (function, arguments, argnums) by name, to
            measure instead.
    """
    functions = from_file(file) if file else REALISTIC
    names = named(function, functions, "function")
    compiled({"": veenv.jacve(jnp.sin, kernel="fused")}, (1.0,))  # loads what compiles
    columns = "function", "batch", "faster mode", "µs", *FORMS, "form of tune", "s"
    table = Table(*columns, f"compile: {FORMS[1]}", FORMS[2], key=2)
    yield table
    done = [] if function else [row[:2] for row in table.known]
    for name, size in itertools.product(names, batch):
        if (name, cell(size)) not in done:
            row = _row(functions[name], size, budget, seconds, memory * 2**30)
            if row is not None:
                table.add(name, size, *row)
    rows = table.as_dict()["rows"]
    limits = 0.5, 1.03, 1.05
    yield (table := Table("batch", "form", "functions", *(f"≤ {x}" for x in limits), "worst"))
    for size, (k, form) in itertools.product(batch, enumerate(FORMS, 4)):
        shown = [row for row in rows if row[0] in names and row[1] == cell(size) and row[k]]
        ratio = {row[0]: float(row[k].strip("*")) for row in shown}
        if ratio:
            worst = max(ratio, key=lambda name: ratio[name])
            counts = (sum(x <= limit for x in ratio.values()) for limit in limits)
            table.add(size, form, len(ratio), *counts, f"{worst} {ratio[worst]:.2f}")


def from_file(path: str) -> dict[str, Case]:
    """The dictionary `F` of a Python file; argnums may be left out.

    Raises:
      ValueError: it has none.
    """
    if not Path(path).is_file():
        raise ValueError(f"--file {path}: no Python file")
    entries = runpy.run_path(path).get("F")
    if not isinstance(entries, dict):
        raise ValueError(f"--file {path}: expected a dictionary F")
    return {name: Case(name, *entry) for name, entry in entries.items()}


def _row(
    case: Case, size: int, budget: str, seconds: float, memory: float
) -> tuple[str, ...] | None:
    """Returns the cells of a function at a batch; None where results take too much memory."""
    _, fun, args, argnums = case
    result = jax.eval_shape(jax.jacrev(fun, argnums), *args)
    if size * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(result)) > memory:
        return None
    points = case.points(size)
    methods = {mode: make(fun, argnums) for mode, make in MODES.items()}
    methods["auto"] = veenv.jacve(fun, argnums=argnums)
    methods["reverse"] = veenv.jacve(fun, "reverse", argnums)
    programs = compiled(at_batch(methods, size), points, 3)
    began = time.perf_counter()
    batch = None if size == 1 else size
    tuned = veenv.tune(fun, *args, argnums=argnums, batch=batch, budget=budget, cache=False)
    seconds_of_tune = time.perf_counter() - began
    for thread in threading.enumerate():  # a compilation that tune has left behind
        if thread.name.startswith("veenv"):
            thread.join()
    ready = programs | compiled(at_batch({"tune": tuned}, size), points)
    # a mode that takes too much memory is not the faster one
    timed = Timings({m: p for m, p in ready.items() if p.bytes <= 2 * memory}, points, seconds)
    ratios = (f"**{timed.ratio(m):.2f}**" if m in timed.times else "" for m in FORMS)
    compiling = (f"{programs[m].compile / programs[timed.mode].compile:.2f}" for m in FORMS[1:])
    us = f"{1e6 * np.median(timed.faster):,.1f}"
    return timed.mode, us, *ratios, tuned.form, f"{seconds_of_tune:.1f}", *compiling
