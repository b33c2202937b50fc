"""Elements that are always zero, and products with them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import quick_jit
from veenv.engine.known import Known, Zeros
from veenv.graph.program import trace


def blocks(x):
    """A block-diagonal matrix that depends on x."""
    a, b = jnp.outer(x[:2], x[2:]), jnp.outer(x[2:], x[2:])
    none = jnp.zeros((2, 2))
    return jnp.block([[jnp.sin(a), none], [none, -b.T]])


def padded(x):
    return jnp.pad(x, (3, 2))[1:-1][::-1] * jnp.tanh(x).sum()


def written(x):
    return (jnp.zeros((3, 4)).at[1, ::2].set(x[:2]) * x[None]).sum(0)


def either(x):
    return jnp.where(x > 0, jnp.pad(x[:2], (0, 2)), jnp.pad(x[1:], (0, 1)))


@pytest.mark.parametrize("fun", [blocks, padded, written, either])
def test_what_is_said_to_be_zero_is(fun, x64):
    point = jnp.array([0.3, -0.7, 1.1, 0.9])
    program = trace(fun, (jax.ShapeDtypeStruct((4,), jnp.float64),))
    found = Zeros(Known(program))(program.outputs[0])
    expected = (fun(point) == 0) & (fun(-point) == 0)
    assert expected.any()
    np.testing.assert_array_equal(found, expected)


def test_products_with_a_block_matrix_leave_its_zeros_out(x64):
    def fun(x, y):
        return blocks(x) @ y

    x, y = jnp.arange(1.0, 5), jnp.arange(2.0, 6)
    jacobian = quick_jit(veenv.jacve(fun, argnums=1, sparse_representation=True))(x, y)
    assert jacobian.nse == 8
    expected = quick_jit(jax.jacrev(fun, 1))(x, y)
    np.testing.assert_allclose(np.asarray(jacobian), expected, rtol=1e-14)
