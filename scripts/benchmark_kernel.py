"""One kernel against XLA: speed, what the order decides, and what compiling takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from benchmark_cases import Case, find, orders_of, points
from benchmark_engine import SHORTEST
from benchmark_machine import machine

import veenv
from veenv.kernel.fusing import trace_point
from veenv.kernel.program import ScalarProgram
from veenv.measure.timing import rounds_interleaved
from veenv.tasks.random import random_function

TASKS = (
    "RoeFlux_1d",
    "RobotArm_6DOF",
    "RoeFlux_3d",
    "KerrMetric_Jacobian",
    "DoublePendulum_RK4",
    "VanDerPol_RK4",
    "BlackScholes_Jacobian",
    "HumanHeartDipole",
    "PropaneCombustion",
)
ORDERS = "best-executed", "reverse"
Row = dict[str, Any]


def kernel(
    task: tuple[str, ...] = TASKS,
    batch: tuple[int, ...] = (1, 4096, 65536),
    repeats: int = 25,
    seconds: float = 10.0,
    num_orders: int = 50,
    equations: tuple[int, ...] = (500, 3000),
    jacrev_up_to: int = 0,
    out: Path = Path("docs/kernel.json"),
    plot: Path = Path("docs/kernel.svg"),
) -> None:
    """Tables of the Jacobian as one kernel, by XLA, and by JAX's two modes; float32, interleaved.

    Ratios are medians, over the repeats, of a method's time to that of the faster of
    vmap(jacfwd) and vmap(jacrev) in the same repeat. `writing` is a program that only fills as
    many arrays as the Jacobian has that are not constant: the bound set by memory.

    Args:
        task: tasks of the first table.
        batch: batch sizes.
        repeats: measurements of each method, at most.
        seconds: time after which the repeats for one function and batch end (at least five).
        num_orders: how many orders of a function are timed, to compare their work with their time;
            0 for none.
        equations: sizes of the random functions of which tracing and compiling is timed.
        jacrev_up_to: the largest of them that jacrev is compiled for too (a minute for 500).
        out: file of all figures.
        plot: file of the plot.
    """
    print(machine())
    found: dict[str, Any] = {"machine": machine(), "speed": [], "orders": [], "compile": []}
    print("\n| function | batch | method | ms | ratio (10 … 90 %) | operations | work |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for name in task:
        for size in batch:
            found["speed"] += _speed(find(name), size, repeats, seconds)
    if num_orders:
        print("\n| function | orders | Spearman | cheapest / reverse: work | time |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for case in (find("RoeFlux_1d"), find("RobotArm_6DOF"), _random(1, 300), _random(2, 300)):
            found["orders"].append(_orders(case, num_orders, 65536, repeats))
    print("\n| random function | kernel: trace + compile, s | ns a point | jacrev | ns a point |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for size in equations:
        found["compile"].append(_compilation(size, size <= jacrev_up_to))
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    _plot(found, max(batch), plot)
    print(f"\nfigures: {out}; plot: {plot}")


def _random(seed: int, equations: int) -> Case:
    fun, point = random_function(seed, 8, equations, 8)
    return Case(f"random, {equations} equations, seed {seed}", fun, point, tuple(range(len(point))))


def program_of(case: Case, order: Any) -> ScalarProgram:
    """The scalar program of a case's Jacobian, in float32."""
    args = jax.tree.map(lambda x: np.asarray(x, np.float32), case.args)
    argnums = case.argnums if isinstance(case.argnums, tuple) else (case.argnums,)
    return trace_point(veenv.jacve(case.fun, order, case.argnums), args, {}, argnums).program()


def _fused(case: Case, order: Any) -> Callable[..., Any]:
    return jax.vmap(veenv.jacve(case.fun, order, case.argnums, kernel="fused"))


def _compiled(method: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    return jax.jit(method).lower(*args).compile()


def _times(
    runs: Mapping[str, Callable[..., Any]], args: Sequence[Any], repeats: int, seconds: float
) -> dict[str, np.ndarray]:
    """Seconds of a call in each round, interleaved; five rounds at least."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    began = time.perf_counter()
    for found in rounds_interleaved(runs, args, repeats, shortest=SHORTEST):
        times = {name: list(t) for name, t in found.items()}
        if min(map(len, times.values())) >= 5 and time.perf_counter() - began > seconds:
            break
    return {name: np.array(t) for name, t in times.items()}


def _speed(case: Case, batch: int, repeats: int, seconds: float) -> list[Row]:
    args = points(case, batch)
    methods: dict[str, Callable[..., Any]] = {
        "jacfwd": jax.vmap(jax.jacfwd(case.fun, case.argnums)),
        "jacrev": jax.vmap(jax.jacrev(case.fun, case.argnums)),
    }
    programs = {}
    for name, ids in orders_of(case, ORDERS).items():
        programs[f"kernel, {name}"] = program_of(case, ids)
        methods[f"kernel, {name}"] = _fused(case, ids)
        methods[f"XLA, {name}"] = jax.vmap(veenv.jacve(case.fun, ids, case.argnums))
    program = next(iter(programs.values()))
    shapes = [program.outputs[k].shape for k in program.written()]
    first = jax.tree.leaves(args)[0].reshape(batch, -1)[:, :1]
    methods["writing"] = lambda *_: [
        (first * float(k)).reshape(batch, *(1 for _ in s)) + np.zeros(s, np.float32)
        for k, s in enumerate(shapes)
    ]
    times = _times({n: _compiled(m, args) for n, m in methods.items()}, args, repeats, seconds)
    faster = np.minimum(times["jacfwd"], times["jacrev"])
    rows = []
    for method in methods:
        low, ratio, high = np.quantile(times[method] / faster, [0.1, 0.5, 0.9])
        row = {"function": case.name, "batch": batch, "method": method, "ratio": float(ratio)}
        row |= {"low": float(low), "high": float(high), "ms": float(np.median(times[method])) * 1e3}
        if method in programs:
            row |= {"operations": programs[method].size, "work": programs[method].work}
        rows.append(row)
        cells = [case.name, f"{batch:,}", method, f"{row['ms']:.3g}"]
        cells += [f"**{ratio:.2g}** ({low:.2g} … {high:.2g})"]
        cells += [f"{row[k]:,.0f}" if k in row else "" for k in ("operations", "work")]
        print("| " + " | ".join(cells) + " |", flush=True)
    return rows


def perturbed(ids: Sequence[int], swaps: int, rng: np.random.Generator) -> tuple[int, ...]:
    """An order with some vertices moved elsewhere."""
    order = list(ids)
    for _ in range(swaps):
        order.insert(int(rng.integers(len(order))), order.pop(int(rng.integers(len(order)))))
    return tuple(order)


def some_orders(case: Case, count: int) -> dict[str, tuple[int, ...]]:
    """Classical orders, the best shipped one, and perturbations of all of them."""
    rng = np.random.default_rng(0)
    known = orders_of(case, ("best-executed", "reverse", "forward", "markowitz"))
    found = dict(known)
    starts = list(known.values())
    for k in range(count - len(known)):
        start = starts[k % len(starts)]
        swaps = int(2 ** rng.uniform(0, np.log2(max(2, len(start) // 2))))
        found[f"perturbed {k}"] = perturbed(start, swaps, rng)
    return found


def _orders(case: Case, count: int, batch: int, repeats: int) -> Row:
    from scipy.stats import spearmanr

    args = points(case, batch)
    orders = some_orders(case, count)
    works = {name: program_of(case, ids).work for name, ids in orders.items()}
    runs = {name: _compiled(_fused(case, ids), args) for name, ids in orders.items()}
    times = _times(runs, args, repeats, 60.0)
    medians = {name: float(np.median(t)) for name, t in times.items()}
    found: Any = spearmanr([works[n] for n in orders], [medians[n] for n in orders])
    correlation = float(found.statistic)
    reverse = next(n for n in orders if "reverse" in n)
    cheapest = min(works, key=lambda n: works[n])
    ratio = float(np.median(times[cheapest] / times[reverse]))
    row = {"function": case.name, "orders": len(orders), "spearman": correlation, "time": ratio}
    row |= {"work": works[cheapest] / works[reverse], "works": works, "seconds": medians}
    cells = [
        case.name,
        str(len(orders)),
        f"{correlation:.2f}",
        f"{row['work']:.2f}",
        f"**{ratio:.2f}**",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)
    return row


def _compilation(equations: int, with_jacrev: bool) -> Row:
    case = _random(0, equations)
    args = points(case, 65536)
    row: Row = {"equations": equations}
    methods = {"kernel": lambda: _fused(case, "reverse")}
    if with_jacrev:
        methods["jacrev"] = lambda: jax.vmap(jax.jacrev(case.fun, case.argnums))
    cells = [f"{equations:,}"]
    for name, make in methods.items():
        start = time.perf_counter()
        run = _compiled(make(), args)
        row[f"{name}_seconds"] = time.perf_counter() - start
        times = _times({name: run}, args, 10, 20.0)
        row[f"{name}_ns"] = float(np.median(times[name])) * 1e9 / 65536
        cells += [f"{row[f'{name}_seconds']:.2f}", f"{row[f'{name}_ns']:.1f}"]
    print("| " + " | ".join([*cells, *[""] * (5 - len(cells))]) + " |", flush=True)
    return row


def _plot(found: Mapping[str, Any], batch: int, path: Path) -> None:
    """Ratios of the kernel and of XLA at the largest batch, and time over work of the orders."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasSVG(figure)
    left, right = figure.subplots(1, 2)
    rows = [r for r in found["speed"] if r["batch"] == batch]
    names = list(dict.fromkeys(r["function"] for r in rows))
    for offset, (kind, label) in enumerate((("kernel", "one kernel"), ("XLA", "jacve by XLA"))):
        best = [
            min(r["ratio"] for r in rows if r["function"] == n and r["method"].startswith(kind))
            for n in names
        ]
        left.barh(np.arange(len(names)) + 0.4 * offset, best, 0.38, label=label)
    left.set_yticks(np.arange(len(names)) + 0.2, names)
    left.axvline(1, color="gray", lw=0.8)
    left.set_xlabel(f"time / faster of jacfwd and jacrev, batch {batch:,}")
    left.legend()
    for row in found["orders"]:
        order = list(row["works"])
        right.plot(
            [row["works"][n] for n in order],
            [row["seconds"][n] * 1e3 for n in order],
            ".",
            label=f"{row['function']} ({row['spearman']:.2f})",
        )
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("work of a point, multiplications")
    right.set_ylabel(f"ms at batch {batch:,}")
    if found["orders"]:
        right.legend(fontsize=7)
    figure.savefig(path)
