"""Small matrices in kernels: factors and solutions as LAPACK's, rows exchanged where it does."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from veenv.kernel.fusing import fuse
from veenv.kernel.program import CannotFuseError

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


def assert_equal(fun: Any, *columns: np.ndarray, tolerance: float = 1e-9) -> None:
    """One kernel of a batch, and what XLA and LAPACK say, in float64."""
    with jax.enable_x64(True):
        columns = tuple(map(jnp.asarray, columns))
        got = jax.jit(jax.vmap(fuse(fun)))(*columns)
        wanted = jax.jit(jax.vmap(fun))(*columns)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 4), (6, 6), (5, 3), (3, 5)])
def test_factors_with_exchanged_rows(shape: tuple[int, int]):
    assert_equal(lax.linalg.lu, matrices(*shape))


def test_factors_of_singular_matrices():
    singular = matrices(4, 4)
    singular[:, 2] = 0
    singular[:5] = 0
    assert_equal(lax.linalg.lu, singular)


def test_the_determinant_of_a_matrix_of_rank_one_has_no_slope():
    """LAPACK rounds products before it subtracts them, and what cancels there is exactly zero."""
    v = np.array([6, -7, 3], np.float32)
    found = jax.jit(veenv.jacve(jnp.linalg.det, kernel="fused"))(jnp.outer(v, v))
    np.testing.assert_array_equal(found, jax.jacrev(jnp.linalg.det)(jnp.outer(v, v)))


def test_cholesky_s_factor_and_matrices_without_one():
    found = definite(5)
    found[3] *= -1
    found[4, 2, 2] = 0
    found[5, 0, 0] = np.nan
    assert_equal(jnp.linalg.cholesky, found)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_systems(left: bool, lower: bool, turned: bool, unit: bool):
    def solve(a: Any, x: Any) -> Any:
        return lax.linalg.triangular_solve(
            a, x, left_side=left, lower=lower, transpose_a=turned, unit_diagonal=unit
        )

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
def test_values_and_derivatives_of_what_is_made_of_them(name: str):
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
    with jax.enable_x64(True):
        a, x = jnp.asarray(matrices(4, 4)), jnp.asarray(matrices(4, 1)[..., 0])
        for order in ("reverse", "forward", "markowitz"):
            jacobian = veenv.jacve(fun, order, argnums=(0, 1), kernel="fused")
            got = jax.jit(jax.vmap(jacobian))(a, x)
            wanted = jax.vmap(jax.jacfwd(fun, (0, 1)))(a, x)
            for mine, true in zip(got, wanted, strict=True):
                size = np.abs(true).max(axis=tuple(range(1, true.ndim)), keepdims=True)
                np.testing.assert_array_less(np.abs(mine - true), 1e-8 * (1 + size) + 0 * true)


def test_what_is_too_large_or_complex_is_named():
    with pytest.raises(CannotFuseError, match=r"linear algebra takes about .* 60,000"):
        fuse(jnp.linalg.cholesky)(jnp.eye(70))
    with pytest.raises(CannotFuseError, match=r"lu.*complex64"):
        fuse(lambda a: jnp.linalg.det(lax.complex(a, a)).real)(jnp.eye(4))
    with pytest.raises(CannotFuseError, match="eigh"):
        fuse(jnp.linalg.eigvalsh)(jnp.eye(4))
