"""Where the partials of triangular solves and Cholesky factors can have entries."""

from __future__ import annotations

from math import prod

import numpy as np

from veenv.engine.places import numbered
from veenv.graph.equations import Equation

_MOST = 1 << 20
"""Most entries that are listed."""

Places = tuple[np.ndarray, np.ndarray]
"""Rows and columns of entries."""


def triangular_solve(equation: Equation, operand: int) -> Places | None:
    """Of a solution X, where op(A) X = B or X op(A) = B, by A (operand 0) or B (1).

    The inverse of a triangular matrix is triangular, on the same side, and ∂X = -op(A)⁻¹ ∂op(A) X.
    """
    params = equation.params
    (*batch, n, m), k = equation.in_avals[1].shape, equation.in_avals[0].shape[-1]
    left, transposed = params["left_side"], bool(params["transpose_a"])
    inverse = np.tri(k, dtype=bool)
    inverse = inverse.T if params["lower"] == transposed else inverse
    x = numbered((n, m))
    if k**3 * x.size // k * prod(batch) > _MOST:
        return None
    if operand == 1:
        met = inverse if left else inverse.T
        ends, found = np.nonzero(met)
        lines = x if left else x.T
        rows, cols = lines[ends], lines[found]
    else:
        own = inverse & ~np.eye(k, dtype=bool) if params["unit_diagonal"] else inverse
        matrix = numbered((k, k))
        matrix = matrix.T if transposed else matrix
        if left:
            ends, p, q = np.nonzero(inverse[:, :, None] & own[None])
        else:
            p, q, ends = np.nonzero(own[:, :, None] & inverse[None])
        rows = (x if left else x.T)[ends]
        cols = np.broadcast_to(matrix[p, q][:, None], rows.shape)
    sizes = x.size, (k * k if operand == 0 else x.size)
    return _of_batch(rows, cols, prod(batch), sizes)


def cholesky(equation: Equation) -> Places | None:
    """Of the lower factor by the matrix: L[i, j] has what is above of row i, left of column j."""
    *batch, n, _ = equation.in_avals[0].shape
    if n**4 // 4 * prod(batch) > _MOST:
        return None
    below = np.tri(n, dtype=bool)  # p is at most i
    matrix = numbered((n, n))
    i, j, p, q = np.nonzero(below[:, :, None, None] & below[:, None, :, None] & below[:, None])
    return _of_batch(matrix[i, j], matrix[p, q], prod(batch), (n * n, n * n))


def _of_batch(rows: np.ndarray, cols: np.ndarray, count: int, sizes: tuple[int, int]) -> Places:
    """The same entries for each of several matrices."""
    number = np.arange(count)[:, None]
    rows, cols = (
        x.reshape(1, -1) + number * size for x, size in zip((rows, cols), sizes, strict=True)
    )
    return rows.reshape(-1), cols.reshape(-1)
