"""Whole steps as one kernel by `veenv.fuse`, beside the same steps with JAX's modes inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.loops import LOOPS
from scripts.benchmarks.functions.points import POINTS
from scripts.benchmarks.functions.steps import STEPS, Jacobian, Step, valued
from scripts.benchmarks.generated_code import against_generated
from scripts.benchmarks.machine import machine
from scripts.benchmarks.realistic import compile_seconds, compiled, named, timed
from scripts.benchmarks.record import cells, kept
from veenv.measure.timing import near
from veenv.rules.passes import REFUSALS

COLUMNS = "step", "batch", "faster mode", "ms", "kernel, ms", "ratio", "first call"
_AT_LOOPS, _AT_POINTS = (256, 4096), (512,)
"""Batches of long loops, whose reverse mode fills the memory, and of batches inside already."""
FORWARD, REVERSE, KERNEL = "jacfwd", "jacrev", "kernel"


def of_loop(fun: Callable[..., Any], argnums: Any) -> Callable[[Jacobian], Step]:
    """The Jacobian of a function alone, as a step."""
    return lambda jacobian: lambda *args: jacobian(fun, argnums=argnums)(*args)[1]


ALL: Mapping[str, tuple[Callable[[Jacobian], Step], tuple[Any, ...]]] = {
    **STEPS,
    **{
        name: (of_loop(fun, argnums), args)
        for name, (fun, args, argnums) in {**LOOPS, **POINTS}.items()
    },
    **{f"{name}, value": (lambda _, f=fun: f, args) for name, (fun, args, _) in POINTS.items()},
}


def fuse(
    step: tuple[str, ...] = (),
    batch: tuple[int, ...] = (1, 256, 4096, 65536),
    seconds: float = 3.0,
    out: Path = Path("docs/results/fuse.json"),
    parts: Literal["modes", "generated"] = "modes",
) -> None:
    """Ratios of a fused step to the faster of the same step with jacfwd or jacrev; float32.

    All are `jit(vmap)`, timed interleaved; a ratio is the median over the rounds of the kernel's
    time to that of the faster mode in the same round. The first call is tracing and compiling, as
    a ratio to that of the faster mode, the median of three where it takes less than a second.

    Args:
        step: names of steps; all by default. Named ones are measured again, others kept.
        batch: numbers of points; loops are measured at 256 and 4,096 of them, functions with points
            inside at 512.
        seconds: time after which the rounds for one step and batch end (at least five).
        out: file of the table; steps and batches that are not measured now stay in it.
        parts: against `modes` of JAX, or code `generated` by CasADi and SymForce, where they are
            installed, on one core; that goes to a file beside `out`.
    """
    if parts == "generated":
        return against_generated(seconds, out.with_name("fuse_generated.json"))
    known = json.loads(out.read_text("utf-8"))["tables"][0]["rows"] if out.exists() else []
    rows = {(row[0], row[1]): row for row in known if row[0] in ALL}
    compiled(veenv.fuse(jnp.sin), (1.0,))  # loads what compiles
    print(f"{machine()}\n\n| {' | '.join(COLUMNS)} |\n| --- | ---: | --- |" + " ---: |" * 4)
    place = list(ALL)
    for name in named(step, ALL):
        for size in _sizes(name, batch):
            line = _line(name, size, seconds)
            print(line, flush=True)
            row = cells(line)
            rows[row[0], row[1]] = row
            in_order = sorted(rows.values(), key=lambda r: (place.index(r[0]), len(r[1]), r[1]))
            kept(out, "python scripts/benchmark.py fuse", COLUMNS, in_order)
    print(f"\nfigures: {out}")


def _sizes(name: str, batch: Sequence[int]) -> Sequence[int]:
    """The batches at which a step is measured."""
    if name in LOOPS:
        return [size for size in batch if size in _AT_LOOPS]
    return _AT_POINTS if name.removesuffix(", value") in POINTS else batch


def _line(name: str, size: int, seconds: float) -> str:
    """The row of a step at a batch, in Markdown."""
    make, args = ALL[name]
    points = jax.tree.map(_keys_apart, jax.tree.map(jnp.asarray, near(args, [0], size)))
    steps = {
        FORWARD: make(valued(jax.jacfwd)),
        REVERSE: make(valued(jax.jacrev)),
        KERNEL: veenv.fuse(make(veenv.value_and_jacve)),
    }
    took, ready = {}, {}
    for method, fun in steps.items():
        try:
            took[method] = compile_seconds(jax.vmap(fun), points)
        except REFUSALS:  # as reverse mode has none of a `while`
            if method == KERNEL:
                raise
            continue
        ready[method] = compiled(jax.vmap(fun), points)
    times = timed(ready, points, seconds)
    modes = [m for m in (FORWARD, REVERSE) if m in ready]
    faster = np.min([times[m] for m in modes], axis=0)
    mode = min(modes, key=lambda m: float(np.median(times[m])))
    ms = [1e3 * float(np.median(x)) for x in (faster, times[KERNEL])]
    ratio = float(np.median(times[KERNEL] / faster))
    first = took[KERNEL] / took[mode]
    return (
        f"| {name} | {size:,} | {mode} | {ms[0]:.3g} | {ms[1]:.3g} | **{ratio:.2g}** "
        f"| {first:.2g} |"
    )


def _keys_apart(x: jax.Array) -> jax.Array:
    """A key of its own for each point; other arrays as they are."""
    return jax.random.bits(jax.random.key(0), x.shape) if x.dtype == jnp.uint32 else x
