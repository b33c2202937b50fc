"""Arithmetic of arrays of operations: in order, equal entries once."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.scalar_program import run
from veenv.kernel.builder import Builder, arithmetic
from veenv.kernel.program import CannotFuseError
from veenv.kernel.unrolling import unroll


def _operands(b: Builder, dtype: str) -> np.ndarray:
    """Inputs, sums, their negatives, and constants that are simplified and that are not."""
    x = [b.input(0, k, dtype) for k in range(8)]
    x += [b.op("add", dtype, x[k], x[k + 1]) for k in range(4)]
    x += [b.op("neg", dtype, i) for i in x[::2]]
    x += [b.number(c, dtype) for c in (0, -0.0, 1, -1, 2.5, np.inf, np.nan, 1e-40)]
    return np.array(x)


@pytest.mark.parametrize("rows", [7, 40])
def test_sums_and_products_of_matrices_keep_their_order(rows):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 9)).astype(np.float32)

    def f(x):
        return x @ x.T, x.sum(1), jnp.prod(x, 0)

    program = unroll(jax.make_jaxpr(f)(x))
    terms = [program.ops[i] for i in program.results[0]]
    assert {op.name for op in terms} == {"add"}
    product, total, multiplied = run(program, x)
    wanted = x[:, :1] * x[:, 0]
    for k in range(1, 9):
        wanted = wanted + x[:, k : k + 1] * x[:, k]
    assert (product == wanted).all()
    assert (total == np.cumsum(x, 1)[:, -1]).all()
    assert (multiplied == np.cumprod(x, 0)[-1]).all()


@pytest.mark.parametrize("size", [1, 63, 64, 12_000])
def test_shape_order_and_equal_rows_are_kept(size):
    b = Builder()
    rng = np.random.default_rng(0)
    x, y = (rng.choice(_operands(b, "float32"), size) for _ in range(2))
    found = arithmetic(b, "mul", "float32", x.reshape(1, -1), y.reshape(1, -1))
    assert found.shape == (1, size)
    assert found.dtype == np.int64
    wanted = [b.op("mul", "float32", int(i), int(j)) for i, j in zip(x, y, strict=True)]
    assert found[0].tolist() == wanted


def test_arrays_end_at_the_limit_too():
    b = Builder(limit=40)
    x = np.array([b.input(0, k, "float32") for k in range(60)])
    sums = arithmetic(b, "add", "float32", x[:30], x[30:])
    with pytest.raises(CannotFuseError, match="more than 40 scalar operations"):
        arithmetic(b, "mul", "float32", sums, x[:30])
    with pytest.raises(ValueError, match="at most"):
        Builder(limit=1 << 21)


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
