"""The engine against JAX's two modes: ratios of paired, interleaved measurements in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.cases import DEFAULT, Case, banded_residual, find, orders_of, points
from scripts.benchmarks.machine import machine
from veenv.measure.timing import SHORTEST, interleaved
from veenv.structure import product, structure

COLUMNS = (
    "function",
    "batch",
    "order",
    "ms",
    "jacfwd",
    "jacrev",
    "ratio (10 … 90 %)",
    "trace + compile",
    "flops/point",
    "jacfwd",
    "jacrev",
    "temporary MiB",
    "jacfwd",
    "jacrev",
)
COMPILATIONS = 5
"""How often each program is traced and compiled, in turn with the others."""

Methods = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Program:
    """A compiled way to a Jacobian.

    Attributes:
      run: the compiled program.
      seconds: what tracing and compiling it took, each time.
      flops: floating-point operations by XLA's count.
      temporary: bytes of temporary memory.
      total: bytes of arguments, results and temporary memory.
    """

    run: Callable[..., Any]
    seconds: np.ndarray
    flops: float
    temporary: int
    total: int


def engine(
    task: tuple[str, ...] = DEFAULT,
    batch: tuple[int, ...] = (1, 4096, 65536),
    orders: tuple[str, ...] = ("best", "best-executed", "reverse"),
    repeats: int = 25,
    seconds: float = 10.0,
    memory: float = 3.0,
    sparse: bool = True,
) -> None:
    """A Markdown table of vmap(jacve(f, order)) next to jax.jacfwd and jax.jacrev, float32, jitted.

    Every repeat times all methods once, one after the other; the ratio is the median over repeats
    of a method's time to the faster of jacfwd and jacrev in the same repeat.  Tracing and
    compiling are timed with empty caches, also in turn, and shown as a multiple of jacrev's, the
    median of five.  A program of less than two milliseconds is called several times in its turn.

    Args:
        task: tasks, `lorenz_rollout` and `banded_residual`.
        batch: batch sizes of the outer vmap; at 1 the time is mostly dispatch.
        orders: orders for jacve; `best` is the shipped order with fewest multiplications under
            the literature's count, `best-executed` under the count of those that are run. Where
            none is shipped, the classical one with the lowest count stands in, by its name.
        repeats: measurements of each method, at most.
        seconds: time after which the repeats for one function and batch end (at least five).
        memory: GiB that one program may take; larger batches are halved until they fit.
        sparse: also the sparse forms: the banded residual, and jacve(vmap(RoeFlux_1d)) at 512.
    """
    print(machine() + "\n\n| " + " | ".join(COLUMNS) + " |")
    print("| --- | ---: | --- |" + " ---: |" * (len(COLUMNS) - 3))
    found: dict[int, dict[str, float]] = {wanted: {} for wanted in batch if wanted > 1}
    for name in task:
        case, done = find(name), dict[int, float]()
        methods = _methods(case, orders)
        for wanted in batch:
            size, programs = _fitting(methods, case, wanted, memory * 2**30)
            if size not in done:
                times = timed(programs, points(case, size), repeats, seconds)
                done[size] = _rows(case.name, size, size, programs, times)
            if wanted > 1:
                found[wanted][case.name] = done[size]
    if sparse:
        for name, methods, args, size in _sparse_forms():
            programs = _compiled(methods, args)
            _rows(name, size, 1, programs, timed(programs, args, repeats, seconds))
    for wanted, ratios in found.items():
        _summary(wanted, ratios)


def _methods(case: Case, orders: tuple[str, ...]) -> Methods:
    methods = {
        "jacfwd": jax.vmap(jax.jacfwd(case.fun, case.argnums)),
        "jacrev": jax.vmap(jax.jacrev(case.fun, case.argnums)),
    }
    for name, ids in orders_of(case, orders).items():
        methods[name] = jax.vmap(veenv.jacve(case.fun, ids, case.argnums, kernel="xla"))
    return methods


def _sparse_forms() -> list[tuple[str, Methods, tuple[Any, ...], int]]:
    """Name, ways to the Jacobian, arguments and batch of each function with a sparse form."""
    roe = find("RoeFlux_1d")
    batched = jax.vmap(roe.fun)
    x = jnp.linspace(0.1, 1.0, 1000)
    forms = []
    for name, fun, args, argnums, size in (
        ("banded_residual, sparse", banded_residual, (x,), 0, 1),
        ("jacve(vmap(RoeFlux_1d)), sparse", batched, points(roe, 512), roe.argnums, 512),
    ):
        methods = {
            "jacfwd": jax.jacfwd(fun, argnums),
            "jacrev": jax.jacrev(fun, argnums),
            "reverse": veenv.jacve(fun, "reverse", argnums, sparse_representation=True),
        }
        forms.append((name, methods, args, size))
    return forms


def _fitting(
    methods: Methods, case: Case, size: int, limit: float
) -> tuple[int, dict[str, Program]]:
    """The programs at the batch, which is halved until each fits into `limit` bytes."""
    result = jax.eval_shape(methods["jacrev"], *points(case, 1))
    need = 2 * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(result)) * size
    while True:
        while size > 1 and need > limit:
            size, need = size // 2, need // 2
        programs = _compiled(methods, points(case, size))
        need = max(p.total for p in programs.values())
        if size == 1 or need <= limit:
            return size, programs


def _compiled(methods: Methods, args: tuple[Any, ...]) -> dict[str, Program]:
    """Traces and compiles each method several times, in turn, as if for the first time."""
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    runs = {}
    for _ in range(COMPILATIONS):
        for name, method in methods.items():
            jax.clear_caches()
            product.multiply.cache_clear()
            structure.add.cache_clear()
            start = time.perf_counter()
            runs[name] = jax.jit(method).lower(*args).compile()
            seconds[name].append(time.perf_counter() - start)
    return {name: _program(run, np.array(seconds[name])) for name, run in runs.items()}


def _program(run: Any, seconds: np.ndarray) -> Program:
    """A compiled program with what the compiler says of it."""
    memory, cost = run.memory_analysis(), run.cost_analysis() or {}
    if memory is None:
        raise SystemExit("this backend does not say how much memory a program takes")
    temporary = memory.temp_size_in_bytes
    total = temporary + memory.output_size_in_bytes + memory.argument_size_in_bytes
    return Program(run, seconds, cost.get("flops", 0.0), temporary, total)


def timed(
    programs: Mapping[str, Program], args: tuple[Any, ...], repeats: int, budget: float
) -> dict[str, np.ndarray]:
    """Seconds of a call of each program in each repeat; all take their turn in every repeat."""
    runs = {name: program.run for name, program in programs.items()}
    return interleaved(runs, args, repeats, shortest=SHORTEST, seconds=budget)


def _rows(
    name: str,
    batch: int,
    points: int,
    programs: Mapping[str, Program],
    times: Mapping[str, np.ndarray],
) -> float:
    """Prints a row for each order; returns the least ratio."""
    faster = np.minimum(times["jacfwd"], times["jacrev"])
    forward, reverse = programs["jacfwd"], programs["jacrev"]
    ratios = []
    for order, program in programs.items():
        if order in ("jacfwd", "jacrev"):
            continue
        low, ratio, high = np.quantile(times[order] / faster, [0.1, 0.5, 0.9])
        ratios.append(float(ratio))
        cells = [name, f"{batch:,}", order]
        cells += [_milliseconds(times[m]) for m in (order, "jacfwd", "jacrev")]
        cells += [f"**{ratio:.2g}** ({low:.2g} … {high:.2g})"]
        cells += [f"{np.median(program.seconds / reverse.seconds):.2f}"]
        cells += [f"{p.flops / points:,.0f}" for p in (program, forward, reverse)]
        cells += [f"{p.temporary / 2**20:.1f}" for p in (program, forward, reverse)]
        print("| " + " | ".join(cells) + " |", flush=True)
    return min(ratios)


def _milliseconds(seconds: np.ndarray) -> str:
    return f"{np.median(seconds) * 1e3:.3g}"


def _summary(batch: int, ratios: Mapping[str, float]) -> None:
    print(f"\nRatio of the better of the orders at batch {batch:,}, or the largest that fits:")
    print("; ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    for limit in (1.0, 0.75, 0.35):
        print(f"- at most {limit}: {sum(r <= limit for r in ratios.values())} of {len(ratios)}")
