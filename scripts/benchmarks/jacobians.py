"""Jacobians of tasks as XLA compiles them and as one kernel, beside JAX's two modes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.cases import Case, banded_residual, find, orders_of, random_case, singles
from scripts.benchmarks.programs import MODES, Compiled, Timings, compiled
from scripts.benchmarks.tables import Table
from veenv import make_graph
from veenv.kernel import primitive
from veenv.kernel.fusing import trace_point
from veenv.kernel.scalar_program import ScalarProgram
from veenv.measure.timing import machine
from veenv.orders.documents import write_text

KERNELS = tuple(
    "RoeFlux_1d RobotArm_6DOF RoeFlux_3d KerrMetric KerrMetric_Jacobian DoublePendulum_RK4 "
    "VanDerPol_RK4 BlackScholes_Jacobian HumanHeartDipole PropaneCombustion".split()
)
BY_XLA = tuple(
    "RoeFlux_1d RoeFlux_3d RobotArm_6DOF HumanHeartDipole PropaneCombustion mlp Encoder "
    "lorenz_rollout banded_residual".split()
)
ORDERS = "best-operations", "reverse"
SPEED = "function", "batch", "method", "ms", "ratio (10 … 90 %)", "operations", "work"
DECISIONS = "function", "operations", "reverse's", "of its work", "of its time"
COMPILATIONS = "equations", "kernel: trace + compile, s", "ns a point"
_TURN = 0.02
"""Seconds for which a kernel is called in its turn, so that it has the memory it had before."""
_ORDERS_BATCH = 16_384
"""Enough points for all cores, and few enough that what is written stays in the cache."""
Row = dict[str, Any]
Part = Literal["xla", "kernel", "orders", "compile"]


def jacobians(
    parts: tuple[Part, ...] = ("xla", "kernel", "orders", "compile"),
    task: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 4096, 65536),
    repeats: int = 25,
    seconds: float = 10.0,
    memory: float = 3.0,
    equations: tuple[int, ...] = (500, 3000),
    figures: Path = Path("docs/kernel.json"),
) -> Iterator[Table]:
    """Ratios to the faster of vmap(jacfwd) and vmap(jacrev); float32, jitted, interleaved.

    A ratio is the median over the repeats of a method's time to that of the faster mode in the same
    repeat. Tracing and compiling start from empty caches, and are shown as a multiple of jacrev's.
    `writing` is a program that only fills as many arrays as the Jacobian has: the bound set by
    memory.

    Args:
        parts: `xla`: the engine's orders, and two sparse forms; `kernel`: one kernel by batch and
            order, beside XLA; `orders`: for each task the order with the fewest operations against
            reverse, at 16,384 points; `compile`: what it takes to compile random functions.
        task: tasks, `lorenz_rollout` and `banded_residual`; by default those of each part.
        batch: batch sizes; at 1 the time is mostly dispatch.
        repeats: measurements of each method, at most; of the part `orders` the least counts.
        seconds: time after which the repeats for one function and batch end (at least five).
        memory: GiB that results of `xla` may take; larger batches are halved until they fit.
        equations: sizes of the random functions.
        figures: file of all figures of kernels; of parts that are not measured it keeps its own.
    """
    known = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    document: dict[str, Any] = {"speed": [], "orders": [], "compile": [], **known}
    document["machine"] = machine()
    for part in parts:
        if part == "xla":
            yield from _by_xla(task or BY_XLA, batch, repeats, seconds, memory * 2**30)
            continue
        names, rows = task or KERNELS, list[Row]()
        document["speed" if part == "kernel" else part] = rows
        if part == "kernel":
            yield (table := Table(*SPEED))
            for name, size in itertools.product(names, batch):
                rows += _speed(table, find(name), size, repeats, seconds)
        elif part == "orders":
            yield (table := Table(*DECISIONS))
            rows += [_decision(table, find(name), repeats) for name in names]
        else:
            yield (table := Table(*COMPILATIONS))
            rows += [_compilation(table, size) for size in equations]
        write_text(figures, json.dumps(document, indent=1) + "\n")


def _by_xla(
    task: Sequence[str], batch: Sequence[int], repeats: int, seconds: float, memory: float
) -> Iterator[Table]:
    modes = "jacfwd", "jacrev"
    table = Table(
        *("function", "batch", "order", "ms", *modes, "ratio (10 … 90 %)", "trace + compile"),
        *("flops/point", *modes, "temporary MiB", *modes),
    )
    yield table

    def rows(
        name: str, size: int, points: int, programs: Mapping[str, Compiled], args: Any
    ) -> None:
        timed = Timings(programs, args, seconds, repeats)
        for order in (order for order in programs if order not in MODES):
            three = [programs[m] for m in (order, *modes)]
            table.add(
                *(name, size, order, *(timed.ms(m) for m in (order, *modes)), timed.spread(order)),
                f"{three[0].compile / three[2].compile:.2f}",
                *((p.run.cost_analysis() or {}).get("flops", 0.0) / points for p in three),
                *(f"{p.memory.temp_size_in_bytes / 2**20:.1f}" for p in three),
            )

    for name in task:
        case, done = find(name), set[int]()
        methods = {mode: jax.vmap(make(case.fun, case.argnums)) for mode, make in MODES.items()}
        for order, ids in orders_of(case, ("best", "best-executed", "reverse")).items():
            methods[order] = jax.vmap(veenv.jacve(case.fun, ids, case.argnums, kernel="xla"))
        result = jax.eval_shape(methods["jacrev"], *singles(case, 1))
        each = 2 * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(result))
        for size in batch:
            while size > 1 and size * each > memory:
                size //= 2
            if size not in done:
                done.add(size)
                args = singles(case, size)
                rows(case.name, size, size, compiled(methods, args, 5), args)
    roe = find("RoeFlux_1d")
    for name, fun, args, argnums, size in (
        ("banded_residual, sparse", banded_residual, (jnp.linspace(0.1, 1.0, 1000),), 0, 1),
        ("jacve(vmap(RoeFlux_1d)), sparse", jax.vmap(roe.fun), singles(roe, 512), roe.argnums, 512),
    ):
        methods = {mode: make(fun, argnums) for mode, make in MODES.items()}
        methods["reverse"] = veenv.jacve(fun, "reverse", argnums, sparse_representation=True)
        rows(name, size, 1, compiled(methods, args, 5), args)


def _traced(case: Case, order: Any) -> tuple[ScalarProgram, Any]:
    """The scalar program of a case's Jacobian in float32, and its kernel for a batch.

    The kernel returns what it writes alone: no constant blocks, no copies of arguments.
    """
    argnums = case.argnums if isinstance(case.argnums, tuple) else (case.argnums,)
    jacobian = veenv.jacve(case.fun, order, case.argnums, kernel="xla", pin=False)
    point = trace_point(jacobian, case.single().args, {}, argnums)
    program = point.program()
    kernel = primitive.Fused(program, point.xla(program.written()))
    return program, jax.vmap(lambda *args: primitive.call(kernel, *jax.tree.leaves(args)))


def _fused(case: Case, order: Any) -> Any:
    """The Jacobian of a batch as one kernel."""
    return jax.vmap(veenv.jacve(case.fun, order, case.argnums, kernel="fused"))


def _speed(table: Table, case: Case, batch: int, repeats: int, seconds: float) -> list[Row]:
    args = singles(case, batch)
    methods = {mode: jax.vmap(make(case.fun, case.argnums)) for mode, make in MODES.items()}
    programs = {}
    for name, ids in orders_of(case, ORDERS).items():
        programs[f"kernel, {name}"] = _traced(case, ids)[0]
        methods[f"kernel, {name}"] = _fused(case, ids)
        methods[f"XLA, {name}"] = jax.vmap(veenv.jacve(case.fun, ids, case.argnums, kernel="xla"))
    shapes = [leaf.shape for leaf in next(iter(programs.values())).outputs]
    first = jax.tree.leaves(args)[0].reshape(batch, -1)[:, :1]
    methods["writing"] = lambda *_: [
        (first * float(k)).reshape(batch, *(1 for _ in s)) + np.zeros(s, np.float32)
        for k, s in enumerate(shapes)
    ]
    timed = Timings(compiled(methods, args), args, seconds, repeats, _TURN)
    rows = []
    for method in methods:
        low, ratio, high = np.quantile(timed.ratios(method), [0.1, 0.5, 0.9]).tolist()
        row = {"function": case.name, "batch": batch, "method": method, "ratio": ratio}
        row |= {"low": low, "high": high, "ms": timed.ms(method)}
        if method in programs:
            row |= {"operations": programs[method].size, "work": programs[method].work}
        rows.append(row)
        counts = row.get("operations"), row.get("work")
        table.add(case.name, batch, method, row["ms"], timed.spread(method), *counts)
    return rows


def _compilation(table: Table, equations: int) -> Row:
    case = random_case(0, equations)
    args = singles(case, 65536)
    program = compiled({"kernel": _fused(case, "reverse")}, args)["kernel"]
    ns = Timings({"kernel": program}, args, 20.0, 10).seconds("kernel") * 1e9 / 65536
    table.add(equations, f"{program.compile:.2f}", f"{ns:.1f}")
    return {"equations": equations, "kernel_seconds": program.compile, "kernel_ns": ns}


def _decision(table: Table, case: Case, repeats: int) -> Row:
    """The cheapest order by operations against reverse: counts, work and time."""
    args = singles(case, _ORDERS_BATCH)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    (least,) = orders_of(case, ORDERS[:1]).values()
    orders = {"reverse": graph.reverse(), "least": least}
    traced = {name: _traced(case, ids) for name, ids in orders.items()}
    programs = {name: program for name, (program, _) in traced.items()}
    runs = compiled({name: kernel for name, (_, kernel) in traced.items()}, args)
    times = {n: t.min() for n, t in Timings(runs, args, 20.0, 2 * repeats).times.items()}
    counts = {name: graph.cost(ids, "operations") for name, ids in orders.items()}
    row: Row = {"function": case.name, "order": "least operations", "ids": list(least)}
    row |= {"reverse": counts["reverse"], "operations": counts["least"]}
    row["time_ratio"] = float(times["least"] / times["reverse"])
    row["work_ratio"] = programs["least"].work / programs["reverse"].work
    ratios = f"{row['work_ratio']:.2f}", f"**{row['time_ratio']:.2f}**"
    table.add(case.name, row["operations"], row["reverse"], *ratios)
    return row
