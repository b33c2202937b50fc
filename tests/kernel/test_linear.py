"""Small matrices in kernels: factors and solutions as LAPACK's, rows exchanged where it does."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, quick_jit
from veenv.kernel.fusing import fuse
from veenv.kernel.scalar_program import CannotFuseError

COUNT = 33


def matrices(*shape: int, seed: int = 0) -> np.ndarray:
    """Random matrices, some of which have zeros on the diagonal."""
    found = np.random.default_rng(seed).normal(size=(COUNT, *shape))
    found[: COUNT // 2, 0, 0] = 0
    return found


def definite(size: int) -> np.ndarray:
    """Positive definite matrices."""
    factors = matrices(size, size)
    return factors @ np.swapaxes(factors, 1, 2) + 0.1 * np.eye(size)


def assert_equal(fun: Any, *columns: np.ndarray) -> None:
    """One kernel of a batch, and what XLA and LAPACK say, in float64."""
    with jax.enable_x64(True):
        columns = tuple(map(jnp.asarray, columns))
        assert_same(jax.jit(jax.vmap(fuse(fun)))(*columns), quick_jit(jax.vmap(fun))(*columns))


def test_factors_with_exchanged_rows():
    shapes = (1, 1), (2, 2), (4, 4), (6, 6), (5, 3), (3, 5)
    assert_equal(lambda *a: [lax.linalg.lu(x) for x in a], *(matrices(*s) for s in shapes))


def test_factors_of_singular_matrices():
    singular = matrices(4, 4)
    singular[:, 2] = 0
    singular[:5] = 0
    assert_equal(lax.linalg.lu, singular)


def test_the_determinant_of_a_matrix_of_rank_one_has_no_slope():
    """LAPACK rounds products before it subtracts them, and what cancels there is exactly zero."""
    v = np.array([6, -7, 3], np.float32)
    found = jax.jit(veenv.jacve(jnp.linalg.det, kernel="fused"))(jnp.outer(v, v))
    np.testing.assert_array_equal(found, jax.jit(jax.jacrev(jnp.linalg.det))(jnp.outer(v, v)))


def test_cholesky_s_factor_and_matrices_without_one():
    found = definite(5)
    found[3] *= -1
    found[4, 2, 2] = 0
    found[5, 0, 0] = np.nan
    assert_equal(jnp.linalg.cholesky, found)


LARGE = 11
"""Rows of matrices whose algorithms are loops."""


def of_large(a: Any, x: Any) -> Any:
    """Factors and solutions of definite matrices, some singular, and their derivatives."""

    def likelihood(a: Any, x: Any) -> Any:
        factor = jax.scipy.linalg.cho_factor(a)
        return x[:, 0] @ jax.scipy.linalg.cho_solve(factor, x)[:, 0] + jnp.linalg.slogdet(a)[1]

    tall, wide = a[:, :9] - 1, a[:9] + 1
    return [
        lax.linalg.lu(a - jnp.eye(LARGE)), lax.linalg.lu(tall), lax.linalg.lu(wide),
        jnp.linalg.cholesky(a), jnp.linalg.solve(a, x), jnp.linalg.solve(a.T, x[:, 0]),
        jnp.linalg.qr(a), jnp.linalg.qr(tall, mode="complete"), jnp.linalg.qr(wide),
        lax.linalg.triangular_solve(a, x.T, lower=True, transpose_a=True),
        jax.grad(likelihood, (0, 1))(a, x), jax.jvp(jnp.linalg.qr, (a,), (a @ a,))[1],
    ]  # fmt: skip


@pytest.mark.parametrize("points", [COUNT, 1])
def test_large_matrices_as_loops_and_for_a_few_points_by_lapack(points: int):
    every = of_large if points > 1 else lambda a, x: of_large(a, x)[::2]
    assert_equal(every, definite(LARGE)[-points:], matrices(LARGE, 10)[-points:])


@pytest.mark.parametrize("points", [COUNT, 1])
def test_large_matrices_without_factors(points: int):
    """NaN goes where it does in LAPACK, of which other rules hold in a batch."""
    symmetric, singular = definite(LARGE), matrices(LARGE, LARGE)
    symmetric[1::4] *= -1
    symmetric[2::4, 5, 5] = np.nan
    symmetric[3::4] = 0
    singular[:, 2] = 0
    singular[:20, :, 6] = 0
    for k in range(4 if points == 1 else 1):
        part = slice(k, k + points)
        assert_equal(lambda a, b: [jnp.linalg.cholesky(a), lax.linalg.lu(b)],
                     symmetric[part], singular[part])  # fmt: skip


def test_iterations_whose_points_end_at_different_steps_solve_for_those_that_go_on():
    def newton(x: Any) -> Any:
        slope = jax.jacfwd(lambda x: x**3 + x @ x - 1)
        step = lambda x: x - jnp.linalg.solve(slope(x), x**3 + x @ x - 1)  # noqa: E731
        more = lambda x: jnp.abs(x**3 + x @ x - 1).max() > 1e-6  # noqa: E731
        return lax.while_loop(more, step, x)

    start = 1 + matrices(LARGE, 1)[..., 0] ** 2
    assert_equal(newton, start)
    assert_equal(newton, start[:2])


@pytest.mark.parametrize("left", [True, False])
def test_triangular_systems(left: bool):
    names = "lower", "transpose_a", "unit_diagonal"
    options = [
        dict(zip(names, some, strict=True)) for some in itertools.product([True, False], repeat=3)
    ]

    def solve(a: Any, x: Any) -> Any:
        return [lax.linalg.triangular_solve(a, x, left_side=left, **some) for some in options]

    assert_equal(solve, matrices(4, 4) + 3 * np.eye(4), matrices(4, 2) if left else matrices(2, 4))


def test_tridiagonal_systems_with_and_without_exchanges():
    low, middle, up = (matrices(7, 1, seed=k)[..., 0] for k in range(3))
    low[:, 0], up[:, -1] = 0, 0
    assert_equal(lax.linalg.tridiagonal_solve, low, middle, up, matrices(7, 2, seed=3))
    assert_equal(lax.linalg.tridiagonal_solve, low, middle + 4, up, matrices(7, 2, seed=3))


def test_a_batch_of_matrices_within_a_point():
    assert_equal(jnp.linalg.cholesky, definite(3).reshape(COUNT // 3, 3, 3, 3))
    assert_equal(jnp.linalg.solve, matrices(3, 4, 4), matrices(3, 4, 1))


@pytest.mark.parametrize("name", ["solve", "inv", "det", "slogdet", "lstsq by normal equations"])
def test_values_and_derivatives_of_what_is_made_of_them(name: str, x64: None):
    def normal(a: Any, x: Any) -> Any:
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a.T @ a), a.T @ x)

    functions = {
        "solve": jnp.linalg.solve,
        "inv": lambda a, x: jnp.linalg.inv(a) @ x,
        "det": lambda a, x: jnp.linalg.det(a) * x,
        "slogdet": lambda a, x: jnp.linalg.slogdet(a)[1] * x,
        "lstsq by normal equations": normal,
    }
    fun = functions[name]
    a, x = jnp.asarray(matrices(4, 4)), jnp.asarray(matrices(4, 1)[..., 0])
    wanted = quick_jit(jax.vmap(jax.jacfwd(fun, (0, 1))))(a, x)
    for order in ("reverse", "forward", "markowitz"):
        jacobian = veenv.jacve(fun, order, argnums=(0, 1), kernel="fused")
        got = jax.jit(jax.vmap(jacobian))(a, x)
        for mine, true in zip(got, wanted, strict=True):
            size = np.abs(true).max(axis=tuple(range(1, true.ndim)), keepdims=True)
            np.testing.assert_array_less(np.abs(mine - true), 1e-8 * (1 + size) + 0 * true)


def test_what_is_too_large_or_complex_is_named():
    with pytest.raises(CannotFuseError, match=r"more than 60,000 entries"):
        fuse(jnp.linalg.cholesky)(jnp.eye(300))
    with pytest.raises(CannotFuseError, match=r"lu.*complex64"):
        fuse(lambda a: jnp.linalg.det(lax.complex(a, a)).real)(jnp.eye(4))
    with pytest.raises(
        CannotFuseError, match="'eigh' can only be fused up to 4 × 4, not for 5 × 5"
    ):
        fuse(jnp.linalg.eigvalsh)(jnp.eye(5))


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_orthogonal_and_triangular_factors(mode: str):
    shapes = (1, 1), (3, 3), (4, 2), (2, 4), (3, 1)
    factors = lambda *a: [jnp.linalg.qr(x, mode=mode) for x in a]  # noqa: E731
    assert_equal(factors, *(matrices(*s) for s in shapes))


def test_orthogonal_factors_of_singular_and_triangular_matrices():
    singular = np.concatenate([matrices(3, 3), [np.zeros((3, 3)), -np.eye(3)]])
    singular[:9] = np.triu(singular[:9])
    singular[9:12, :, 0] = 0
    assert_equal(jnp.linalg.qr, singular)


def symmetric(size: int) -> np.ndarray:
    """Of all scales, with entries that are zero, equal eigenvalues and ranks of one."""
    a = np.random.default_rng(size).normal(size=(400, size, size))
    a[:100] *= 10.0 ** np.random.default_rng(1).integers(-4, 5, (100, size, size))
    a[100:200] = np.round(a[100:200])
    a[200:300] = np.eye(size) + 1e-6 * a[200:300]
    a[300:350] = a[300:350, :, :1] * a[300:350, None, :, 0]
    a[350] = 0
    return a + np.swapaxes(a, 1, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_eigenvalues_and_eigenvectors(size: int, precision: str):
    """To twenty units of rounding of the largest eigenvalue, which ascend, as LAPACK's."""
    a = jnp.asarray(symmetric(size), precision)
    values, vectors = jax.jit(jax.vmap(fuse(jnp.linalg.eigh)))(a)
    exact = np.linalg.eigvalsh(np.asarray(a, np.float64))
    unit = 20 * np.finfo(precision).eps
    scale = unit * (np.abs(exact).max(axis=1) + 1e-30)
    assert (np.abs(values - exact).max(axis=1) <= scale).all()
    again = jnp.einsum("bij,bj,bkj->bik", vectors, values, vectors)
    assert (np.abs(again - a).max(axis=(1, 2)) <= scale).all()
    turned = np.swapaxes(vectors, 1, 2) @ vectors
    np.testing.assert_allclose(turned, np.broadcast_to(np.eye(size), a.shape), atol=unit)


def test_slopes_of_eigenvalues_and_what_is_no_number():
    def largest(a: jax.Array) -> jax.Array:
        values, vectors = jnp.linalg.eigh(a)
        return values[-1] + vectors[0, 0] ** 2

    with jax.enable_x64(True):
        a = jnp.asarray(symmetric(3)[:50])
        got = jax.jit(jax.vmap(veenv.jacve(largest, kernel="fused")))(a)
        wanted = quick_jit(jax.vmap(jax.jacfwd(largest)))(a)
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-8)
        upper = lambda a: lax.linalg.eigh(a, lower=False, symmetrize_input=False)[1]  # noqa: E731
        assert_equal(upper, np.asarray(a) + np.tri(3, k=-1))
    bad = np.full((2, 3, 3), np.eye(3), np.float32)
    bad[0, 1, 1], bad[1, 2, 0], bad[1, 0, 2] = np.nan, np.inf, np.inf
    assert np.isnan(jax.vmap(fuse(jnp.linalg.eigvalsh))(bad)).all()


def test_a_choice_of_forms_never_changes_the_signs_of_eigenvectors():
    def first(a: jax.Array) -> jax.Array:
        return jnp.linalg.eigh(a)[1][:, 0] * jnp.sin(a[0, 0])

    a = jnp.asarray(symmetric(3)[:64], jnp.float32)
    got = jax.jit(jax.vmap(veenv.value_and_jacve(first)))(a)[0]
    np.testing.assert_allclose(got, jax.jit(jax.vmap(first))(a), rtol=1e-5, atol=1e-6)


def _moved(a: Any) -> Any:
    """Runs of entries at distances 1, -1, n and n + 1, single ones, equal ones and constants."""
    n = len(a)
    factor = jnp.linalg.cholesky(a)
    rows = factor[::-1], factor.T, factor[:, ::-1], jnp.ones((n, n)), factor[jnp.arange(n) * 7 % n]
    diagonal = jnp.broadcast_to(jnp.diagonal(factor), (n, n))
    return jnp.concatenate([*rows, diagonal]) @ factor


def _chained(a: Any) -> Any:
    """Cheap and dear operations of stored arrays, turned, broadcast, summed and used again."""
    factor = jnp.linalg.cholesky(a)
    scaled = 2 * factor - 1
    turned = jnp.where(scaled > 0, scaled, -scaled).T + factor[:1]
    dear = jnp.exp(-turned) * scaled
    long = dear
    for k in range(20):  # longer than what is computed again
        long = long * 0.9 + k * turned
    return scaled, dear.sum(0), long, (scaled * scaled).max(1), (turned @ factor[0], long[3:, ::2])


@pytest.mark.parametrize("fun", [_moved, _chained])
@pytest.mark.parametrize("size", [17, 24])
def test_stored_arrays_that_are_moved_and_computed_again(fun: Any, size: int):
    assert_equal(fun, definite(size))


def test_derivatives_of_stored_arrays_that_are_computed_again():
    def of(x: Any, a: Any) -> Any:
        return _chained(a * x)[4]

    assert_equal(jax.jacfwd(of), np.linspace(1, 2, COUNT), definite(17))
