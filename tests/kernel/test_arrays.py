"""Arithmetic of arrays of operations: in order, equal entries once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.scalar_program import run
from veenv.kernel.building.unrolling import unroll


@pytest.mark.parametrize("rows", [7, 12])
def test_sums_and_products_of_matrices_keep_their_order(rows):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 9)).astype(np.float32)

    def f(x):
        return x @ x.T, x.sum(1), jnp.prod(x, 0)

    program = unroll(jax.make_jaxpr(f)(x))
    product, total, multiplied = run(program, x)
    wanted = x[:, :1] * x[:, 0]
    for k in range(1, 9):
        wanted = wanted + x[:, k : k + 1] * x[:, k]
    assert (product == wanted).all()
    assert (total == np.cumsum(x, 1)[:, -1]).all()
    assert (multiplied == np.cumprod(x, 0)[-1]).all()
