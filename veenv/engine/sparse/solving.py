"""Solves linear systems with a sparse tensor for a matrix, as its pattern allows.

In: a `SparseTensor` and a right-hand side. Out: the solution. Systems without a simple pattern are
solved by SciPy on the host. A system that is singular, or holds infinity or NaN, has NaN for a
solution, as in JAX: a solver around it then takes a smaller step, or reports it.
"""

from __future__ import annotations

from collections import deque
from math import prod
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from veenv import limits
from veenv.engine.sparse.pattern import Pattern

Tensor = Any
"""A `SparseTensor`, whose method this is."""

Kind = Literal["diagonal", "tridiagonal", "block-diagonal", "banded", "sparse"]


def kind(p: Pattern) -> tuple[Kind, int]:
    """Returns the method for systems of a square pattern, and the size of its blocks."""
    n, (below, above) = p.sizes[0], p.bandwidth
    if max(below, above) == 0:
        return "diagonal", 1
    if max(below, above) == 1 and n > 2:
        return "tridiagonal", 1
    for size in range(2, min(limits.WIDE, n) + 1):
        if n % size == 0 and (p.rows // size == p.cols // size).all():
            return "block-diagonal", size
    return ("banded" if below + above <= min(limits.WIDE, n // 4) else "sparse"), 1


def solve(j: Tensor, b: Array) -> Array:
    """Solves ``j @ x = b`` for x of `in_shape`, for a square tensor without batch."""
    if prod(j.out_shape) != prod(j.in_shape):
        raise ValueError(f"only square systems can be solved, got a tensor of shape {j.shape}")
    b = jnp.asarray(b)
    if b.shape != j.out_shape:
        raise ValueError(f"the right-hand side must be of shape {j.out_shape}, got {b.shape}")
    dtype = jnp.result_type(j.dtype, b.dtype)
    pattern, values = j.pattern, j.values().astype(dtype)
    whole, order = pattern.T, np.lexsort((pattern.rows, pattern.cols))

    def system(x: Array) -> Array:
        return (j @ x.reshape(j.in_shape)).reshape(-1).astype(dtype)

    x = lax.custom_linear_solve(
        system,
        b.reshape(-1).astype(dtype),
        lambda _, y: _solved(pattern, values, y),
        lambda _, y: _solved(whole, values[order], y),
    )
    return x.reshape(j.in_shape)


def _solved(p: Pattern, values: Array, b: Array) -> Array:
    how, size = kind(p)
    n = p.sizes[0]
    if how == "diagonal":
        return b / jnp.zeros(n, b.dtype).at[p.rows].set(values)
    if how == "tridiagonal":
        lower, main, upper = (band(p, values, k) for k in (-1, 0, 1))
        return lax.linalg.tridiagonal_solve(lower, main, upper, b[:, None])[:, 0]
    if how == "block-diagonal":
        return jnp.linalg.solve(blocks(p, values, size), b.reshape(-1, size, 1)).reshape(-1)
    shape = jax.ShapeDtypeStruct(b.shape, b.dtype)
    solver = _banded if how == "banded" else _sparse
    on_host = lambda v, b: solver(p, np.asarray(v), np.asarray(b))  # noqa: E731
    return jax.pure_callback(on_host, shape, values, b, vmap_method="sequential")


def blocks(p: Pattern, values: Array, size: int) -> Array:
    """Returns the diagonal blocks [blocks, size, size] of a pattern without other entries."""
    zeros = jnp.zeros((p.sizes[0] // size, size, size), values.dtype)
    return zeros.at[p.rows // size, p.rows % size, p.cols % size].set(values)


def band(p: Pattern, values: Array, offset: int) -> Array:
    """Returns the entries of one diagonal, at the numbers of their rows."""
    at = np.flatnonzero(p.cols.astype(np.int64) - p.rows == offset)
    return jnp.zeros(p.sizes[0], values.dtype).at[p.rows[at]].set(values[at])


_KEPT: deque[tuple[Pattern, np.ndarray, Any]] = deque(maxlen=2)
"""Pattern, values and factors of the last systems: a chord method solves with one many times."""


def _banded(p: Pattern, values: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solves A x = b by LAPACK's banded LU; values [nse] at A's places."""
    from scipy.linalg import LinAlgError, solve_banded

    if not (np.isfinite(values).all() and np.isfinite(b).all()):
        return np.full_like(b, np.nan)
    below, above = p.bandwidth
    bands = np.zeros((below + above + 1, p.sizes[0]), values.dtype)
    bands[above + p.rows - p.cols, p.cols] = values
    try:
        return solve_banded((below, above), bands, b, check_finite=False).astype(b.dtype)
    except LinAlgError:
        return np.full_like(b, np.nan)


def _sparse(p: Pattern, values: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solves A x = b by SuperLU, whose factors of the last two systems are kept."""
    factors = _factors(p, values)
    return np.full_like(b, np.nan) if factors is None else factors.solve(b).astype(b.dtype)


def _factors(p: Pattern, values: np.ndarray) -> Any:
    """Returns SuperLU's factors; None of a singular matrix."""
    for pattern, known, factors in tuple(_KEPT):
        same = pattern == p and known.dtype == values.dtype
        if same and np.array_equal(known, values):
            return factors
    factorised = _factorised(p, values) if np.isfinite(values).all() else None
    _KEPT.append((p, values.copy(), factorised))
    return factorised


def _factorised(p: Pattern, values: np.ndarray) -> Any:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import splu

    matrix = csr_array((values, p.cols, p.indptr), shape=p.sizes).tocsc()
    options: dict[str, Any] = {}
    if p.symmetric:  # an ordering for A + Aᵀ fills less in than one for Aᵀ A, by 2 to 10 times
        options = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.1}
        options["options"] = {"SymmetricMode": True}
    try:
        return splu(matrix, **options)
    except RuntimeError:  # exactly singular
        return None
