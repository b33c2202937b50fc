"""Where the partials of triangular solves and triangular factors can have entries."""

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
    """Of the lower factor by the matrix: L[i, j] has rows i and up to j of the columns up to j."""
    *batch, n, _ = equation.in_avals[0].shape
    if n**4 // 4 * prod(batch) > _MOST:
        return None
    matrix = numbered((n, n))
    i, j, p, q = np.ogrid[:n, :n, :n, :n]
    i, j, p, q = np.nonzero((i >= j) & (q <= j) & ((p == i) | (p <= j)))
    return _of_batch(matrix[i, j], matrix[p, q], prod(batch), (n * n, n * n))


def lu(equation: Equation) -> Places | None:
    """Of both factors by the matrix, whose rows may come in any order.

    A column of L has what is in the columns up to its own; U[i, j] in those before i, and in j.
    """
    *batch, n, m = equation.in_avals[0].shape
    if (n * m) ** 2 * prod(batch) > _MOST:
        return None
    matrix = numbered((n, m))
    i, j, q = np.ogrid[:n, :m, :m]
    i, j, q = np.nonzero(np.where(i > j, q <= j, (q < i) | (q == j)))
    cols = matrix.T[q]
    rows = np.broadcast_to(matrix[i, j][:, None], cols.shape)
    return _of_batch(rows, cols, prod(batch), (n * m, n * m))


def _of_batch(rows: np.ndarray, cols: np.ndarray, count: int, sizes: tuple[int, int]) -> Places:
    """The same entries for each of several matrices."""
    number = np.arange(count)[:, None]
    rows, cols = (
        x.reshape(1, -1) + number * size for x, size in zip((rows, cols), sizes, strict=True)
    )
    return rows.reshape(-1), cols.reshape(-1)
