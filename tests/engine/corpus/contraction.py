"""Dot products with batch axes, reductions with their ties, cumulative functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.engine.corpus.case import case, distinct, normal, uniform

A, B = normal(3, 4), normal(4, 2)
T = distinct(2, 3)
V, W = normal(4), normal(4, seed=1)
BATCH = normal(2, 3, 2), normal(2, 2, 3)
TIED = np.array([[1.0, 2.0, 2.0], [0.5, 2.0, -1.0]])


def _dot(dimension_numbers, **kwargs):
    return lambda x, y: lax.dot_general(x, y, dimension_numbers, **kwargs)


def _variadic_reduce(x):
    """Sum and product of a pair of arrays in one reduction."""
    both = lax.reduce(
        (x, x * x), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), dimensions=(1,)
    )
    return both[0] * both[1]


DOTS = [
    case("matmul", lambda x, y: x @ y, A, B, argnums=(0, 1)),
    case("matvec_vecmat", lambda a, v: jnp.sin(a @ v) @ a, A, V, argnums=(0, 1)),
    case("inner_outer", lambda v, w: jnp.outer(v, w) * (v @ w), V, W, argnums=(0, 1)),
    case("same_operand_twice", lambda x: x.T @ x + jnp.tanh(x.T @ x), A),
    case("batched_matmul", lambda x, y: jnp.exp(x @ y) * 0.5, *BATCH, argnums=(0, 1)),
    case("batch_axes_in_the_middle", _dot((([0], [1]), ([2, 1], [0, 2]))), normal(3, 2, 4),
        normal(4, 3, 2), argnums=(0, 1)),
    case("two_contracting_axes", _dot((([2, 0], [0, 1]), ([], []))), normal(3, 2, 4),
        normal(4, 3, 2), argnums=(0, 1)),
    case("einsum_trace", lambda x, y: jnp.einsum("ij,jk,ki->i", x, y, x.T), normal(2, 3),
        normal(3, 3), argnums=(0, 1)),
    case("einsum_diagonal", lambda x, y: jnp.einsum("bii,bij->bj", x, y), normal(2, 3, 3),
        normal(2, 3, 2), argnums=(0, 1)),
    case("einsum_three", lambda x: jnp.einsum("ij,ik,il->jkl", x, x, x), normal(2, 2)),
    case("tensordot_kron", lambda x, y: jnp.kron(x, y) * jnp.tensordot(x, y), normal(2, 2),
        normal(2, 2, seed=3), argnums=(0, 1)),
    case("chain_of_products", lambda x, y: x @ (y @ (x @ y)), normal(2, 3), normal(3, 2),
        argnums=(0, 1)),
    case("size_one_axes", lambda x, y: jnp.sin(x @ y) @ jnp.cos(y.T), normal(3, 1), normal(1, 2),
        argnums=(0, 1)),
    case("constant_matrix", lambda x: jnp.tanh(A @ jnp.sin(x)), V),
    case("preferred_type", lambda x, y: lax.dot(x.astype(jnp.float32), y.astype(jnp.float32),
        preferred_element_type=jnp.float64), A, B, argnums=(0, 1), tol=1e-6),
    case("cross_vdot", lambda x, y: jnp.cross(x, y) * jnp.vdot(x, y), normal(3), normal(3, seed=1),
        argnums=(0, 1)),
]  # fmt: skip

REDUCTIONS = [
    case("sum_axes", lambda x: jnp.sum(x**2, 0)[None] * jnp.sum(jnp.sin(x), 1, keepdims=True), T),
    case("mean_var_std", lambda x: (x - x.mean(0)[None]) / x.std(1, keepdims=True) + x.var(), T),
    case("max_min", lambda x: x.max(0)[None] * x.min(1, keepdims=True) + x.max(), T),
    case("max_ties", lambda x: jnp.max(x * 1.5, 1) - jnp.min(x, 0)[:2] + jnp.max(x), TIED),
    case("prod", lambda x: jnp.prod(x, 0) + jnp.prod(jnp.sin(x)), T),
    case("prod_with_zeros", lambda x: jnp.prod(x + 1, 1) + jnp.prod(x[0]), TIED),
    case("norms", lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True) + jnp.linalg.norm(x), T),
    case("logsumexp", lambda x: x - jax.nn.logsumexp(x, 1, keepdims=True), T),
    case("argmax_as_index", lambda x: x[0, jnp.argmax(x[1])] * x.min(), T),
    case("median_quantile", lambda x: jnp.median(x, 1) + jnp.quantile(x, 0.3), T),
    case("ptp_average", lambda x: jnp.ptp(x, 0) * jnp.average(x, weights=jnp.exp(x)), T),
    case("nan_functions", lambda x: jnp.nansum(x, 0) * jnp.nanmax(x) + jnp.nanmean(x), T),
    case("lax_reduce_add", lambda x: lax.reduce(x * x, 0.0, lax.add, (1,)) * x[:, 0], T),
    case("lax_reduce_max", lambda x: lax.reduce(x * x, -9.0, lax.max, (0,)), T),
    case("lax_reduce_variadic", _variadic_reduce, T, oracle=jax.jacfwd),
    case("logical_reductions", lambda x: (x * jnp.any(x > 0).astype(x.dtype) + x**2 * jnp.all(
        x > 9, 1)[:, None].astype(x.dtype)), T),
    case("trace_of_product", lambda x: jnp.trace(x @ x.T) * jnp.trace(x), T),
    case("reduce_to_scalar_and_back", lambda x: x * jnp.sum(jnp.tanh(x)) / jnp.max(x), T),
]  # fmt: skip

CUMULATIVE = [
    case("cumsum", lambda x: jnp.cumsum(jnp.sin(x), 1) * x, T),
    case("cumsum_reverse", lambda x: lax.cumsum(x * x, axis=0, reverse=True) ** 2, T),
    case("cumprod", lambda x: jnp.cumprod(x, 1) + lax.cumprod(x, reverse=True), T),
    case("cummax_cummin", lambda x: lax.cummax(x * 2, 1) * lax.cummin(x, 0, reverse=True), T),
    case("cummax_ties", lambda x: lax.cummax(x, 1) * 2, np.array([[1.0, 1.0, 3.0, 3.0]])),
    case("cumlogsumexp", lambda x: lax.cumlogsumexp(x * 0.5, 1) * x, T),
    case("diff_ediff", lambda x: jnp.diff(jnp.exp(x), axis=1) ** 2, T),
    case("associative_scan", lambda x: lax.associative_scan(lambda a, b: a * b + a, x, axis=1),
        uniform(2, 5)),
    case("trapezoid", lambda x: jnp.trapezoid(jnp.sin(x), x, axis=1) * x[:, 0], T),
]  # fmt: skip
