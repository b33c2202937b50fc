"""Whole steps as one kernel by `veenv.fuse`, beside the same steps with JAX's modes inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

import veenv
from scripts.benchmarks.functions.case import points
from scripts.benchmarks.functions.loops import LOOPS
from scripts.benchmarks.functions.points import POINTS
from scripts.benchmarks.functions.steps import STEPS, Jacobian, Step, valued
from scripts.benchmarks.linear_algebra import linear_algebra
from scripts.benchmarks.programs import MODES, Timings, compiled
from scripts.benchmarks.tables import Table, named
from veenv.rules.passes import REFUSALS

_AT_STEPS, _AT_LOOPS, _AT_POINTS = (1, 256, 4096, 65536), (256, 4096), (512,)
"""Batches of steps, of long loops, whose reverse mode fills the memory, and of batches
inside already."""


def alone(fun: Callable[..., Any], argnums: Any) -> Callable[[Jacobian], Step]:
    """The Jacobian of a function alone, as a step."""
    return lambda jacobian: lambda *args: jacobian(fun, argnums=argnums)(*args)[1]


ALL: Mapping[str, tuple[Callable[[Jacobian], Step], tuple[Any, ...]]] = {
    **STEPS,
    **{c.name: (alone(c.fun, c.argnums), c.args) for c in (LOOPS | POINTS).values()},
    **{f"{c.name}, value": (lambda _, f=c.fun: f, c.args) for c in POINTS.values()},
}


def fuse(
    step: tuple[str, ...] = (),
    batch: tuple[int, ...] = (),
    seconds: float = 3.0,
    parts: tuple[Literal["steps", "systems"], ...] = ("steps",),
    matrices: tuple[str, ...] = (),
    size: tuple[int, ...] = (4, 8, 16, 32, 64, 128),
) -> Iterator[Table]:
    """Ratios of a fused step to the faster of the same step with jacfwd or jacrev; float32.

    All are `jit(vmap)`, timed interleaved; a ratio is the median over the rounds of the kernel's
    time to that of the faster mode in the same round. The first call is tracing and compiling, as
    a ratio to that of the faster mode, the median of three where it takes less than a second.
    Steps and batches that are not measured now stay in the file.

    Args:
        step: names of steps; all by default.
        batch: numbers of points, by default 1, 256, 4,096 and 65,536, of systems 1, 64 and 2,048;
            loops are measured at 256 and 4,096 of them, functions with points inside at 512.
        seconds: time after which the rounds for one step and batch end (at least five).
        parts: the steps, and systems: solves and factors of one matrix, beside XLA's (six minutes).
        matrices: names of functions of a matrix, Cholesky, solve or QR; all by default.
        size: rows of the matrices.
    """
    if "systems" in parts:
        yield from linear_algebra(matrices, size, batch or (1, 64, 2048), seconds)
    if "steps" not in parts:
        return
    compiled({"": veenv.fuse(jnp.sin)}, (1.0,))  # loads what compiles
    columns = "step", "batch", "faster mode", "ms", "kernel, ms", "ratio", "first call"
    table = Table(*columns, key=2)
    yield table
    for name in named(step, ALL, "step"):
        sizes = _AT_POINTS if name.removesuffix(", value") in POINTS else batch or _AT_STEPS
        for count in (s for s in sizes if name not in LOOPS or s in _AT_LOOPS):
            make, point = ALL[name]
            args = jax.tree.map(_keys_apart, points(point, count))
            methods = {mode: make(valued(jacobian)) for mode, jacobian in MODES.items()}
            methods["kernel"] = veenv.fuse(make(veenv.value_and_jacve))
            programs = compiled({m: jax.vmap(f) for m, f in methods.items()}, args, 3, REFUSALS)
            timed = Timings(programs, args, seconds)
            cells = timed.mode, timed.ms(timed.mode), timed.ms("kernel")
            ratio = f"**{timed.ratio('kernel'):.2g}**"
            table.add(name, count, *cells, ratio, timed.first("kernel"))


def _keys_apart(x: jax.Array) -> jax.Array:
    """A key of its own for each point; other arrays as they are."""
    return jax.random.bits(jax.random.key(0), x.shape) if x.dtype == jnp.uint32 else x
