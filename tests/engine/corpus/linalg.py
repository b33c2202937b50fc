"""Decompositions, solves and matrix functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax
from jax.scipy.sparse.linalg import cg, gmres

from tests.engine.corpus.case import case, definite, normal

S = definite(3)
M = normal(3, 3) + 2 * np.eye(3)
R = normal(4, 2)
B = normal(3, 2)
V = normal(3)


def _symmetric(fun):
    return lambda a: fun((a + a.T) / 2)


def _triangular(lower, trans, unit):
    def solve(a, b):
        return jsl.solve_triangular(a, b * b, trans=trans, lower=lower, unit_diagonal=unit)

    return solve


def _tridiagonal(v):
    low, high = v.at[0].set(0.0), v.at[-1].set(0.0)
    return lax.linalg.tridiagonal_solve(low, 4 + v * v, high, jnp.sin(v)[:, None])


def _fixed_root(v):
    """x³ + x = v² with JAX's implicit differentiation."""
    return lax.custom_root(
        lambda x: x**3 + x - v * v,
        jnp.zeros_like(v),
        lambda f, x: lax.fori_loop(0, 30, lambda _, x: x - f(x) / (3 * x * x + 1), x),
        lambda g, y: y / g(jnp.ones_like(y)),
    )


def _matrix_free(a, b):
    return lax.custom_linear_solve(
        lambda x: a @ x,
        b * b,
        lambda _, y: jnp.linalg.solve(a, y),
        lambda _, y: jnp.linalg.solve(a.T, y),
    )


CASES = [
    case("cholesky", _symmetric(lambda a: jnp.linalg.cholesky(a) ** 2), S),
    case("cholesky_solve", lambda a, b: jsl.cho_solve(jsl.cho_factor(a @ a.T), b), M, B,
        argnums=(0, 1), slow=True),
    case("solve", lambda a, b: jnp.linalg.solve(a * 1.5, b) * 2, M, B, argnums=(0, 1)),
    case("solve_vector", lambda a, b: jnp.linalg.solve(a, b * b), M, V, argnums=(0, 1)),
    case("solve_definite", lambda a, b: jsl.solve(a @ a.T, b, assume_a="pos"), M, V,
        argnums=(0, 1)),
    case("inverse", lambda a: jnp.linalg.inv(a * a.T), M),
    case("determinants", lambda a: jnp.linalg.det(a) * jnp.linalg.slogdet(a @ a)[1], M, slow=True),
    case("lu", lambda a: jsl.lu(a * 1.1), M, zero=True),
    case("lu_solve", lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b), M, V, argnums=(0, 1),
        slow=True),
    case("lu_pivots", lambda a: lax.linalg.lu(a)[0] ** 2, M),
    case("qr", lambda a: (lambda q, r: (q * 2, r @ r.T))(*jnp.linalg.qr(a)), R),
    case("qr_square", lambda a: jnp.linalg.qr(a * 1.1)[0] @ a, M, slow=True),
    case("eigh_values", _symmetric(lambda a: jnp.linalg.eigh(a)[0] ** 2), S),
    case("eigh_vectors", _symmetric(lambda a: (lambda w, v: (v**2) @ w)(*jnp.linalg.eigh(a))), S),
    case("eigvalsh", lambda a: jnp.linalg.eigvalsh(a @ a.T), M),
    case("svd_values", lambda a: jnp.linalg.svd(a * 1.1, compute_uv=False) ** 2, R),
    case("svd_vectors", lambda a: (lambda u, s, v: (u * s[None] ** 2) @ v)(*jnp.linalg.svd(a,
        full_matrices=False)), R, slow=True),
    case("pseudo_inverse", lambda a: jnp.linalg.pinv(a) * jnp.linalg.norm(a), R),
    case("least_squares", lambda a, b: jnp.linalg.lstsq(a, b)[0], R, normal(4), argnums=(0, 1),
        slow=True),
    case("norms", lambda a: jnp.linalg.norm(a, "nuc") + jnp.linalg.norm(a, 2) * jnp.linalg.norm(a),
        M),
    case("triangular_lower", _triangular(True, 0, False), M, B, argnums=(0, 1)),
    case("triangular_transposed", _triangular(False, 1, False), M, B, argnums=(0, 1)),
    case("triangular_unit_diagonal", _triangular(True, 0, True), M, V, argnums=(0, 1)),
    case("triangular_right_side", lambda a, b: lax.linalg.triangular_solve(a, b.T, left_side=False,
        lower=True, transpose_a=True), M, B, argnums=(0, 1)),
    case("tridiagonal_solve", _tridiagonal, normal(4)),
    case("matrix_exponential", jsl.expm, M * 0.3, slow=True),
    case("matrix_power", lambda a: jnp.linalg.matrix_power(a, 3) + jnp.linalg.multi_dot([a, a, a]),
        M),
    case("matrix_square_root_by_eigh", _symmetric(lambda a: (lambda w, v: (v * jnp.sqrt(w)[None])
        @ v.T)(*jnp.linalg.eigh(a))), S, slow=True),
    case("qr_triangle_only", lambda a: jnp.linalg.qr(a * a, mode="r"), R),
    case("polar", lambda a: jsl.polar(a)[0] @ a, M, oracle=jax.jacfwd, slow=True),
    case("custom_linear_solve", _matrix_free, M, V, argnums=(0, 1)),
    case("conjugate_gradients", lambda a, b: cg(lambda x: a @ (a.T @ x) + x, b * b, tol=1e-14)[0],
        M * 0.5, V, argnums=(0, 1), tol=1e-7),
    case("gmres", lambda a, b: gmres(a, b, tol=1e-13, solve_method="batched")[0], M, V,
        argnums=(0, 1), tol=1e-7, slow=True),
    case("custom_root", _fixed_root, V),
    case("block_diagonal", lambda a: jsl.block_diag(a[:1, :2] ** 2, a[1:, :1]), R),
    case("toeplitz", lambda v: jsl.toeplitz(v * v) @ v, V),
    case("batched_solve", lambda a, b: jnp.linalg.solve(a, b), np.stack([M, M.T + 1]),
        normal(2, 3, 1), argnums=(0, 1)),
    case("batched_cholesky", lambda a: jnp.linalg.cholesky(a @ a.mT), np.stack([M, M.T + 1])),
    case("gaussian_log_density", lambda x, m, a: jax.scipy.stats.multivariate_normal.logpdf(x, m, a
        @ a.T), V, normal(3, seed=4), M, argnums=(0, 1, 2), slow=True),
]  # fmt: skip
