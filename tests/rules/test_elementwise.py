"""Elementwise primitives whose derivative comes from JAX's own rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import SingleDeviceSharding

import veenv
from tests.oracles.jacobians import assert_same, quick_jit


@pytest.mark.parametrize("exponent", [2, 0, np.int32(3)])
def test_powers_with_an_integer_exponent_under_strict_promotion(exponent):
    """The exponent is a literal that gives way to floats, but no longer where it is a value."""
    fun = lambda x: lax.pow(x, jnp.asarray(exponent, int)) * x  # noqa: E731
    x = jnp.array([0.0, 0.5, -2.0])
    with jax.numpy_dtype_promotion("standard"):
        expected = quick_jit(jax.jacfwd(lambda x: x ** int(exponent) * x))(x)
    assert_same(veenv.jacve(fun)(x), expected, tol=1e-6)


@pytest.mark.parametrize("divisor", [np.float32(0), np.array([0.0, 2.0], np.float32)])
def test_constant_divisors_of_zero_do_not_warn(divisor):
    """NumPy warns of a division by zero, which the suite makes an error; JAX does not."""
    fun = lambda x: jnp.where(divisor > 0, x / divisor, x)  # noqa: E731
    x = jnp.array([1.0, 2.0])
    assert_same(veenv.jacve(fun)(x), quick_jit(jax.jacfwd(fun))(x), tol=1e-6)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_sizes_of_one_are_broadcast_by_functions_of_two_operands(sparse):
    def fun(x, y):
        z = lax.complex(jnp.sin(x), 2 * y)
        own = [jnp.sin(f(jnp.sin(x), 2 * y)) for f in (lax.mul, lax.atan2, lax.pow)]
        return [z.real * z.imag, *own]

    x, y = jnp.array([[0.3], [0.5], [0.7]]), jnp.array([[0.2, 0.4, 0.6, 0.9]])
    jacobian = veenv.jacve(fun, argnums=(0, 1), sparse_representation=sparse)
    found, expected = quick_jit(lambda *a: (jacobian(*a), jax.jacrev(fun, (0, 1))(*a)))(x, y)
    if sparse:
        found = [tuple(block.todense() for block in row) for row in found]
    assert_same(found, expected, tol=1e-5)


IDENTITIES = {
    "name": lambda x: checkpoint_name(x, "kept"),
    "layout": lambda x: with_layout_constraint(x, Layout((0,))),
    "sharding": lambda x: lax.with_sharding_constraint(x, SingleDeviceSharding(jax.devices()[0])),
    "device": lambda x: jax.device_put(x, jax.devices()[0]),
    "remat": jax.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "kept")),
        policy=jax.checkpoint_policies.save_only_these_names("kept")),
}  # fmt: skip


@pytest.mark.parametrize("kernel", ["xla", "fused"])
@pytest.mark.parametrize("name", IDENTITIES)
def test_what_gives_its_operand_a_name_or_a_place_is_no_operation(name, kernel):
    fun = lambda x: jnp.sin(IDENTITIES[name](2 * x) * x)  # noqa: E731
    complex_fun = lambda x: abs(IDENTITIES[name](lax.complex(x, x * x)) ** 2)  # noqa: E731
    x = jnp.array([1.0, 2.0, 3.0])
    assert_same(veenv.jacve(fun, kernel=kernel)(x), jax.jit(jax.jacrev(fun))(x), tol=1e-5)
    if name != "remat":  # which JAX does not differentiate for complex numbers
        found = jax.jit(veenv.jacve(complex_fun, kernel=kernel))(x)
        assert_same(found, jax.jit(jax.jacrev(complex_fun))(x), tol=1e-5)
