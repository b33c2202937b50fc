"""How the engine's memory and tracing time grow with the size of a function."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.cases import banded_residual
from scripts.benchmarks.functions.unrolled import functions
from scripts.benchmarks.machine import machine


def memory(sizes: tuple[int, ...] = (1000, 10_000, 100_000)) -> None:
    """Bytes that the sparse Jacobian of the banded residual takes, for each entry of its argument.

    Args:
        sizes: sizes of the argument.
    """
    print(machine() + "\n\n| entries of x | bytes an entry |\n| ---: | ---: |")
    for size in sizes:
        x = jnp.linspace(0.1, 1.0, size)
        jacobian = veenv.jacve(banded_residual, sparse_representation=True)
        analysis = jax.jit(jacobian).lower(x).compile().memory_analysis()
        if analysis is None:
            raise SystemExit("this backend does not say how much memory a program takes")
        total = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
        print(f"| {size:,} | {total / size:.1f} |", flush=True)


def tracing(
    sizes: tuple[int, ...] = (1000, 10_000), function: tuple[str, ...] = (), repeats: int = 3
) -> None:
    """Seconds to trace a reverse elimination of many scalar equations, and to trace and lower.

    The second table is of functions of many equal equations, under `jit`. A kernel is compiled
    while it is lowered for the first time, which is a column of its own; the others are medians.

    Args:
        sizes: numbers of equations.
        function: names of functions of equal equations; all by default.
        repeats: how often each is traced and lowered after the first time, in turn with jacrev.
    """
    print(machine() + "\n\n| equations | jacve, s | jacrev, s |\n| ---: | ---: | ---: |")
    for size in sizes:
        fun, x = _long_program(size), jnp.full(4, 0.3)
        ours = _seconds(jax.make_jaxpr(veenv.jacve(fun, "reverse", kernel="xla")), x)
        theirs = _seconds(jax.make_jaxpr(jax.jacrev(fun)), x)
        print(f"| {size:,} | {ours:.2f} | {theirs:.2f} |", flush=True)
    print(
        "\n| function | jacve, first, s | jacve, s | jacrev, s | ratio |\n| --- |" + " ---: |" * 4
    )
    for name, (fun, x) in functions().items():
        if function and name not in function:
            continue
        pairs = [_lowered(fun, x) for _ in range(repeats + 1)]
        ours, theirs = np.median(pairs[1:], 0)
        row = f"{pairs[0][0]:.2f} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.1f}"
        print(f"| {name} | {row} |", flush=True)


def _lowered(fun: Callable[..., Any], x: jax.Array) -> tuple[float, float]:
    """Seconds of tracing and lowering a Jacobian by `jacve`, and by `jacrev`."""
    seconds = []
    for jacobian in (veenv.jacve(fun), jax.jacrev(fun)):
        jax.clear_caches()
        seconds.append(_seconds(jax.jit(jacobian).lower, x))
    return seconds[0], seconds[1]


def _seconds(run: Callable[..., Any], x: jax.Array) -> float:
    start = time.perf_counter()
    run(x)
    return time.perf_counter() - start


def _long_program(size: int) -> Callable[[jax.Array], jax.Array]:
    picks = np.random.default_rng(0).integers(0, 4, (size // 2, 2))

    def fun(x: jax.Array) -> jax.Array:
        values = list(x)
        for i, j in picks:
            values[i] = jnp.sin(values[i] * values[j])
        return jnp.stack(values)

    return fun
