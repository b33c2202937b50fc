"""How the engine's memory and tracing time grow with the size of a function."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from benchmark_cases import banded_residual
from benchmark_machine import machine

import veenv


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


def tracing(sizes: tuple[int, ...] = (1000, 10_000)) -> None:
    """Seconds to trace a reverse elimination of a function of many scalar equations.

    Args:
        sizes: numbers of equations.
    """
    print(machine() + "\n\n| equations | jacve, s | jacrev, s |\n| ---: | ---: | ---: |")
    for size in sizes:
        fun = _long_program(size)
        start = time.perf_counter()
        jax.make_jaxpr(veenv.jacve(fun, "reverse", kernel="xla"))(jnp.full(4, 0.3))
        ours = time.perf_counter() - start
        start = time.perf_counter()
        jax.make_jaxpr(jax.jacrev(fun))(jnp.full(4, 0.3))
        theirs = time.perf_counter() - start
        print(f"| {size:,} | {ours:.2f} | {theirs:.2f} |", flush=True)


def _long_program(size: int) -> Callable[[jax.Array], jax.Array]:
    picks = np.random.default_rng(0).integers(0, 4, (size // 2, 2))

    def fun(x: jax.Array) -> jax.Array:
        values = list(x)
        for i, j in picks:
            values[i] = jnp.sin(values[i] * values[j])
        return jnp.stack(values)

    return fun
