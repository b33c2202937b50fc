"""Sparse Jacobians of one function in several writings, which should cost the same."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.writings import PROBLEMS
from scripts.benchmarks.functions.writings import writings as writings_of
from scripts.benchmarks.sparse import warm
from scripts.benchmarks.tables import Table
from veenv.measure.timing import interleaved


def writings(
    problem: tuple[str, ...] = tuple(PROBLEMS),
    scale: float = 1.0,
    repeats: int = 30,
) -> Iterator[Table]:
    """Entries, equations and times of each problem in six writings, in float64.

    Ratios are to the fastest writing of the problem: "over" of milliseconds a call, "first over" of
    the seconds until the first result. The writings of a problem are measured in turn.

    Args:
        problem: names of the problems.
        scale: of their sizes, by 0.1 a tenth.
        repeats: calls of each writing, at least; the median is shown.
    """
    jax.config.update("jax_enable_x64", True)
    warm()
    table = Table(
        "problem", "writing", "stored", "equations", "ms", "over", "first", "first over", "jacfwd's"
    )
    yield table
    for name in problem:
        default = PROBLEMS[name].__defaults__
        assert default is not None
        made = PROBLEMS[name](max(2, round(scale * default[0])))
        x = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, made.size))
        ready, first, rows = {}, {}, {}
        for writing, fun in writings_of(made).items():
            jax.eval_shape(fun, x)  # JAX remembers what it traced first
            seconds = []
            for jacobian in (jax.jacfwd(fun), veenv.jacve(fun, sparse_representation=True)):
                began = time.perf_counter()
                ready[writing] = jax.jit(jacobian)
                found = jax.block_until_ready(ready[writing](x))
                seconds.append(time.perf_counter() - began)
            equations = len(jax.make_jaxpr(ready[writing])(x).eqns[0].params["jaxpr"].eqns)
            rows[writing] = (found.nse, equations, round(seconds[0], 3))
            first[writing] = seconds[1]
        times = interleaved(ready, (x,), 20 * repeats, seconds=0.5, fewest=repeats)
        ms = {writing: 1e3 * float(np.median(t)) for writing, t in times.items()}
        for writing, (stored, equations, jax_first) in rows.items():
            over, later = ms[writing] / min(ms.values()), first[writing] / min(first.values())
            numbers = stored, equations, round(ms[writing], 4), round(over, 2)
            table.add(
                name, writing, *map(str, numbers), f"{first[writing]:.3f}", f"{later:.2f}",
                str(jax_first),
            )  # fmt: skip
