"""Chains of products of small matrices, complex ones too, and what a long one takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import quick_jit
from veenv import limits


@pytest.fixture(autouse=True)
def promoting():
    """Complex numbers times real ones."""
    with jax.numpy_dtype_promotion("standard"):
        yield


X = np.array([0.3, -0.7, 0.5, 1.1])
FIXED = np.cos(np.arange(9.0)).reshape(3, 3) + 1j * np.sin(np.arange(9.0)).reshape(3, 3)


def propagator(x, steps=2, terms=3):
    """Products of exponentials of complex matrices by their first terms."""
    k = jnp.eye(3, dtype=complex)
    for n in range(steps):
        h = x[0] * FIXED + (x[1] + 1j * x[2] * np.cos(n)) * jnp.diag(jnp.arange(3.0) * x[3])
        total = power = jnp.eye(3, dtype=complex)
        for m in range(1, terms + 1):
            power = power @ (-0.1j * h) / m
            total = total + power
        k = total @ k
    return jnp.abs(k) ** 2


def in_batches(x):
    z = jnp.exp(1j * x).reshape(2, 2)
    return jnp.einsum("bij,bj->bi", jnp.stack([z, z.T * 2j, z @ z]), jnp.stack([z[0], z[1], z[0]]))


def by_a_constant(x):
    z = jax.lax.complex(x[:3], jnp.sin(x[1:]))
    return (FIXED @ z) @ FIXED / (2 - 1j), z @ z


def of_one(x):
    """Axes of size one."""
    z = jax.lax.complex(x, x**2)
    return jnp.log(z[None, :] @ (z[:, None] * 1j)) / z[None], z[:1, None] @ z[None, :1]


def functions(x):
    z = jax.lax.complex(x, x[::-1])
    return [z**3, jnp.sqrt(z), jnp.tanh(z), jnp.sin(z) / jnp.cos(z), jax.lax.rsqrt(z), 1 / z]


FUNCTIONS = [propagator, in_batches, by_a_constant, of_one, functions]


def parts(fun):
    return lambda x: [(jnp.real(z), jnp.imag(z)) for z in jax.tree.leaves(fun(x))]


@pytest.mark.parametrize("fun", FUNCTIONS)
def test_products_of_complex_numbers(fun, x64):
    jacobians = [veenv.jacve(parts(fun), order) for order in ("forward", "reverse", "auto")]
    every = jax.jacrev(parts(fun)), *jacobians
    expected, *found = quick_jit(lambda x: [jacobian(x) for jacobian in every])(X)
    for one in found:
        assert veenv.tree_allclose(one, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("limit", "kernel", "size"),
    [(1000, "xla", (3, 4)), pytest.param(60_000, "auto", (7, 8), marks=pytest.mark.slow)],
)
def test_a_long_chain_takes_a_mode_of_jax(x64, monkeypatch, limit, kernel, size):
    monkeypatch.setattr(limits, "MAX_OPERATIONS", limit)  # what is long, then
    fun = lambda x: propagator(x, *size)  # noqa: E731
    jacobians = veenv.jacve(fun, kernel=kernel), jax.jacfwd(fun)
    ours, theirs = (jax.make_jaxpr(jax.jit(jacobian))(X) for jacobian in jacobians)
    count = lambda jaxpr: str(jaxpr).count("dot_general[")  # noqa: E731
    assert 0 < count(ours) <= count(theirs)
