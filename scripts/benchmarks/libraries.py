"""Solves of other libraries as one kernel by `veenv.fuse`, beside `jit(vmap)` of the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp

import veenv
from scripts.benchmarks.programs import Timings, compiled, difference
from scripts.benchmarks.tables import Table, named

COLUMNS = (
    "solve", "dtype", "batch", "jit(vmap), ms", "fused, ms", "ratio", "first call", "difference",
)  # fmt: skip
_USUAL = 2048


def libraries(
    solve: tuple[str, ...] = (),
    batch: tuple[int, ...] = (64, 2048, 65536),
    seconds: float = 0.5,
    dtype: tuple[Literal["float32", "float64"], ...] = ("float32", "float64"),
) -> Iterator[Table]:
    """Ratios of fused solves to `jit(vmap(solve))`, as the pages of each library call them.

    Both are timed interleaved; a ratio is the median over the rounds. The first call is tracing and
    compiling, as a ratio. The difference is that of the results, in relation to the largest. It
    needs diffrax, optimistix, lineax, jaxopt, optax and blackjax. The second table is of
    derivatives. Rows that are not measured now stay.

    Args:
        solve: names of solves; all by default.
        batch: numbers of solves; of other numbers than 2,048 a few solves alone are measured.
        seconds: time after which the rounds for one solve and batch end (at least five).
        dtype: of all numbers.
    """
    from scripts.benchmarks.functions.solves import DERIVATIVES, SCALED, SOLVES

    wanted = named(solve, [*SOLVES, *DERIVATIVES], "solve")
    compiled({"": veenv.fuse(jnp.sin)}, (1.0,))  # loads what compiles
    for known in (SOLVES, DERIVATIVES):
        yield (table := Table(*COLUMNS, key=3))
        for name, one in ((name, one) for name, one in known.items() if name in wanted):
            mode = one.mode or (lambda fun: fun)
            methods = {"vmap": mode(one.fun), "fused": veenv.fuse(mode(one.fun))}
            few = known is SOLVES and name in SCALED
            sizes = [n for n in batch if n == _USUAL or solve or few]
            for size, kind in ((size, kind) for size in sizes for kind in dtype):
                with jax.enable_x64(kind == "float64"):
                    table.add(name, kind, size, *_measured(methods, one.points(size), seconds))


def _measured(methods: Any, args: Any, seconds: float) -> tuple[Any, ...]:
    """The cells of a row behind its name."""
    timed = Timings(compiled({n: jax.vmap(f) for n, f in methods.items()}, args), args, seconds)
    apart = difference(*(timed.programs[name].run(*args) for name in ("fused", "vmap")))
    ratio = f"**{timed.ratio('fused', 'vmap'):.2g}**"
    ms = timed.ms("vmap"), timed.ms("fused")
    return *ms, ratio, timed.first("fused", "vmap"), f"{apart:.0e}"
