"""The engine against JAX's two modes: ratios of paired, interleaved measurements in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

import veenv
from scripts.benchmarks.cases import Case, banded_residual, find, orders_of, singles
from scripts.benchmarks.programs import MODES, Compiled, Timings, compiled
from scripts.benchmarks.tables import Table
from veenv.measure.timing import SHORTEST

TASKS = tuple(
    "RoeFlux_1d RoeFlux_3d RobotArm_6DOF HumanHeartDipole PropaneCombustion mlp Encoder "
    "lorenz_rollout banded_residual".split()
)
COMPILATIONS = 5
"""How often a program is compiled, in turn with the others, if that takes less than a second."""

Methods = Mapping[str, Callable[..., Any]]


def engine(
    task: tuple[str, ...] = TASKS,
    batch: tuple[int, ...] = (1, 4096, 65536),
    orders: tuple[str, ...] = ("best", "best-executed", "reverse"),
    repeats: int = 25,
    seconds: float = 10.0,
    memory: float = 3.0,
    sparse: bool = True,
) -> Iterator[Table]:
    """vmap(jacve(f, order)) next to jax.jacfwd and jax.jacrev, float32, jitted.

    Every repeat times all methods once, one after the other; the ratio is the median over repeats
    of a method's time to the faster of jacfwd and jacrev in the same repeat.  Tracing and
    compiling are timed with empty caches, also in turn, and shown as a multiple of jacrev's, by
    medians.  A program of less than two milliseconds is called several times in its turn.

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
    modes = "jacfwd", "jacrev"
    table = Table(
        *("function", "batch", "order", "ms", *modes, "ratio (10 … 90 %)", "trace + compile"),
        *("flops/point", *modes, "temporary MiB", *modes),
    )
    yield table

    def row(
        name: str, size: int, points: int, programs: Mapping[str, Compiled], args: Any
    ) -> float:
        """Adds a row for each order; the least ratio."""
        timed = Timings(programs, args, seconds, repeats, SHORTEST)
        ours = [order for order in programs if order not in MODES]
        for order in ours:
            three = [programs[m] for m in (order, *modes)]
            table.add(
                *(
                    name,
                    size,
                    order,
                    *(timed.ms(m) for m in (order, *modes)),
                    timed.spread(order),
                ),
                f"{three[0].compile / three[2].compile:.2f}",
                *((p.run.cost_analysis() or {}).get("flops", 0.0) / points for p in three),
                *(f"{p.memory.temp_size_in_bytes / 2**20:.1f}" for p in three),
            )
        return min(map(timed.ratio, ours))

    found: dict[int, dict[str, float]] = {wanted: {} for wanted in batch if wanted > 1}
    for name in task:
        case, done = find(name), dict[int, float]()
        methods = {mode: jax.vmap(make(case.fun, case.argnums)) for mode, make in MODES.items()}
        for order, ids in orders_of(case, orders).items():
            methods[order] = jax.vmap(veenv.jacve(case.fun, ids, case.argnums, kernel="xla"))
        for wanted in batch:
            size, programs = _fitting(methods, case, wanted, memory * 2**30)
            if size not in done:
                done[size] = row(case.name, size, size, programs, singles(case, size))
            if wanted > 1:
                found[wanted][case.name] = done[size]
    for name, fun, args, argnums, size in _sparse_forms() if sparse else ():
        methods = {mode: make(fun, argnums) for mode, make in MODES.items()}
        methods["reverse"] = veenv.jacve(fun, "reverse", argnums, sparse_representation=True)
        row(name, size, 1, compiled(methods, args, COMPILATIONS), args)
    limits = 1.0, 0.75, 0.35
    summary = Table("batch", "functions", *(f"best order at most {limit}" for limit in limits))
    yield summary
    for wanted, ratios in found.items():
        counts = (sum(r <= limit for r in ratios.values()) for limit in limits)
        summary.add(wanted, len(ratios), *counts)


def _sparse_forms() -> list[tuple[str, Callable[..., Any], tuple[Any, ...], Any, int]]:
    """Name, function, arguments, argnums and batch of each function with a sparse form."""
    roe = find("RoeFlux_1d")
    return [
        ("banded_residual, sparse", banded_residual, (jnp.linspace(0.1, 1.0, 1000),), 0, 1),
        ("jacve(vmap(RoeFlux_1d)), sparse", jax.vmap(roe.fun), singles(roe, 512), roe.argnums, 512),
    ]


def _fitting(
    methods: Methods, case: Case, size: int, limit: float
) -> tuple[int, dict[str, Compiled]]:
    """The programs at the batch, which is halved until each fits into `limit` bytes."""
    result = jax.eval_shape(methods["jacrev"], *singles(case, 1))
    need = 2 * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(result)) * size
    while True:
        while size > 1 and need > limit:
            size, need = size // 2, need // 2
        programs = compiled(methods, singles(case, size), COMPILATIONS)
        need = max(p.bytes + p.memory.argument_size_in_bytes for p in programs.values())
        if size == 1 or need <= limit:
            return size, programs
