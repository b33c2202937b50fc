"""Jacobians of tasks as XLA compiles them and as one kernel, beside JAX's two modes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.cases import Case, banded_residual, find, orders_of, singles
from scripts.benchmarks.programs import MODES, Compiled, Timings, compiled
from scripts.benchmarks.tables import Table
from veenv import make_graph
from veenv.kernel import primitive
from veenv.kernel.fusing import trace_point
from veenv.kernel.scalar_program import ScalarProgram

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
RUN_TIMES = "function", "reverse", "best order", "ratio", "time, one kernel", "time by XLA"
BOTH: tuple[Literal["fused", "xla"], ...] = ("fused", "xla")
_TURN = 0.02
"""Seconds for which a kernel is called in its turn, so that it has the memory it had before."""
_ORDERS_BATCH = 16_384
"""Enough points for all cores, and few enough that what is written stays in the cache."""
Part = Literal["xla", "kernel", "orders", "runtimes"]


def jacobians(
    parts: tuple[Part, ...] = ("xla", "kernel", "orders"),
    task: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 4096, 65536),
    repeats: int = 25,
    seconds: float = 10.0,
    memory: float = 3.0,
) -> Iterator[Table]:
    """Ratios to the faster of vmap(jacfwd) and vmap(jacrev); float32, jitted, interleaved.

    A ratio is the median over the repeats of a method's time to that of the faster mode in the same
    repeat. Tracing and compiling start from empty caches, and are shown as a multiple of jacrev's.
    `writing` is a program that only fills as many arrays as the Jacobian has: the bound set by
    memory.

    Args:
        parts: `xla`: the engine's orders, and two sparse forms; `kernel`: one kernel by batch and
            order, beside XLA; `orders`: for each task the order with the fewest operations against
            reverse, at 16,384 points; `runtimes`: the order with the fewest multiplications
            against reverse, as one kernel and by XLA, at as many.
        task: tasks, `lorenz_rollout` and `banded_residual`; by default those of each part.
        batch: batch sizes; at 1 the time is mostly dispatch.
        repeats: measurements of each method, at most; of the parts `orders` and
            `runtimes` the least counts.
        seconds: time after which the repeats for one function and batch end (at least five).
        memory: GiB that results of `xla` may take; larger batches are halved until they fit.
    """
    for part in parts:
        if part == "xla":
            yield from _by_xla(task or BY_XLA, batch, repeats, seconds, memory * 2**30)
        elif part == "kernel":
            yield (table := Table(*SPEED, key=3))
            for name, size in itertools.product(task or KERNELS, batch):
                _speed(table, find(name), size, repeats, seconds)
        elif part == "orders":
            yield (table := Table(*DECISIONS, key=1))
            for name in task or KERNELS:
                _decision(table, find(name), repeats)
        else:
            yield (table := Table(*RUN_TIMES, key=1))
            for name in task or KERNELS:
                _run_time(table, find(name), repeats, seconds)


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


def _speed(table: Table, case: Case, batch: int, repeats: int, seconds: float) -> None:
    args = singles(case, batch)
    methods = {mode: jax.vmap(make(case.fun, case.argnums)) for mode, make in MODES.items()}
    programs = {}
    for name, ids in orders_of(case, ORDERS).items():
        programs[f"kernel, {name}"] = _traced(case, ids)[0]
        fused, xla = (veenv.jacve(case.fun, ids, case.argnums, kernel=k) for k in BOTH)
        methods |= {f"kernel, {name}": jax.vmap(fused), f"XLA, {name}": jax.vmap(xla)}
    shapes = [leaf.shape for leaf in next(iter(programs.values())).outputs]
    first = jax.tree.leaves(args)[0].reshape(batch, -1)[:, :1]
    methods["writing"] = lambda *_: [
        (first * float(k)).reshape(batch, *(1 for _ in s)) + np.zeros(s, np.float32)
        for k, s in enumerate(shapes)
    ]
    timed = Timings(compiled(methods, args), args, seconds, repeats, _TURN)
    for method in methods:
        program = programs.get(method)
        counts = (program.size, program.work) if program else (None, None)
        table.add(case.name, batch, method, timed.ms(method), timed.spread(method), *counts)


def _decision(table: Table, case: Case, repeats: int) -> None:
    """The cheapest order by operations against reverse: counts, work and time."""
    args = singles(case, _ORDERS_BATCH)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    (least,) = orders_of(case, ORDERS[:1]).values()
    orders = {"reverse": graph.reverse(), "least": least}
    traced = {name: _traced(case, ids) for name, ids in orders.items()}
    runs = compiled({name: kernel for name, (_, kernel) in traced.items()}, args)
    times = {n: t.min() for n, t in Timings(runs, args, 20.0, 2 * repeats).times.items()}
    work = traced["least"][0].work / traced["reverse"][0].work
    ratios = f"{work:.2f}", f"**{times['least'] / times['reverse']:.2f}**"
    counts = (graph.cost(ids, "operations") for ids in (least, graph.reverse()))
    table.add(case.name, *counts, *ratios)


def _run_time(table: Table, case: Case, repeats: int, seconds: float) -> None:
    """Adds the multiplications of reverse and of the best order, and their ratios of time."""
    args = singles(case, _ORDERS_BATCH)
    graph = make_graph(case.fun, case.argnums)(*case.args)
    (best,) = orders_of(case, ("best",)).values()
    orders = {"reverse": graph.reverse(), "best": best}
    methods = {}
    for name, ids in orders.items():
        by_xla = veenv.jacve(case.fun, order=ids, argnums=case.argnums, kernel="xla")
        methods |= {f"kernel, {name}": _traced(case, ids)[1], f"XLA, {name}": jax.vmap(by_xla)}
    timed = Timings(compiled(methods, args), args, seconds, 2 * repeats)
    times = {name: float(measured.min()) for name, measured in timed.times.items()}
    reverse, least = (graph.cost(ids) for ids in orders.values())
    ratios = (times[f"{kind}, best"] / times[f"{kind}, reverse"] for kind in ("kernel", "XLA"))
    table.add(case.name, reverse, least, *(f"{x:.2f}" for x in (least / reverse, *ratios)))
