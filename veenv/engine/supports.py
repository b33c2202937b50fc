"""Where the partials of operators can have entries: convolutions, windows, running sums, triangles.

Their shapes alone say so.  Operators that are sums of their operand's elements, with no other
factor, are known as entries altogether, as is a convolution by a small known kernel; of others the
places are kept of what is evaluated.
"""

from __future__ import annotations

from itertools import count, pairwise, product
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from veenv.engine import sums
from veenv.engine.dependence import dependent_places
from veenv.engine.edge import Edge, diagonal_pairs, keep_diagonal
from veenv.engine.known import Known
from veenv.engine.sparse import entries
from veenv.engine.sparse.entries import Indexed
from veenv.engine.sparse.pattern import Numbers, Pattern, collected
from veenv.graph.equations import Equation
from veenv.rules.base import is_complex, real_shape
from veenv.rules.indexmap import numbered, takes, targets
from veenv.rules.table import ALL, facts

_MOST = 1 << 18
"""Most entries of an operator that is evaluated for its places to be kept."""


def _sums(name: str) -> bool:
    """Whether a primitive sums up entries, and does nothing else."""
    return facts(name).form in ("running", "window") and facts(name).linear is ALL


Places = tuple[np.ndarray, np.ndarray]
"""Rows and columns of entries."""


def supported(
    equation: Equation,
    ways: tuple[int, int],
    e: Edge,
    known: Known,
    passes: int,
    *,
    realify: bool = False,
) -> Indexed | None:
    """A partial as entries at the places where it can have any; None if unknown or too many.

    Expensive operators that are evaluated may not exceed the passes of the program's own modes.
    """
    result, operand = ways
    places = places_of(equation, ways, known)
    of, by = equation.out_avals[result], equation.in_avals[operand]
    out_shape, in_shape = (real_shape(a, realify=realify) for a in (of, by))
    if places is not None and realify:
        alike = _sums(equation.primitive.name)
        places = _of_parts(*places, 1 + is_complex(of), 1 + is_complex(by), alike=alike)
    if places is None or len(places[0]) > _MOST:
        return None
    pattern, collect = collected(*places, out_shape, in_shape)
    if _sums(equation.primitive.name) and collect.alone:
        return Indexed(pattern, None, e.dtype)
    expensive = facts(equation.primitive.name).form in ("matrix", "loop")
    compressed = _compressed(e, pattern, min(_passes(e), passes + 1) if expensive else _passes(e))
    if compressed is not None:
        return compressed
    if sums.num_entries(e) > _MOST or (expensive and _passes(e) > passes):
        return None
    x = entries.known_of_edge(keep_diagonal(e), out_shape, in_shape)
    if x is None or pattern.nse == prod(pattern.sizes):
        return None
    return entries.only(x, pattern) or x  # selections next to it would fill what is operator


def _compressed(e: Edge, pattern: Pattern, most: int) -> Indexed | None:
    """An operator in fewer than so many passes, each of columns, or rows, of which no two meet."""
    s, link = e.structure, e.link
    whole = len(s.link_out) == len(s.out_shape) and len(s.link_in) == len(s.in_shape)
    if link is None or not (whole and s.unit) or e.mask is not None or not pattern.nse:
        return None
    found = [
        (int(colours.max()) + 1, transposed, colours)
        for transposed, colours in enumerate((coloured(pattern), coloured(pattern.T)))
    ]
    passes, transposed, colours = min(found, key=lambda one: one[0])
    if passes >= most:
        return None
    shape = link.out_shape if transposed else link.in_shape
    seeds = np.zeros((passes, len(colours)), e.dtype)
    seeds[colours, np.arange(len(colours))] = e.sign
    x = jnp.asarray(seeds.reshape(passes, *shape))
    key = ("coloured", bool(transposed), e.sign, x.dtype, colours.tobytes())
    y = link.along(x, range(1, x.ndim), transposed=bool(transposed), key=key).reshape(-1)
    ends, seeded = (pattern.cols, pattern.rows) if transposed else (pattern.rows, pattern.cols)
    at = colours[seeded].astype(np.int64) * pattern.sizes[transposed] + ends
    return Indexed(pattern, Numbers(y, at), e.dtype)


def coloured(pattern: Pattern) -> np.ndarray:
    """int32 [columns]: the first number for each column that none has with which it shares a row.

    Examples:
      >>> band = collected(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), (2,), (3,))[0]
      >>> coloured(band).tolist()
      [0, 1, 0]
    """
    order, starts = pattern.by_column
    rows = pattern.rows[order].tolist()
    seen: list[set[int]] = [set() for _ in range(pattern.sizes[0])]
    found = np.zeros(pattern.sizes[1], np.int32)
    for column, (start, end) in enumerate(pairwise(starts.tolist())):
        own = rows[start:end]
        taken = set().union(*(seen[row] for row in own))
        number = next(k for k in count() if k not in taken)
        found[column] = number
        for row in own:
            seen[row].add(number)
    return found


def _of_parts(rows: np.ndarray, cols: np.ndarray, outs: int, ins: int, *, alike: bool) -> Places:
    """Places in arrays of so many parts a number: each part of each other, or of itself alone."""
    pairs = [(i, j) for i in range(outs) for j in range(ins) if i == j or not alike]
    several = [(outs * rows + i, ins * cols + j) for i, j in pairs]
    return np.concatenate([r for r, _ in several]), np.concatenate([c for _, c in several])


def _passes(e: Edge) -> int:
    """How many an operator takes to be evaluated: one serves all indices of a diagonal axis."""
    shape = e.structure.out_shape
    return min(e.structure.linked_sizes) // prod(shape[k] for k, _ in diagonal_pairs(e))


def places_of(equation: Equation, ways: tuple[int, int], known: Known) -> Places | None:
    """Where the partial of a result by an operand, two numbers, can have entries."""
    name, (result, operand) = equation.primitive.name, ways
    if facts(name).form == "loop":
        return dependent_places(equation, result, operand, known)
    form = facts(name).form
    if form == "running":
        return _running(equation)
    if name == "select_and_scatter_add" and operand == 0:  # back to what windows were made of
        shapes = equation.in_avals[0].shape, equation.out_avals[0].shape
        back = _windows(equation.params, *map(numbered, shapes))
        return None if back is None else (back[1], back[0])
    if form == "window" and operand == 0 and len(equation.out_avals) == 1:
        shapes = equation.out_avals[0].shape, equation.in_avals[0].shape
        return _windows(equation.params, *map(numbered, shapes))
    if form == "convolution":
        found = products(equation)
        return None if found is None else (found[0], found[1 + operand])
    if name == "triangular_solve":
        return triangular_solve(equation, operand)
    if name in {"cholesky", "lu"} and result == 0:
        return cholesky(equation) if name == "cholesky" else lu(equation)
    if form == "put" and not takes(name):
        return _updates(equation, operand, known)
    return None


def _running(equation: Equation) -> Places:
    x, axis = numbered(equation.in_avals[0].shape), equation.params["axis"]
    i, j = np.tril_indices(x.shape[axis])
    i, j = (j, i) if equation.params["reverse"] else (i, j)
    rows, cols = (np.take(x, at, axis).reshape(-1) for at in (i, j))
    return rows, cols


def _windows(params: Any, out: np.ndarray, x: np.ndarray) -> Places | None:
    """Of what is made of windows, all numbers; with parameters as of `reduce_window`."""
    sizes, ones = params["window_dimensions"], (1,) * x.ndim
    if prod(sizes) * out.size > _MOST:
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


def _updates(equation: Equation, operand: int, known: Known) -> Places | None:
    """Of scatters that combine updates with what is there."""
    if operand == 0:
        rows = np.arange(prod(equation.out_avals[0].shape))
        return rows, rows
    rows = targets(equation, known) if operand == 2 else None
    return None if rows is None else (rows.reshape(-1), np.arange(rows.size))


_MOST_LISTED = 1 << 20
"""Most entries of a triangle's partial that are listed."""


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
    if k**3 * x.size // k * prod(batch) > _MOST_LISTED:
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
    if n**4 // 4 * prod(batch) > _MOST_LISTED:
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
    if (n * m) ** 2 * prod(batch) > _MOST_LISTED:
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


_MOST_TAPS = 256


def convolution(equation: Equation, kernel: np.ndarray | None, dtype: Any) -> Indexed | None:
    """The partial of a convolution by what it is of; None where the kernel is large or unknown."""
    found = None if kernel is None else products(equation)
    if found is None or kernel is None:
        return None
    rows, cols, at = found
    weights = kernel.reshape(-1)[at]
    there = np.flatnonzero(weights)
    if not len(there):
        return None
    shapes = equation.out_avals[0].shape, equation.in_avals[0].shape
    pattern, collect = collected(rows[there], cols[there], *shapes)
    return Indexed(pattern, Numbers(jnp.asarray(weights[there], dtype)).collected(collect), dtype)


def products(equation: Equation) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """For each product of a convolution's sum the flat indices of result, operand and kernel.

    None where the kernel has many taps.
    """
    params = equation.params
    numbers = params["dimension_numbers"]
    shapes = (*(a.shape for a in equation.in_avals), equation.out_avals[0].shape)
    specs = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    if prod(shapes[1]) > _MOST_TAPS:
        return None
    inside, weights, results = (
        np.arange(prod(shape)).reshape(shape).transpose(spec)
        for shape, spec in zip(shapes, specs, strict=True)
    )  # batch, channel, places; the kernel's out channel, in channel, places
    per_group, per_batch = weights.shape[0] // groups, weights.shape[0] // batches
    found = []
    for tap in product(*map(range, weights.shape[2:])):
        at, there = source(params, tap, results.shape[2:], inside.shape[2:])
        for o, i in product(range(weights.shape[0]), range(weights.shape[1])):
            channel = o // per_group * weights.shape[1] + i
            points = slice(o // per_batch * len(results), (o // per_batch + 1) * len(results))
            rows = results[:, o][(slice(None), *there)].reshape(-1)
            cols = inside[points, channel][(slice(None), *at)].reshape(-1)
            found.append((rows, cols, np.full(rows.size, weights[(o, i, *tap)])))
    rows, cols, of_kernel = (np.concatenate(x) for x in zip(*found, strict=True))
    return rows, cols, of_kernel


def source(params: Any, tap: Any, out_sizes: Any, in_sizes: Any) -> tuple[Any, Any]:
    """Indices along each axis of what a tap reads, and of the results it is read for."""
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
