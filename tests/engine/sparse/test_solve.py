"""Systems of equations by sparse Jacobians."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same
from veenv.engine.sparse import solving
from veenv.engine.sparse.pattern import collected
from veenv.engine.sparse.solving import kind

N = 72  # more than what is solved as one dense block


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


def test_a_small_system_is_one_block(x64):
    x, b = np.linspace(0.5, 1.0, 20), np.ones(20)
    jacobian = veenv.jacve(ring, sparse_representation=True)(x)
    assert kind(jacobian.pattern) == ("block-diagonal", 20)
    np.testing.assert_allclose(jacobian.solve(b), np.linalg.solve(np.asarray(jacobian), b))


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

    pair = jax.grad(ours, (0, 1)), jax.grad(dense, (0, 1))
    assert_compiled_same([pair], x, b, atol=1e-12)


@pytest.mark.parametrize("how", ["banded", "sparse"])
def test_singular_systems_and_systems_of_nan_have_nan_for_a_solution(how, x64):
    fun, x = KINDS[how], np.random.default_rng(0).uniform(0.5, 1.0, N)
    solution = jax.jit(
        lambda x, s: (veenv.jacve(fun, sparse_representation=True)(x) * s).solve(np.ones(N))
    )
    assert np.isfinite(solution(x, 1.0)).all()
    assert np.isnan(solution(x, 0.0)).all()
    assert np.isnan(solution(x, np.nan)).all()


def test_factors_are_kept_for_the_next_right_hand_side(x64, monkeypatch):
    made = []
    factorised = solving._factorised
    monkeypatch.setattr(solving, "_factorised", lambda *a: made.append(a) or factorised(*a))
    jacobian = veenv.jacve(ring, sparse_representation=True)
    solution = jax.jit(lambda x, b: jacobian(x).solve(b))
    for size in (0.61, 0.62, 0.61, 0.62):
        x = np.full(N, size)
        for b in (np.ones(N), np.arange(1.0, N + 1)):
            expected = np.linalg.solve(np.asarray(jacobian(x)), b)
            np.testing.assert_allclose(solution(x, b), expected, rtol=1e-9, atol=1e-12)
    assert len(made) == 2


def test_systems_without_a_diagonal_are_solved(x64):
    """The symmetric ordering prefers pivots on the diagonal, and does without."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows, cols = rng.integers(0, 12, (2, 30))
        off = rows != cols
        rows, cols = rows[off], cols[off]
        sides = np.concatenate([rows, cols]), np.concatenate([cols, rows])
        pattern, _ = collected(*sides, (12,), (12,))
        assert pattern.symmetric
        values, b = rng.normal(size=pattern.nse), rng.normal(size=12)
        dense = np.zeros((12, 12))
        dense[pattern.rows, pattern.cols] = values
        if np.linalg.cond(dense) < 1e6:
            np.testing.assert_allclose(dense @ solving._sparse(pattern, values, b), b, atol=1e-8)
