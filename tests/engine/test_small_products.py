"""Chains of products of small matrices, complex ones too, and what a long one takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
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
