"""Where the partials of operators can have entries: convolutions, windows, running sums.

Their shapes alone say so.  Operators that are sums of their operand's elements, with no other
factor, are known as entries altogether; of others the places are kept of what is evaluated.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from veenv.engine import sums
from veenv.engine.dependence import dependent_places
from veenv.engine.edge import Edge, diagonal_pairs, keep_diagonal
from veenv.engine.known import Known
from veenv.engine.places import numbered, scattered, takes
from veenv.engine.sparse import indexed
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.sparse.pattern import collected
from veenv.engine.taps import products, source
from veenv.engine.triangles import cholesky, lu, triangular_solve
from veenv.graph.equations import Equation
from veenv.rules.dtypes import is_complex
from veenv.rules.operator import real_shape
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
    """A partial at the places where it can have entries.

    Args:
      equation: what it is of.
      ways: of which result, by which operand.
      e: the partial.
      known: the program's variables that are known.
      passes: how many the program takes in forward or reverse mode, which dear operators that are
        evaluated may not exceed.
      realify: complex variables have an axis more, of their parts.

    Returns:
      Its entries; None where nothing is known of their places, or they are too many.
    """
    result, operand = ways
    dear = facts(equation.primitive.name).form in ("matrix", "loop")
    if dear and _passes(e) > passes:  # one takes more than one over its entries
        return None
    places = _places(equation, ways, known)
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
    if sums.num_entries(e) > _MOST:
        return None
    x = indexed.of_edge(keep_diagonal(e), out_shape, in_shape)
    return None if x is None else indexed.only(x, pattern)


def _of_parts(rows: np.ndarray, cols: np.ndarray, outs: int, ins: int, *, alike: bool) -> Places:
    """Places in arrays of so many parts a number: each part of each other, or of itself alone."""
    pairs = [(i, j) for i in range(outs) for j in range(ins) if i == j or not alike]
    several = [(outs * rows + i, ins * cols + j) for i, j in pairs]
    return np.concatenate([r for r, _ in several]), np.concatenate([c for _, c in several])


def _passes(e: Edge) -> int:
    """How many an operator takes to be evaluated: one serves all indices of a diagonal axis."""
    shape = e.structure.out_shape
    return min(e.structure.linked_sizes) // prod(shape[k] for k, _ in diagonal_pairs(e))


def _places(equation: Equation, ways: tuple[int, int], known: Known) -> Places | None:
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
    if name == "conv_general_dilated":
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
    indices = known(equation.inputs[1])
    if indices is None or operand != 2:
        return None
    targets = scattered(equation, indices).reshape(-1)
    return targets, np.arange(targets.size)
