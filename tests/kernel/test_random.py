"""Random scalar functions in random orders, as kernels."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import orders, quick_jit
from tests.oracles.scalar_program import run
from tests.sampling import thinned
from veenv.kernel.fusing import trace_point


def check(seed: int, count: int) -> None:
    fun, at = veenv.tasks.random_function(seed, 3, 20, 3)
    columns = [x * np.linspace(0.9, 1.1, 11) for x in at]
    argnums = tuple(range(len(columns)))
    graph = veenv.make_graph(fun, argnums)(*(c[0] for c in columns))
    expected = jax.tree.leaves(quick_jit(jax.vmap(jax.jacrev(fun, argnums)))(*columns))
    for ids in (graph.reverse(), *orders(graph, count - 1, seed=seed)):
        jac = veenv.jacve(fun, ids, argnums)
        traced = trace_point(jac, [c[0] for c in columns], {}, argnums)
        program = traced.program()
        for got in (
            jax.tree.leaves(
                jax.jit(jax.vmap(veenv.jacve(fun, ids, argnums, kernel="fused")))(*columns)
            ),
            run(program, *columns),
        ):
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", thinned(range(8), 8))
def test_some_random_functions(seed: int):
    check(seed, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(100, 1100))
def test_many_random_functions(seed: int):
    check(seed, 5)
