"""Solves of other libraries as one kernel by `veenv.fuse`, beside `jit(vmap)` of the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp

import veenv
from scripts.benchmarks.programs import Race, compiled
from scripts.benchmarks.tables import Table, named

COLUMNS = (
    "solve", "dtype", "batch", "jit(vmap), ms", "fused, ms", "ratio", "first call", "difference",
)  # fmt: skip


def libraries(
    solve: tuple[str, ...] = (),
    batch: tuple[int, ...] = (64, 2048),
    seconds: float = 2.0,
    dtype: Literal["float32", "float64"] = "float32",
) -> Iterator[Table]:
    """Ratios of fused solves to `jit(vmap(solve))`, as the pages of each library call them.

    Both are timed interleaved; a ratio is the median over the rounds. The first call is tracing and
    compiling, as a ratio. The difference is that of the results, in relation to the largest. It
    needs diffrax, optimistix, lineax, jaxopt and optax. The second table is of derivatives. Rows
    that are not measured now stay.

    Args:
        solve: names of solves; all by default.
        batch: numbers of solves.
        seconds: time after which the rounds for one solve and batch end (at least five).
        dtype: of all numbers.
    """
    from scripts.benchmarks.functions.solves import DERIVATIVES, SOLVES

    wanted = named(solve, [*SOLVES, *DERIVATIVES], "solve")
    with jax.enable_x64(dtype == "float64"):
        compiled({"": veenv.fuse(jnp.sin)}, (1.0,))  # loads what compiles
        for known in (SOLVES, DERIVATIVES):
            yield (table := Table(*COLUMNS, key=3))
            for name, one in ((name, one) for name, one in known.items() if name in wanted):
                mode = one.mode or (lambda fun: fun)
                methods = {"vmap": mode(one.fun), "fused": veenv.fuse(mode(one.fun))}
                for size in batch:
                    table.add(name, dtype, size, *_measured(methods, one.points(size), seconds))


def _measured(methods: Any, args: Any, seconds: float) -> tuple[Any, ...]:
    """The cells of a row behind its name."""
    programs = compiled({name: jax.vmap(fun) for name, fun in methods.items()}, args)
    race = Race(programs, args, seconds)
    first = programs["fused"].compile / programs["vmap"].compile
    apart = difference(*(programs[name].run(*args) for name in ("fused", "vmap")))
    ratio = f"**{race.ratio('fused', 'vmap'):.2g}**"
    return race.ms("vmap"), race.ms("fused"), ratio, f"{first:.2g}", f"{apart:.0e}"


def difference(found: Any, expected: Any) -> float:
    """The largest difference of two trees of arrays, in relation to the largest number."""
    worst = 0.0
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        same = (x == y) | (jnp.isnan(x) & jnp.isnan(y))
        largest = jnp.max(jnp.where(jnp.isfinite(y), jnp.abs(y), 0), initial=1e-30)
        worst = max(worst, float(jnp.max(jnp.where(same, 0, jnp.abs(x - y))) / largest))
    return worst
