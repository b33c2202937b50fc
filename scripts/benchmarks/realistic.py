"""Functions that people differentiate: tuned, default and reverse forms beside JAX's modes."""

from __future__ import annotations

import importlib.util
import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.case import Case
from scripts.benchmarks.functions.realistic import FUNCTIONS
from scripts.benchmarks.prices import program_seconds
from scripts.benchmarks.programs import MODES, Timings, at_batch, compiled
from scripts.benchmarks.tables import Table, figure_of, named, spearman
from veenv.measure.timing import machine
from veenv.orders.documents import write_text

FORMS = ("tune", "auto", "reverse")
Row = dict[str, Any]


def realistic(
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256, 4096),
    budget: str = "6s",
    seconds: float = 1.5,
    memory: float = 3.0,
    minutes: float = 15.0,
    file: str | None = None,
    few: bool = False,
    fresh: bool = False,
    figures: Path = Path("docs/realistic.json"),
    plot: Path = Path("docs/realistic.svg"),
) -> Iterator[Table]:
    """Ratios to the faster of JAX's two modes, of time and of trace + compile, for each function.

    All methods of a function at a batch are timed interleaved; a ratio is the median over the
    rounds of the method's time to that of the faster mode in the same round. `tune` is what
    `veenv.tune` returned, timed again beside the others; `auto` is
    ``jacve(f)``; `reverse` is ``jacve(f, "reverse")``. Compiling counts with the median of three
    times where it takes less than a second. The plot has the ratios, and the predicted against the
    measured time of each program with their rank correlation.

    It can be run in parts: rows that `figures` has are kept, and what it lacks is measured.

    Args:
        function: names of functions; all by default. Named ones are measured again.
        batch: numbers of points.
        budget: of `veenv.tune`.
        seconds: time after which the rounds for one function and batch end (at least five).
        memory: GiB that results may take; larger batches are left out.
        minutes: time after which no other row is begun; run it again to go on.
        file: a Python file with a dictionary `F` of (function, arguments, argnums) by name, to
            measure instead of `scripts/benchmarks/functions/realistic.py`.
        few: three functions, and the first two batches.
        fresh: forget the rows that `figures` has.
        figures: file of all figures.
        plot: file of the plot.
    """
    end = time.monotonic() + 60 * minutes
    functions = FUNCTIONS if file is None else from_file(file)
    names = named(function, functions, "function")
    if few:
        names, batch = function or names[-3:], batch[:2]
    known = [] if fresh or not figures.exists() else json.loads(figures.read_text("utf-8"))["rows"]
    rows = {(row["function"], row["batch"]): row for row in known if row["function"] in functions}
    compiled({"": veenv.jacve(jnp.sin, kernel="fused")}, (1.0,))  # loads what compiles
    columns = "function", "batch", "faster mode", "µs", *FORMS, "form of tune", "s"
    table = Table(*columns, f"compile: {FORMS[1]}", FORMS[2])
    yield table
    place = list(functions)
    for name, size in itertools.product(names, batch):
        row = rows.get((name, size))
        if row is None or function:
            if time.monotonic() > end:
                print(f"{minutes:g} minutes are over; run this again for the rest")
                break
            row = _row(functions[name], size, budget, seconds, memory * 2**30)
            if row is None:
                continue
            rows[name, size] = row
            found = sorted(rows.values(), key=lambda r: (place.index(r["function"]), r["batch"]))
            whole = {"machine": machine(), "budget": budget, "rows": found}
            write_text(figures, json.dumps(whole, indent=1) + "\n")
            draw(found, plot)
        ratios = (f"**{row['ratio'][m]:.2f}**" if m in row["ratio"] else "" for m in FORMS)
        cells = *ratios, row["form"], f"{row['tune_seconds']:.1f}"
        compiling = (f"{row['compile'][m]:.2f}" for m in FORMS[1:])
        table.add(name, size, row["faster"], f"{row['us']:,.1f}", *cells, *compiling)
    shown = [rows[key] for key in itertools.product(names, batch) if key in rows]
    yield from _summary(shown)
    print(f"\npredicted against measured time: Spearman {rank_correlation(shown):.3f}")


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
    row: Row = {
        "function": name,
        "batch": size,
        "faster": timed.mode,
        "tune_seconds": taken,
        "us": float(np.median(timed.faster)) * 1e6,
        "form": tuned.form,
        "settled": tuned.record.settled,
        "tune_over_auto": timed.ratio("tune", "auto"),
        "ratio": {m: timed.ratio(m) for m in FORMS if m in timed.times},
        "compile": {m: programs[m].compile / programs[timed.mode].compile for m in FORMS[1:]},
        "temporary": {m: ready[m].bytes for m in timed.times},
        "measured": {m: timed.seconds(m) for m in timed.times},
        "predicted": {
            m: program_seconds(jax.make_jaxpr(methods[m])(*args), size)
            for m in methods
            if m in timed.times
        },
    }
    other = tuned.record.faster_mode
    if tuned.ratio is not None and other is not None and other.mode in timed.times:
        row["printed"] = {"then": tuned.ratio, "anew": timed.ratio("tune", other.mode)}
    return row


def _summary(rows: list[Row]) -> Iterator[Table]:
    """How many functions are within bounds by batch, and whether `tune` keeps what it says."""
    limits = 0.5, 1.03, 1.05
    table = Table("batch", "form", "functions", *(f"≤ {limit}" for limit in limits), "worst")
    yield table
    sizes = sorted({row["batch"] for row in rows})
    for size, form in itertools.product(sizes, FORMS):
        found = {r["function"]: r["ratio"][form] for r in rows
                 if r["batch"] == size and form in r["ratio"]}  # fmt: skip
        if found:
            worst = max(found, key=lambda name: found[name])
            counts = (sum(x <= limit for x in found.values()) for limit in limits)
            table.add(size, form, len(found), *counts, f"{worst} {found[worst]:.2f}")
    near = "ratio within 15 % of the one printed"
    table = Table("batch", "tune ÷ auto ≤ 1.05", "worst", near, "worst")
    yield table
    for size in sizes:
        own = {r["function"]: r["tune_over_auto"] for r in rows if r["batch"] == size}
        off = {r["function"]: r["printed"]["anew"] / r["printed"]["then"] for r in rows
               if r["batch"] == size and "printed" in r}  # fmt: skip
        slow = max(own, key=lambda name: own[name])
        far = max(off, key=lambda name: abs(np.log(off[name])), default="")
        table.add(
            *(size, f"{sum(x <= 1.05 for x in own.values())} of {len(own)}"),
            *(f"{slow} {own[slow]:.2f}",),
            f"{sum(1 / 1.15 <= x <= 1.15 for x in off.values())} of {len(off)}",
            f"{far} {off[far]:.2f}" if off else "",
        )


def draw(rows: Sequence[Row], path: Path) -> None:
    """Ratios of all forms, a panel for each batch; predicted against measured time in the last."""
    sizes = sorted({row["batch"] for row in rows})
    names = list(dict.fromkeys(row["function"] for row in rows))
    figure = figure_of(4 * len(sizes) + 6, 0.3 * len(names) + 2)
    *panels, last = figure.subplots(1, len(sizes) + 1, squeeze=False)[0]
    for panel, size in zip(panels, sizes, strict=True):
        for form, marker in zip(FORMS, "os^", strict=True):
            some = [r for r in rows if r["batch"] == size and form in r["ratio"]]
            places = [names.index(r["function"]) for r in some]
            panel.plot([r["ratio"][form] for r in some], places, marker, label=form, alpha=0.7)
        panel.axvline(1, color="gray", lw=0.8)
        panel.set(xscale="log", title=f"batch {size:,}", ylim=(len(names) - 0.5, -0.5))
        panel.set_xlabel("time / faster of jacfwd and jacrev")
        panel.set_yticks(range(len(names)), names if panel is panels[0] else [])
    panels[0].legend()
    for form, marker in zip((*MODES, *FORMS[1:]), "x+s^", strict=True):
        some = [row for row in rows if form in row["predicted"]]
        pairs = ([row[kind][form] * 1e6 for row in some] for kind in ("measured", "predicted"))
        last.loglog(*pairs, marker, label=form, alpha=0.7)
    low, high = last.get_xlim()
    last.plot([low, high], [low, high], color="gray", lw=0.8)
    last.set(xlabel="measured, µs", ylabel="predicted, µs")
    last.set_title(f"Spearman {rank_correlation(rows):.2f}")
    last.legend()
    figure.savefig(path)


def rank_correlation(rows: Sequence[Row]) -> float:
    """Spearman's rank correlation of predicted and measured times, of all programs of all rows."""
    pairs = [(row["predicted"][m], row["measured"][m]) for row in rows for m in row["predicted"]]
    return spearman(*zip(*pairs, strict=True)) if len(pairs) > 2 else 1.0
