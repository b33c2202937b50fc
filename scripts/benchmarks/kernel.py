"""One kernel against XLA: speed, what the order decides, and what compiling takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import veenv
from scripts.benchmarks.casadi_code import casadi_rows
from scripts.benchmarks.cases import Case, find, orders_of, points
from scripts.benchmarks.compiled import compiled, fused, program_of, random_case
from scripts.benchmarks.kernel_orders import correlation, decision
from scripts.benchmarks.machine import machine
from veenv.measure.timing import SHORTEST, interleaved
from veenv.orders.documents import write_text

TASKS = (
    "RoeFlux_1d",
    "RobotArm_6DOF",
    "RoeFlux_3d",
    "KerrMetric",
    "KerrMetric_Jacobian",
    "DoublePendulum_RK4",
    "VanDerPol_RK4",
    "BlackScholes_Jacobian",
    "HumanHeartDipole",
    "PropaneCombustion",
)
ORDERS = "best-operations", "reverse"
Row = dict[str, Any]
Part = Literal["speed", "orders", "compile", "casadi"]
HEADS: Mapping[Part, str] = {
    "speed": "| function | batch | method | ms | ratio (10 … 90 %) | operations | work |\n"
    "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    "orders": "| function | operations | reverse's | of its work | of its time, code alone "
    "| called by JAX |\n| --- | ---: | ---: | ---: | ---: | ---: |",
    "compile": "| equations | kernel: trace + compile, s | ns a point | jacrev | ns a point |\n"
    "| ---: | ---: | ---: | ---: | ---: |",
    "casadi": "| function | kernel, ns a point, one core | CasADi's C | ratio |\n"
    "| --- | ---: | ---: | ---: |",
}
HEAD_OF_CORRELATIONS = (
    "| function | orders | Spearman with time: operations | work "
    "| least work, of reverse's | its time |\n| --- | ---: | ---: | ---: | ---: | ---: |"
)


def kernel(
    parts: tuple[Part, ...] = ("speed", "orders", "compile"),
    task: tuple[str, ...] = TASKS,
    batch: tuple[int, ...] = (1, 4096, 65536),
    repeats: int = 25,
    seconds: float = 10.0,
    turn: float = 0.02,
    num_orders: int = 50,
    orders_batch: int = 16384,
    equations: tuple[int, ...] = (500, 3000),
    jacrev_up_to: int = 0,
    out: Path = Path("docs/kernel.json"),
) -> None:
    """Tables of the Jacobian as one kernel, by XLA, and by JAX's two modes; float32, interleaved.

    Ratios are medians, over the repeats, of a method's time to that of the faster of
    vmap(jacfwd) and vmap(jacrev) in the same repeat. `writing` is a program that only fills as
    many arrays as the Jacobian has: the bound set by memory.

    Args:
        parts: what is measured: `speed` of tasks; `orders`: what the order decides, for each task
            the order with the fewest operations against reverse, and of four
            functions the correlation over many orders; what it takes to `compile`; `casadi`: the C
            that CasADi generates, on one core, where CasADi and gcc are installed.
        task: tasks of the tables of speed and orders.
        batch: batch sizes of the table of speed.
        repeats: measurements of each method, at most; of the part `orders` the least counts.
        seconds: time after which the repeats for one function and batch end (at least five).
        turn: seconds for which a method is called again and again in its turn, so that it has the
            memory that it had before; in short turns it finds that of the others in the caches.
        num_orders: how many orders of a function are timed, to compare their work with their time.
        orders_batch: batch of the part `orders`, called by JAX: enough points for all cores, and
            few enough that what is written stays in the cache. The code alone runs on one core.
        equations: sizes of the random functions of which tracing and compiling is timed.
        jacrev_up_to: the largest of them that jacrev is compiled for too (a minute for 500).
        out: file of all figures; of parts that are not measured now it keeps what it has.
    """
    print(machine())
    known = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    found: dict[str, Any] = {"speed": [], "orders": [], "compile": [], **known}
    found["machine"] = machine()
    for part in parts:
        found[part] = rows = []
        print(f"\n{HEADS[part]}")
        if part == "speed":
            for name in task:
                for size in batch:
                    rows += _speed(find(name), size, repeats, seconds, turn)
        elif part == "orders":
            for name in task:
                rows.append(decision(find(name), orders_batch, repeats))
            print(f"\n{HEAD_OF_CORRELATIONS}")
            cases = find("RoeFlux_1d"), find("RobotArm_6DOF"), random_case(1, 300)
            for case in (*cases, random_case(2, 300)):
                rows.append(correlation(case, num_orders, repeats))
        elif part == "compile":
            rows += [_compilation(size, size <= jacrev_up_to) for size in equations]
        else:
            rows += casadi_rows(max(batch), repeats, turn)
        write_text(out, json.dumps(found, indent=1) + "\n")
    print(f"\nfigures: {out}")


def _speed(case: Case, batch: int, repeats: int, seconds: float, turn: float) -> list[Row]:
    args = points(case, batch)
    methods: dict[str, Callable[..., Any]] = {
        "jacfwd": jax.vmap(jax.jacfwd(case.fun, case.argnums)),
        "jacrev": jax.vmap(jax.jacrev(case.fun, case.argnums)),
    }
    programs = {}
    for name, ids in orders_of(case, ORDERS).items():
        programs[f"kernel, {name}"] = program_of(case, ids)
        methods[f"kernel, {name}"] = fused(case, ids)
        methods[f"XLA, {name}"] = jax.vmap(veenv.jacve(case.fun, ids, case.argnums, kernel="xla"))
    program = next(iter(programs.values()))
    shapes = [leaf.shape for leaf in program.outputs]
    first = jax.tree.leaves(args)[0].reshape(batch, -1)[:, :1]
    methods["writing"] = lambda *_: [
        (first * float(k)).reshape(batch, *(1 for _ in s)) + np.zeros(s, np.float32)
        for k, s in enumerate(shapes)
    ]
    runs = {n: compiled(m, args) for n, m in methods.items()}
    times = interleaved(runs, args, repeats, shortest=turn, seconds=seconds)
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


def _compilation(equations: int, with_jacrev: bool) -> Row:
    case = random_case(0, equations)
    args = points(case, 65536)
    row: Row = {"equations": equations}
    methods = {"kernel": lambda: fused(case, "reverse")}
    if with_jacrev:
        methods["jacrev"] = lambda: jax.vmap(jax.jacrev(case.fun, case.argnums))
    cells = [f"{equations:,}"]
    for name, make in methods.items():
        start = time.perf_counter()
        run = compiled(make(), args)
        row[f"{name}_seconds"] = time.perf_counter() - start
        times = interleaved({name: run}, args, 10, shortest=SHORTEST, seconds=20.0)
        row[f"{name}_ns"] = float(np.median(times[name])) * 1e9 / 65536
        cells += [f"{row[f'{name}_seconds']:.2f}", f"{row[f'{name}_ns']:.1f}"]
    print("| " + " | ".join([*cells, *[""] * (5 - len(cells))]) + " |", flush=True)
    return row
