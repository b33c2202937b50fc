"""Sparse Jacobians of one function in several writings, which should cost the same."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.writings import PROBLEMS
from scripts.benchmarks.functions.writings import writings as writings_of
from scripts.benchmarks.sparse import in_turn, ready, warm
from scripts.benchmarks.tables import Table


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
        repeats: calls of each writing, at least; shown is the time below which a tenth of them is.
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
        runs, first, others = {}, {}, {}
        for writing, fun in writings_of(made).items():
            jax.eval_shape(fun, x)  # JAX remembers what it traced first
            others[writing] = ready({writing: jax.jacfwd(fun)}, x)[1][writing]
            sparse = {writing: veenv.jacve(fun, sparse_representation=True)}
            for known, new in zip((runs, first), ready(sparse, x), strict=True):
                known |= new
        ms = in_turn(runs, (x,), repeats)
        for writing, run in runs.items():
            over, later = ms[writing] / min(ms.values()), first[writing] / min(first.values())
            equations = len(jax.make_jaxpr(run)(x).eqns[0].params["jaxpr"].eqns)
            numbers = run(x).nse, equations, ms[writing], round(over, 2), first[writing]
            table.add(name, writing, *map(str, numbers), f"{later:.2f}", str(others[writing]))
