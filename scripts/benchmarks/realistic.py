"""Functions that people differentiate: tuned, default and reverse forms beside JAX's modes."""

from __future__ import annotations

import importlib.util
import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.case import Case
from scripts.benchmarks.functions.register import SETS
from scripts.benchmarks.programs import MODES, Timings, at_batch, compiled
from scripts.benchmarks.tables import Table, named
from veenv.measure.timing import machine
from veenv.orders.documents import write_text

FORMS = ("tune", "auto", "reverse")
Row = dict[str, Any]


def realistic(
    sets: tuple[str, ...] = ("realistic",),
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256),
    budget: str = "6s",
    seconds: float = 0.5,
    memory: float = 3.0,
    file: str | None = None,
    figures: Path = Path("benchmark-results/realistic-figures.json"),
) -> Iterator[Table]:
    """Ratios to the faster of JAX's two modes, of time and of trace + compile, for each function.

    All methods of a function at a batch are timed interleaved; a ratio is the median over the
    rounds of the method's time to that of the faster mode in the same round. `tune` is what
    `veenv.tune` returned, timed again beside the others; `auto` is
    ``jacve(f)``; `reverse` is ``jacve(f, "reverse")``. Compiling counts with the median of three
    times where it takes less than a second.

    It can be stopped and run again: rows that `figures` has are not measured anew.

    Args:
        sets: of functions, of `scripts/benchmarks/functions/register.py`.
        function: names of functions; all by default. Named ones are measured again.
        batch: numbers of points.
        budget: of `veenv.tune`.
        seconds: time after which the rounds for one function and batch end (at least five).
        memory: GiB that results may take; larger batches are left out.
        file: a Python file with a dictionary `F` of (function, arguments, argnums) by name, to
            measure instead of the sets.
        figures: file of all figures.
    """
    chosen = [SETS[name] for name in named(sets, SETS, "sets")]
    functions = from_file(file) if file else {n: case for one in chosen for n, case in one.items()}
    names = named(function, functions, "function")
    known = json.loads(figures.read_text("utf-8"))["rows"] if figures.exists() else []
    rows = {(row["function"], row["batch"]): row for row in known}
    compiled({"": veenv.jacve(jnp.sin, kernel="fused")}, (1.0,))  # loads what compiles
    columns = "function", "batch", "faster mode", "µs", *FORMS, "form of tune", "s"
    table = Table(*columns, f"compile: {FORMS[1]}", FORMS[2])
    yield table
    for name, size in itertools.product(names, batch):
        row = rows.get((name, size))
        if row is None or function:
            row = _row(functions[name], size, budget, seconds, memory * 2**30)
            if row is None:
                continue
            rows[name, size] = row
            whole = {"machine": machine(), "budget": budget, "rows": [*rows.values()]}
            write_text(figures, json.dumps(whole, indent=1) + "\n")
        ratios = (f"**{row['ratio'][m]:.2f}**" if m in row["ratio"] else "" for m in FORMS)
        cells = *ratios, row["form"], f"{row['tune_seconds']:.1f}"
        compiling = (f"{row['compile'][m]:.2f}" for m in FORMS[1:])
        table.add(name, size, row["faster"], f"{row['us']:,.1f}", *cells, *compiling)
    limits = 0.5, 1.03, 1.05
    yield (table := Table("batch", "form", "functions", *(f"≤ {x}" for x in limits), "worst"))
    for size, form in itertools.product(batch, FORMS):
        shown = [rows[name, size] for name in names if (name, size) in rows]
        ratio = {row["function"]: row["ratio"][form] for row in shown if form in row["ratio"]}
        if ratio:
            worst = max(ratio, key=lambda name: ratio[name])
            counts = (sum(x <= limit for x in ratio.values()) for limit in limits)
            table.add(size, form, len(ratio), *counts, f"{worst} {ratio[worst]:.2f}")


def from_file(path: str) -> dict[str, Case]:
    """The dictionary `F` of a Python file; argnums may be left out.

    Raises:
      ValueError: it has none.
    """
    spec = importlib.util.spec_from_file_location("functions", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ValueError(f"--file {path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, "F", None)
    if not isinstance(found, dict):
        raise ValueError(f"--file {path}: expected a dictionary F")
    return {name: Case(name, *entry) for name, entry in found.items()}


def _row(case: Case, size: int, budget: str, seconds: float, memory: float) -> Row | None:
    """The figures of a function at a batch; None where the results take too much memory."""
    name, fun, args, argnums = case
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
    taken = time.perf_counter() - began
    for thread in threading.enumerate():  # a compilation that tune has left behind
        if thread.name.startswith("veenv"):
            thread.join()
    ready = programs | compiled(at_batch({"tune": tuned}, size), points)
    # a mode that takes too much memory is not the faster one
    timed = Timings({m: p for m, p in ready.items() if p.bytes <= 2 * memory}, points, seconds)
    return {
        "function": name,
        "batch": size,
        "faster": timed.mode,
        "tune_seconds": taken,
        "us": float(np.median(timed.faster)) * 1e6,
        "form": tuned.form,
        "ratio": {m: timed.ratio(m) for m in FORMS if m in timed.times},
        "compile": {m: programs[m].compile / programs[timed.mode].compile for m in FORMS[1:]},
    }
