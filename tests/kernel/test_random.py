"""Random scalar functions in random orders, as kernels."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import orders, quick_jit
from tests.oracles.scalar_program import run
from tests.sampling import spared
from veenv.kernel.fusing import trace_point


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", spared([*range(8), *range(100, 1100)], 0))
def test_random_functions(seed: int):
    fun, at = veenv.tasks.random_function(seed, 3, 20, 3)
    columns = [x * np.linspace(0.9, 1.1, 11) for x in at]
    values = quick_jit(jax.vmap(fun))(*columns)
    inside = np.isfinite(values).all(0)  # elsewhere JAX's modes give NaN for what is 0 times NaN
    argnums = tuple(range(len(columns)))
    graph = veenv.make_graph(fun, argnums)(*(c[0] for c in columns))
    expected = jax.tree.leaves(quick_jit(jax.vmap(jax.jacrev(fun, argnums)))(*columns))
    for ids in (graph.reverse(), *orders(graph, 4 if seed >= 100 else 1, seed=seed)):
        point = [c[0] for c in columns]
        program = trace_point(veenv.jacve(fun, ids, argnums), point, {}, argnums).program()
        kernel = jax.jit(jax.vmap(veenv.jacve(fun, ids, argnums, kernel="fused")))
        for got in (jax.tree.leaves(kernel(*columns)), run(program, *columns)):
            for a, b in zip(got, expected, strict=True):
                told = inside | ~np.isnan(b)
                np.testing.assert_allclose(a[told], b[told], rtol=1e-10, atol=1e-10)
