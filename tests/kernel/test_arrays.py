"""Arithmetic of arrays of operations: in order, equal entries once."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.scalar_program import run
from veenv.kernel.building.unrolling import unroll
from veenv.kernel.scalar_program import CannotFuseError


@pytest.mark.parametrize("rows", [7, 40])
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


def test_a_long_program_is_refused_before_its_tables_are_gone_through():
    """Index arrays of sparse Jacobians are long; a kernel of them is refused for its operations."""
    table = np.random.default_rng(0).permutation(1 << 18)

    def f(x):
        return jnp.sum(jnp.sin(jnp.cos(x))[table % x.size] * np.float32(table))

    closed = jax.make_jaxpr(f)(np.ones(3000, np.float32))
    tracemalloc.start()
    with pytest.raises(CannotFuseError):
        unroll(closed, 4000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16 * table.nbytes  # an operation of each of its numbers takes far more
