"""Sparsity patterns of operators' partials: convolutions, windows, running sums, triangles.

They follow from shapes alone, and from the indices of scatters, if those are known.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import numpy as np

from veenv import limits
from veenv.rules import walk
from veenv.rules.indexmap import numbered, takes, targets
from veenv.rules.table import facts

Places = tuple[np.ndarray, np.ndarray]
"""Rows and columns of entries."""


def operator_pattern(
    equation: Any, ways: tuple[int, int], known: Callable[[Any], np.ndarray | None]
) -> Places | None:
    """Returns where a partial can have entries, or None if that is unknown.

    `ways` numbers the result and the operand; `known` gives values of the program's variables.
    """
    name, (result, operand) = equation.primitive.name, ways
    form = facts(name).form
    if form == "running":
        return _running(equation)
    if form == "window" and operand == 0 and len(equation.out_avals) == 1:
        shapes = equation.out_avals[0].shape, equation.in_avals[0].shape
        if name != "select_and_scatter_add":
            return _windows(equation.params, *map(numbered, shapes))
        back = _windows(equation.params, *map(numbered, shapes[::-1]))  # to what they were made of
        return None if back is None else (back[1], back[0])
    if form == "convolution" and prod(equation.in_avals[1].shape) <= limits.TAPS:
        terms = products(equation)
        return terms[0], terms[1 + operand]
    if form == "matrix" and result == 0 and name in _TRIANGLES:
        return _TRIANGLES[name](equation, operand)
    if form == "put" and not takes(name):
        return _updates(equation, operand, known)
    return None


def _running(equation: Any) -> Places | None:
    x, axis = numbered(equation.in_avals[0].shape), equation.params["axis"]
    if x.size * (x.shape[axis] + 1) // 2 > limits.LISTED:
        return None
    i, j = np.tril_indices(x.shape[axis])
    i, j = (j, i) if equation.params["reverse"] else (i, j)
    rows, cols = (np.take(x, at, axis).reshape(-1) for at in (i, j))
    return rows, cols


def _windows(params: Any, out: np.ndarray, x: np.ndarray) -> Places | None:
    """Returns the pattern of an operation on windows, with parameters as of `reduce_window`."""
    sizes, ones = params["window_dimensions"], (1,) * x.ndim
    if prod(sizes) * out.size > limits.LISTED:
        return None
    renamed = {
        "padding": params["padding"],
        "window_strides": params["window_strides"],
        "lhs_dilation": params.get("base_dilation", ones),
        "rhs_dilation": params.get("window_dilation", ones),
    }
    rows, cols = [], []
    for tap in product(*map(range, sizes)):
        at, there = source(renamed, tap, out.shape, x.shape)
        rows.append(out[there].reshape(-1))
        cols.append(x[at].reshape(-1))
    return np.concatenate(rows), np.concatenate(cols)


def _updates(
    equation: Any, operand: int, known: Callable[[Any], np.ndarray | None]
) -> Places | None:
    """Returns the pattern of a scatter that combines updates with what is there."""
    if operand == 0:
        rows = np.arange(prod(equation.out_avals[0].shape))
        return rows, rows
    rows = targets(equation, known) if operand == 2 else None
    return None if rows is None else (rows.reshape(-1), np.arange(rows.size))


def _triangular_solve(equation: Any, operand: int) -> Places | None:
    """Returns the pattern of X, where op(A) X = B or X op(A) = B, by A (operand 0) or B (1).

    The inverse of a triangular matrix is triangular, on the same side, and ∂X = -op(A)⁻¹ ∂op(A) X.
    """
    params = equation.params
    (*batch, n, m), k = equation.in_avals[1].shape, equation.in_avals[0].shape[-1]
    left, transposed = params["left_side"], bool(params["transpose_a"])
    inverse = np.tri(k, dtype=bool)
    inverse = inverse.T if params["lower"] == transposed else inverse
    x = numbered((n, m))
    if k**3 * x.size // k * prod(batch) > limits.LISTED:
        return None
    if operand == 1:
        met = inverse if left else inverse.T
        ends, partners = np.nonzero(met)
        lines = x if left else x.T
        rows, cols = lines[ends], lines[partners]
    else:
        varied = inverse & ~np.eye(k, dtype=bool) if params["unit_diagonal"] else inverse
        matrix = numbered((k, k))
        matrix = matrix.T if transposed else matrix
        if left:
            ends, p, q = np.nonzero(inverse[:, :, None] & varied[None])
        else:
            p, q, ends = np.nonzero(varied[:, :, None] & inverse[None])
        rows = (x if left else x.T)[ends]
        cols = np.broadcast_to(matrix[p, q][:, None], rows.shape)
    sizes = x.size, (k * k if operand == 0 else x.size)
    return _of_batch(rows, cols, prod(batch), sizes)


def _cholesky(equation: Any, operand: int) -> Places | None:
    """Returns the pattern of L by the matrix: L[i, j] has rows i and up to j of columns up to j."""
    *batch, n, _ = equation.in_avals[0].shape
    if n**4 // 4 * prod(batch) > limits.LISTED:
        return None
    matrix = numbered((n, n))
    i, j, p, q = np.ogrid[:n, :n, :n, :n]
    i, j, p, q = np.nonzero((i >= j) & (q <= j) & ((p == i) | (p <= j)))
    return _of_batch(matrix[i, j], matrix[p, q], prod(batch), (n * n, n * n))


def _lu(equation: Any, operand: int) -> Places | None:
    """Returns the pattern of both factors by the matrix, whose rows may come in any order.

    A column of L depends on the columns up to it; U[i, j] on those before i, and on j.
    """
    *batch, n, m = equation.in_avals[0].shape
    if (n * m) ** 2 * prod(batch) > limits.LISTED:
        return None
    matrix = numbered((n, m))
    i, j, q = np.ogrid[:n, :m, :m]
    i, j, q = np.nonzero(np.where(i > j, q <= j, (q < i) | (q == j)))
    cols = matrix.T[q]
    rows = np.broadcast_to(matrix[i, j][:, None], cols.shape)
    return _of_batch(rows, cols, prod(batch), (n * m, n * m))


def _of_batch(rows: np.ndarray, cols: np.ndarray, count: int, sizes: tuple[int, int]) -> Places:
    """Repeats a pattern for each of several matrices."""
    number = np.arange(count)[:, None]
    rows, cols = (
        x.reshape(1, -1) + number * size for x, size in zip((rows, cols), sizes, strict=True)
    )
    return rows.reshape(-1), cols.reshape(-1)


_TRIANGLES: dict[str, Callable[[Any, int], Places | None]] = {
    "triangular_solve": _triangular_solve,
    "cholesky": _cholesky,
    "lu": _lu,
}


def products(equation: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns for each product of a convolution the flat indices of result, operand, kernel."""
    params = equation.params
    numbers = params["dimension_numbers"]
    shapes = [a.shape for a in (*walk.in_avals(equation), *walk.out_avals(equation))]
    specs = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    inside, weights, results = (
        numbered(shape).transpose(spec) for shape, spec in zip(shapes, specs, strict=True)
    )  # batch, channel, places; the kernel's out channel, in channel, places
    per_group, per_batch = weights.shape[0] // groups, weights.shape[0] // batches
    terms = []
    for tap in product(*map(range, weights.shape[2:])):
        at, there = source(params, tap, results.shape[2:], inside.shape[2:])
        for o, i in product(range(weights.shape[0]), range(weights.shape[1])):
            channel = o // per_group * weights.shape[1] + i
            points = slice(o // per_batch * len(results), (o // per_batch + 1) * len(results))
            rows = results[:, o][(slice(None), *there)].reshape(-1)
            cols = inside[points, channel][(slice(None), *at)].reshape(-1)
            terms.append((rows, cols, np.full(rows.size, weights[(o, i, *tap)])))
    rows, cols, of_kernel = (np.concatenate(x) for x in zip(*terms, strict=True))
    return rows, cols, of_kernel


def source(params: Any, tap: Any, out_sizes: Any, in_sizes: Any) -> tuple[Any, Any]:
    """Returns, along each axis, the indices that a tap reads and those of its results."""
    at, there = [], []
    for axis, k in enumerate(tap):
        (low, _), stride = params["padding"][axis], params["window_strides"][axis]
        spread, dilation = params["lhs_dilation"][axis], params["rhs_dilation"][axis]
        results = np.arange(out_sizes[axis])
        place = results * stride - low + k * dilation
        fits = (place >= 0) & (place % spread == 0) & (place // spread < in_sizes[axis])
        at.append(place[fits] // spread)
        there.append(results[fits])
    return np.ix_(*at), np.ix_(*there)
