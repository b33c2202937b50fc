"""Solves of other libraries as one kernel by `veenv.fuse`, beside `jit(vmap)` of the same."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.programs import Timings, compiled, difference
from scripts.benchmarks.tables import Table, has, named

COLUMNS = (
    "solve", "dtype", "batch", "jit(vmap), ms", "fused, ms", "ratio", "first call", "difference",
)  # fmt: skip
MADE = (
    "equation", "trajectories", "CVODE, µs each", "fused, µs each", "ratio", "difference",
)  # fmt: skip
_TOLERANCES = 1e-6, 1e-9
_USUAL = 2048
_BY_CVODE = 64
"""Trajectories that CVODE computes, one after the other."""


def libraries(
    solve: tuple[str, ...] = (),
    batch: tuple[int, ...] = (64, 2048, 65536),
    seconds: float = 0.5,
    dtype: tuple[str, ...] = ("float32", "float64"),
    every: bool = False,
) -> Iterator[Table]:
    """Ratios of fused solves to `jit(vmap(solve))`, as the pages of each library call them.

    Both are timed interleaved; a ratio is the median over the rounds. The first call is tracing and
    compiling, as a ratio. The difference is that of the results, in relation to the largest. It
    needs diffrax, optimistix, lineax, jaxopt, optax and blackjax. The second table is of
    derivatives. The third compares trajectories with CVODE, of scikit-sundae, on one core; it is
    empty where that is not installed. Rows that are not measured now stay.

    Args:
        solve: names of solves; all by default.
        batch: numbers of solves; of other numbers than 2,048 a few solves alone are measured.
        seconds: time after which the rounds for one solve and batch end (at least five).
        dtype: of all numbers, "float32", "float64" or both.
        every: measure all solves at each number.
    """
    from scripts.benchmarks.functions.solves import DERIVATIVES, SCALED, SOLVES

    named(dtype, ("float32", "float64"), "dtype")
    wanted = named(solve, [*SOLVES, *DERIVATIVES], "solve")
    compiled({"": veenv.fuse(jnp.sin)}, (1.0,))  # loads what compiles
    for known in (SOLVES, DERIVATIVES):
        yield (table := Table(*COLUMNS, key=3))
        for name, one in ((name, one) for name, one in known.items() if name in wanted):
            mode = one.mode or (lambda fun: fun)
            methods = {"vmap": mode(one.fun), "fused": veenv.fuse(mode(one.fun))}
            few = known is SOLVES and name in SCALED
            sizes = [n for n in batch if n == _USUAL or every or solve or few]
            for size, kind in ((size, kind) for size in sizes for kind in dtype):
                with jax.enable_x64(kind == "float64"):
                    table.add(name, kind, size, *_measured(methods, one.points(size), seconds))
    yield (table := Table(*MADE, key=2))
    table.changed()
    if has("sksundae") and not solve:
        _beside_cvode(table)


def _measured(methods: Any, args: Any, seconds: float) -> tuple[Any, ...]:
    """The cells of a row behind its name."""
    programs = compiled({name: jax.vmap(fun) for name, fun in methods.items()}, args)
    timed = Timings(programs, args, seconds)
    first = programs["fused"].compile / programs["vmap"].compile
    apart = difference(*(programs[name].run(*args) for name in ("fused", "vmap")))
    ratio = f"**{timed.ratio('fused', 'vmap'):.2g}**"
    return timed.ms("vmap"), timed.ms("fused"), ratio, f"{first:.2g}", f"{apart:.0e}"


def _beside_cvode(table: Table) -> None:
    """Trajectories of each equation, on one core, at the same tolerances."""
    from sksundae.cvode import CVODE  # pyright: ignore[reportMissingImports]

    from scripts.benchmarks.functions.trajectories import TRAJECTORIES

    with jax.enable_x64(True), _one_core():
        for name, one in TRAJECTORIES.items():
            few, many = one.parameters(_BY_CVODE), one.parameters(_USUAL)
            run = one.by_cvode(CVODE, *_TOLERANCES)
            run(few[0])  # numba compiles
            fused = jax.jit(jax.vmap(veenv.fuse(lambda p, one=one: one.solve(p, *_TOLERANCES))))
            mine = np.asarray(fused(few))
            fused(many).block_until_ready()
            theirs, there = _timed(lambda run=run, few=few: np.array([run(p) for p in few]))
            _, here = _timed(lambda fused=fused, many=many: fused(many).block_until_ready())
            there, here = 1e6 * there / len(few), 1e6 * here / len(many)
            ratio, apart = f"**{here / there:.2g}**", difference(mine, theirs)
            table.add(name, _USUAL, there, here, ratio, f"{apart:.0e}")


def _timed(run: Callable[[], Any], times: int = 3) -> tuple[Any, float]:
    """A result, and the least seconds of the process that it took."""
    found, least = None, np.inf
    for _ in range(times):
        began = time.process_time()
        found = run()
        least = min(least, time.process_time() - began)
    return found, least


@contextmanager
def _one_core() -> Iterator[None]:
    """All threads of the process on one core, where the system can."""
    threads = [int(path.name) for path in Path("/proc/self/task").glob("*")]
    if not threads or not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    try:
        _pin(threads, {min(cores)})
        yield
    finally:
        _pin([int(path.name) for path in Path("/proc/self/task").glob("*")], cores)


def _pin(threads: Sequence[int], cores: set[int]) -> None:
    """Has threads run on some cores; those that have ended are none of it."""
    for thread in threads:
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            continue
