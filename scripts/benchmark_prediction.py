"""Measures forms of Jacobians and fits what their features take: the table of `order="auto"`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from benchmark_machine import machine
from benchmark_realistic import compiled, from_file, named, timed
from realistic_functions import FUNCTIONS, Entry
from realistic_loops import LOOPS
from realistic_models import MODELS
from realistic_plot import spearman

import veenv
from veenv.graph.argnums import normalise_argnums
from veenv.kernel.cpu.spans import size_of
from veenv.kernel.features import NAMES, features_of
from veenv.kernel.fusing import trace_point
from veenv.kernel.parts import part_of
from veenv.kernel.program import CannotFuseError, ScalarProgram
from veenv.kernel.times import FILE, KERNEL, MICROSECONDS, kernel_features
from veenv.measure.timing import near
from veenv.orders.documents import write_text

_LARGEST_KERNEL = 10_000
_LARGE_KERNEL = 5_000
"""Size of the largest kernel from which compile times are fitted."""
_PRIOR = 0.3
"""What one measurement weighs against the table so far, where it says little of a feature."""
_ORDERS = ("reverse", "markowitz")
_IN_LOOPS = [NAMES.index(name) for name in ("steps", "turns")]
_COMPILE = ("compile", "compile_equation")
_COMPILE_KERNEL = ("compile_kernel", "compile_operation", "compile_traced")
Measured = dict[str, Any]


def prediction(
    function: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256),
    seconds: float = 0.5,
    file: str | None = None,
    measure: bool = True,
    out: Path = FILE,
) -> None:
    """Fits the predicted time of a program to measurements; float32.

    Measured are JAX's two modes and `jacve` under two orders, by XLA and as one kernel. The fit
    minimises relative errors, no feature may take less than nothing, and what the measurements
    leave open stays as it was. The measurements are kept in the table: a later run replaces those
    of the same function, form and batch, so that it can be made in parts.

    Args:
        function: names of functions; all of `realistic`, of its models and some loops by default.
        batch: numbers of points.
        seconds: of timing for each function and batch.
        file: a Python file as for `realistic`.
        measure: measure, or only count the features anew of what has been measured, and fit.
        out: the table; the package reads its own.
    """
    functions = {**FUNCTIONS, **MODELS, **LOOPS} if file is None else from_file(file)
    before = out if out.exists() else FILE
    known = json.loads(before.read_text(encoding="utf-8")).get("measured", [])
    print(machine() + "\n\n| measured | batch |\n| --- | ---: |")
    rows = {(m["function"], m["form"], m["batch"]): m for m in known}
    for name in named(function, functions):
        for size in batch:
            if measure:
                found = measured(name, functions[name], size, seconds)
                rows |= {(name, m["form"], size): m for m in found}
                _write(out, list(rows.values()))
            else:
                found = _counted(functions[name], size).items()
                keys = {(name, form, size): counted.features for form, counted in found}
                rows |= {key: rows[key] | keys[key] for key in keys if key in rows}
            print(f"| {name} | {size} |", flush=True)
    table = _write(out, list(rows.values()))
    print("\n| feature | microseconds |\n| --- | ---: |")
    for name, each in table["microseconds"].items():
        print(f"| {name} | {each:g} |")
    print(f"\n{len(rows)} programs: Spearman {table['spearman']:.3f}; {out}")


def measured(name: str, entry: Entry, size: int, seconds: float) -> Iterator[Measured]:
    """Features, seconds and seconds of compiling of a function's forms at a batch."""
    _, args, _ = entry
    points = args if size == 1 else jax.tree.map(jnp.asarray, near(args, [0], size))
    forms = _counted(entry, size)
    ready = {
        form: compiled(jax.vmap(counted.jacobian) if size > 1 else counted.jacobian, points)
        for form, counted in forms.items()
    }
    times = timed(ready, points, seconds)
    for form, rounds in times.items():
        yield {
            "function": name, "form": form, "batch": size, **forms[form].features,
            "seconds": float(f"{np.quantile(rounds, 0.25):.4g}"),
            "compile": float(f"{ready[form].seconds:.4g}"),
        }  # fmt: skip


class _Counted(NamedTuple):
    """A form of a Jacobian, and what is counted of it."""

    jacobian: Callable[..., Any]
    features: Measured


def _counted(entry: Entry, size: int) -> dict[str, _Counted]:
    """The forms of a function, with their features at a batch."""
    fun, args, argnums = entry
    found = {}
    for form, jacobian, program, equations in _forms(fun, args, argnums):
        if program is None:
            counts = features_of(jax.make_jaxpr(jacobian)(*args), points=size).at(size)
            features: Measured = {"features": counts.tolist(), "equations": equations}
        else:
            counts, length = kernel_features(program, size), size_of(program)
            features = {"features": counts.tolist(), "equations": equations, "size": length}
        found[form] = _Counted(jacobian, features)
    return found


def _forms(
    fun: Callable[..., Any], args: tuple[Any, ...], argnums: Any
) -> Iterator[tuple[str, Callable[..., Any], ScalarProgram | None, int]]:
    """Name and Jacobian of each form; its scalar program where it is one kernel; equations."""

    def equations(jacobian: Callable[..., Any]) -> int:
        jaxpr = jax.make_jaxpr(jacobian)(*args)
        return len(part_of(jaxpr, range(len(jaxpr.out_avals))).eqns)

    for mode, jacobian in (("jacfwd", jax.jacfwd), ("jacrev", jax.jacrev)):
        yield mode, jacobian(fun, argnums), None, equations(jacobian(fun, argnums))
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


def _write(out: Path, rows: list[Measured]) -> dict[str, Any]:
    """Fits and writes the table."""
    table = fitted(rows) | {"machine": machine(), "measured": rows}
    text = json.dumps({k: v for k, v in table.items() if k != "measured"}, indent=1)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    write_text(out, f'{text[:-2]},\n "measured": [\n{lines}\n ]\n}}\n')
    return table


def fitted(rows: list[Measured]) -> dict[str, Any]:
    """What each feature takes in microseconds, and how well the prediction ranks the rows."""
    xla = [m for m in rows if "kernel" not in m["form"]]
    kernels = [m for m in rows if "kernel" in m["form"]]
    costs = dict(MICROSECONDS)
    inputs = [np.array(m["features"]) for m in xla]
    costs |= _fit(NAMES, inputs, [m["seconds"] for m in xla])
    costs |= _fit(KERNEL, [m["features"] for m in kernels], [m["seconds"] for m in kernels])
    large = any(m["size"] >= _LARGE_KERNEL for m in kernels)  # else they say little of the slope
    plain = [m for m in xla if not any(m["features"][k] for k in _IN_LOOPS)]
    for names, kind in ((_COMPILE, plain), (_COMPILE_KERNEL, kernels if large else [])):
        some = [m for m in kind if m["batch"] == 1]  # a kernel is compiled once for all batches
        sizes = [[1.0, *([m["size"]] if "size" in m else []), m["equations"]] for m in some]
        costs |= _fit(names, sizes, [m["compile"] for m in some])
    predicted = [x @ np.array([costs[n] for n in NAMES]) for x in inputs]
    predicted += [np.array(m["features"]) @ [costs[n] for n in KERNEL] for m in kernels]
    rank = spearman(predicted, [m["seconds"] for m in [*xla, *kernels]])
    return {
        "microseconds": {n: float(f"{c:.4g}") for n, c in costs.items()},
        "spearman": round(rank, 4),
    }


def _fit(names: tuple[str, ...], inputs: list[Any], seconds: list[float]) -> dict[str, float]:
    """Positive costs of least squared logarithmic errors, near those so far where all will do."""
    from scipy.optimize import least_squares

    prior = np.array([MICROSECONDS[name] for name in names])
    if not seconds:
        return dict(zip(names, prior.tolist(), strict=True))
    features, wanted = np.array(inputs, float) * prior, np.log(1e6 * np.array(seconds))

    def errors(change: np.ndarray) -> np.ndarray:
        return np.concatenate([np.log(features @ np.exp(change)) - wanted, _PRIOR * change])

    found = least_squares(errors, np.zeros(len(names)), loss="soft_l1").x
    return dict(zip(names, (prior * np.exp(found)).tolist(), strict=True))
