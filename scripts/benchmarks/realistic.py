"""Functions that people differentiate: tuned, default and reverse forms beside JAX's modes."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from agents.config.args import fail
from scripts.benchmarks.functions.realistic import FUNCTIONS, Entry
from scripts.benchmarks.machine import machine
from scripts.benchmarks.realistic_plot import draw, rank_correlation
from veenv.kernel import primitive
from veenv.kernel.cpu import entries
from veenv.kernel.price import program_seconds
from veenv.measure.timing import SHORTEST, interleaved, near
from veenv.orders.documents import write_text
from veenv.structure import product, structure

FORMS = ("tune", "auto", "reverse")
Row = dict[str, Any]
_MOST = 100
_QUICK = 1.0
"""Seconds below which compiling is timed three times."""


@dataclass(frozen=True)
class Ready:
    """A compiled method.

    Attributes:
      run: the program.
      seconds: what tracing and compiling took, with empty caches.
      bytes: of temporary memory and results.
    """

    run: Callable[..., Any]
    seconds: float
    bytes: int


def realistic(
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256, 4096),
    budget: str = "6s",
    seconds: float = 1.5,
    memory: float = 3.0,
    minutes: float = 15.0,
    file: str | None = None,
    quick: bool = False,
    fresh: bool = False,
    out: Path = Path("docs/realistic.json"),
    plot: Path = Path("docs/realistic.svg"),
) -> None:
    """Ratios to the faster of JAX's two modes, of time and of trace + compile, for each function.

    All methods of a function at a batch are timed interleaved; a ratio is the median over the
    rounds of the method's time to that of the faster mode in the same round. `tune` is what
    `veenv.tune` returned, timed again beside the others; `auto` is
    ``jacve(f)``; `reverse` is ``jacve(f, "reverse")``. Compiling counts with the median of three
    times where it takes less than a second. The plot has the ratios, and the predicted against the
    measured time of each program with their rank correlation.

    It can be run in parts: rows that `out` has are kept, and what it lacks is measured.

    Args:
        function: names of functions; all by default. Named ones are measured again.
        batch: numbers of points.
        budget: of `veenv.tune`.
        seconds: time after which the rounds for one function and batch end (at least five).
        memory: GiB that results may take; larger batches are left out.
        minutes: time after which no other row is begun; run it again to go on.
        file: a Python file with a dictionary `F` of (function, arguments, argnums) by name, to
            measure instead of `scripts/benchmarks/functions/realistic.py`.
        quick: three functions, batches 1 and 256, and a budget of 2 s, unless given otherwise.
        fresh: forget the rows that `out` has.
        out: file of all figures.
        plot: file of the plot.
    """
    end = time.monotonic() + 60 * minutes
    functions = FUNCTIONS if file is None else from_file(file)
    names = named(function, functions)
    if quick:
        names, batch, budget = function or names[-3:], batch[:2], "2s"
    known = [] if fresh or not out.exists() else json.loads(out.read_text("utf-8"))["rows"]
    rows = {(row["function"], row["batch"]): row for row in known if row["function"] in functions}
    compiled(veenv.jacve(jnp.sin, kernel="fused"), (1.0,))  # loads what compiles
    for name, size in itertools.product(names, batch):
        if (name, size) in rows and not function:
            continue
        if time.monotonic() > end:
            print(f"{minutes:g} minutes are over; run this again for the rest")
            break
        row = _row(name, functions[name], size, budget, seconds, memory * 2**30)
        if row is not None:
            rows[name, size] = row
            print(_line(row), flush=True)
            _write(list(rows.values()), list(functions), budget, out, plot)
    _table(_write(list(rows.values()), list(functions), budget, out, plot))
    print(f"\nfigures: {out}; plot: {plot}")


def _write(rows: list[Row], names: list[str], budget: str, out: Path, plot: Path) -> list[Row]:
    """Writes figures and plot; returns the rows, sorted."""
    rows = sorted(rows, key=lambda row: (names.index(row["function"]), row["batch"]))
    found = {"machine": machine(), "budget": budget, "rows": rows}
    write_text(out, json.dumps(found, indent=1) + "\n")
    if rows:
        draw(rows, FORMS, plot)
    return rows


def _table(rows: list[Row]) -> None:
    print(machine() + "\n\n| function | batch | faster mode | µs | " + " | ".join(FORMS), end="")
    print(" | form of tune | s | compile: " + " | ".join(FORMS[1:]) + " |")
    print("| --- | ---: | --- |" + " ---: |" * (1 + len(FORMS)) + " --- |" + " ---: |" * 3)
    print("\n".join(map(_line, rows)))
    _summary(rows)
    _kept(rows)
    print(f"\npredicted against measured time: Spearman {rank_correlation(rows):.3f}")


def named(names: tuple[str, ...], functions: Mapping[str, Any]) -> tuple[str, ...]:
    """The names, or those of all functions.

    Raises:
      SystemExit: there is no function of a name.
    """
    unknown = [name for name in names if name not in functions]
    if unknown:
        fail(f"--function {unknown[0]}: expected one of {', '.join(functions)}")
    return names or tuple(functions)


def from_file(path: str) -> dict[str, Entry]:
    """The dictionary `F` of a Python file; argnums may be left out.

    Raises:
      SystemExit: it has none.
    """
    spec = importlib.util.spec_from_file_location("functions", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        fail(f"--file {path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, "F", None)
    if not isinstance(found, dict):
        fail(f"--file {path}: expected a dictionary F")
    return {name: (fun, args, *rest) if rest else (fun, args, 0)
            for name, (fun, args, *rest) in found.items()}  # fmt: skip


def _row(
    name: str, entry: Entry, size: int, budget: str, seconds: float, memory: float
) -> Row | None:
    """The figures of a function at a batch; None where the results take too much memory."""
    fun, args, argnums = entry
    result = jax.eval_shape(jax.jacrev(fun, argnums), *args)
    if size * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(result)) > memory:
        return None
    points = args if size == 1 else jax.tree.map(jnp.asarray, near(args, [0], size))
    batch = None if size == 1 else size
    methods = {
        "jacfwd": jax.jacfwd(fun, argnums),
        "jacrev": jax.jacrev(fun, argnums),
        "auto": veenv.jacve(fun, argnums=argnums),
        "reverse": veenv.jacve(fun, "reverse", argnums),
    }
    mapped = {m: jax.vmap(jacobian) if batch else jacobian for m, jacobian in methods.items()}
    took = {m: compile_seconds(jacobian, points) for m, jacobian in mapped.items()}
    began = time.perf_counter()
    tuned = veenv.tune(fun, *args, argnums=argnums, batch=batch, budget=budget, cache=False)
    taken = time.perf_counter() - began
    for thread in threading.enumerate():  # a compilation that tune has left behind
        if thread.name.startswith("veenv"):
            thread.join()
    ready = {}
    for method, jacobian in (mapped | {"tune": jax.vmap(tuned) if batch else tuned}).items():
        made = compiled(jacobian, points)
        if made.bytes <= 2 * memory:  # a mode that takes too much memory is not the faster one
            ready[method] = made
    times = timed(ready, points, seconds)
    own = [m for m in ("jacfwd", "jacrev") if m in ready]
    faster = np.min([times[m] for m in own], axis=0)
    mode = min(own, key=lambda m: float(np.median(times[m])))
    row: Row = {"function": name, "batch": size, "faster": mode, "tune_seconds": taken}
    row |= {
        "us": float(np.median(faster)) * 1e6,
        "form": tuned.form,
        "settled": tuned.record.settled,
    }
    other = tuned.record.faster_mode
    if tuned.ratio is not None and other is not None and other.mode in times:
        theirs = times[other.mode]
        row["printed"] = {"then": tuned.ratio, "anew": float(np.median(times["tune"] / theirs))}
    row["tune_over_auto"] = float(np.median(times["tune"] / times["auto"]))
    row["ratio"] = {m: float(np.median(times[m] / faster)) for m in FORMS if m in ready}
    row["compile"] = {m: took[m] / took[mode] for m in FORMS[1:]}
    row["temporary"] = {m: r.bytes for m, r in ready.items()}
    row["measured"] = {m: float(np.median(times[m])) for m in ready}
    row["predicted"] = {
        m: program_seconds(jax.make_jaxpr(methods[m])(*args), size) for m in methods if m in ready
    }
    return row


def compile_seconds(jacobian: Callable[..., Any], points: Sequence[Any]) -> float:
    """Seconds to trace and compile a Jacobian: the median of three times where that is quick."""
    seconds = [compiled(jacobian, points).seconds]
    if seconds[0] < _QUICK:
        seconds += [compiled(jacobian, points).seconds for _ in range(2)]
    return float(np.median(seconds))


def compiled(jacobian: Callable[..., Any], points: Sequence[Any]) -> Ready:
    """Traces and compiles a Jacobian, with empty caches: kernels are kept while they are in use."""
    jax.clear_caches()
    primitive.forget()
    gc.collect()
    entries.alive()
    product.multiply.cache_clear()
    structure.add.cache_clear()
    began = time.perf_counter()
    run = jax.jit(jacobian).lower(*points).compile()
    seconds = time.perf_counter() - began
    memory: Any = run.memory_analysis()
    return Ready(run, seconds, memory.temp_size_in_bytes + memory.output_size_in_bytes)


def timed(
    ready: Mapping[str, Ready], points: Sequence[Any], seconds: float
) -> dict[str, np.ndarray]:
    """Seconds of each program, round after round, until there are enough rounds."""
    runs = {name: made.run for name, made in ready.items()}
    return interleaved(runs, points, _MOST, shortest=SHORTEST, seconds=seconds)


def _line(row: Row) -> str:
    cells = [row["function"], f"{row['batch']:,}", row["faster"], f"{row['us']:,.1f}"]
    cells += [f"**{row['ratio'][m]:.2f}**" if m in row["ratio"] else "" for m in FORMS]
    cells += [row["form"], f"{row['tune_seconds']:.1f}"]
    cells += [f"{row['compile'][m]:.2f}" if m in row["compile"] else "" for m in FORMS[1:]]
    return "| " + " | ".join(cells) + " |"


def _summary(rows: list[Row]) -> None:
    """How many functions are within the bounds, by batch."""
    print("\n| batch | form | functions | ≤ 0.5 | ≤ 1.03 | ≤ 1.05 | worst |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | --- |")
    for size in sorted({row["batch"] for row in rows}):
        for form in FORMS:
            found = {r["function"]: r["ratio"][form] for r in rows
                     if r["batch"] == size and form in r["ratio"]}  # fmt: skip
            if not found:
                continue
            worst = max(found, key=lambda name: found[name])
            counts = [str(sum(x <= bound for x in found.values())) for bound in (0.5, 1.03, 1.05)]
            cells = [f"{size:,}", form, str(len(found)), *counts, f"{worst} {found[worst]:.2f}"]
            print("| " + " | ".join(cells) + " |")


def _kept(rows: list[Row]) -> None:
    """Whether the tuned form is slower than the default one, and its ratio what `tune` said."""
    print("\n| batch | tune ÷ auto ≤ 1.05 | worst | ratio within 15 % of the one printed | worst |")
    print("| ---: | ---: | --- | ---: | --- |")
    for size in sorted({row["batch"] for row in rows if "tune_over_auto" in row}):
        mine = [row for row in rows if row["batch"] == size and "tune_over_auto" in row]
        slower = max(mine, key=lambda row: row["tune_over_auto"])
        off = {r["function"]: r["printed"]["anew"] / r["printed"]["then"] for r in mine
               if "printed" in r}  # fmt: skip
        far = max(off, key=lambda name: abs(np.log(off[name])), default="")
        cells = [
            f"{size:,}",
            f"{sum(row['tune_over_auto'] <= 1.05 for row in mine)} of {len(mine)}",
            f"{slower['function']} {slower['tune_over_auto']:.2f}",
            f"{sum(1 / 1.15 <= x <= 1.15 for x in off.values())} of {len(off)}",
            f"{far} {off[far]:.2f}" if off else "",
        ]
        print("| " + " | ".join(cells) + " |")
