"""Sparse Jacobians in solvers: our own, and SciPy's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize

import veenv
from veenv.engine.sparse.solving import kind

N = 24


def ring(x):
    """A ring of springs: banded but for its two corners."""
    return x**3 + 4 * x - jnp.roll(x, 1) - 0.5 * jnp.roll(x, -1) - 1


KINDS = {
    "diagonal": lambda x: jnp.sin(x) + 2 * x,
    "tridiagonal": lambda x: 4 * x + jnp.pad(x[1:] ** 2, (0, 1)) + jnp.pad(x[:-1], (1, 0)),
    "block-diagonal": lambda x: (
        x.reshape(-1, 4) @ np.diag([1.0, 2, 3, 4]) + 3 * jnp.cumprod(x.reshape(-1, 4), 1)
    ).ravel(),
    "banded": lambda x: 4 * x + jnp.pad(x[2:] ** 2, (0, 2)) + jnp.pad(x[:-1], (1, 0)),
    "sparse": ring,
}


@pytest.mark.parametrize("how", KINDS)
def test_systems_are_solved_by_their_pattern(how, x64):
    fun, x = KINDS[how], np.random.default_rng(0).uniform(0.5, 1.0, N)
    b = np.random.default_rng(1).normal(size=N)

    @jax.jit
    def both(x, b):
        jacobian = veenv.jacve(fun, sparse_representation=True)(x)
        return jacobian.solve(b), jnp.linalg.solve(jax.jacrev(fun)(x), b), jacobian

    found, expected, jacobian = both(x, b)
    assert kind(jacobian.pattern)[0] == how
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_solutions_have_gradients(x64):
    x, b = np.random.default_rng(0).uniform(0.5, 1.0, N), np.ones(N)

    def ours(x, b):
        return jnp.sum(veenv.jacve(ring, sparse_representation=True)(x).solve(b) ** 2)

    def dense(x, b):
        return jnp.sum(jnp.linalg.solve(jax.jacrev(ring)(x), b) ** 2)

    found, expected = jax.jit(
        lambda x, b: (jax.grad(ours, (0, 1))(x, b), jax.grad(dense, (0, 1))(x, b))
    )(x, b)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_recipe_least_squares(x64):
    value, jacobian = jax.jit(ring), jax.jit(veenv.jacve(ring, sparse_representation=True))
    found = optimize.least_squares(
        value, np.full(N, 0.5), jac=lambda x: jacobian(x).to_scipy("csr"), tr_solver="lsmr"
    )
    np.testing.assert_allclose(value(found.x), 0, atol=1e-6)


def test_recipe_newton(x64):
    from scipy.sparse.linalg import spsolve

    value, jacobian = jax.jit(ring), jax.jit(veenv.jacve(ring, sparse_representation=True))
    x = np.full(N, 0.5)
    for _ in range(8):
        x = x - spsolve(jacobian(x).to_scipy("csc"), np.asarray(value(x)))
    np.testing.assert_allclose(value(x), 0, atol=1e-12)


def test_recipe_root(x64):
    """`root` takes dense Jacobians only; a Krylov method takes products with one."""
    value, jacobian = jax.jit(ring), jax.jit(veenv.jacve(ring, sparse_representation=True))
    found = optimize.root(value, np.full(N, 0.5), jac=lambda x: np.asarray(jacobian(x)))
    np.testing.assert_allclose(value(found.x), 0, atol=1e-9)


def test_recipe_solve_ivp(x64):
    def slope(x):
        return -ring(x)

    value, jacobian = jax.jit(slope), jax.jit(veenv.jacve(slope, sparse_representation=True))
    found = integrate.solve_ivp(
        lambda t, x: value(x),
        (0, 40),
        np.full(N, 0.5),
        method="BDF",
        jac=lambda t, x: jacobian(x).to_scipy("csc"),
    )
    assert found.success
    np.testing.assert_allclose(ring(found.y[:, -1]), 0, atol=1e-4)
