"""Partials by what is multiplied with a known array that is mostly zeros: its other elements.

A matrix of differences, an incidence matrix, one-hot rows or a mask, given as a dense array.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from veenv.engine.known import Known
from veenv.engine.places import numbered
from veenv.engine.sparse.indexed import MOST_ENTRIES, Indexed
from veenv.engine.sparse.numbers import Numbers
from veenv.engine.sparse.pattern import collected
from veenv.graph.equations import Equation

_MOST = 0.5
"""Share of nonzero elements up to which an array is thin: fuller ones multiply faster as arrays."""


def thin_product(equation: Equation, operand: int, known: Known, dtype: Any) -> Indexed | None:
    """The partial of a product by the factor that is not known.

    Args:
      equation: of any primitive.
      operand: by which operand.
      known: the program's variables that are known.
      dtype: of the entries.

    Returns:
      Its entries; None where it is no product with a known, thin array.
    """
    name = equation.primitive.name
    if name not in {"mul", "dot_general"}:
        return None
    factor = known.quickly(equation.inputs[1 - operand])
    if factor is None or not 0 < np.count_nonzero(factor) <= _MOST * factor.size:
        return None
    places = _dot if name == "dot_general" else _elementwise
    found = places(equation, operand, factor)
    if found is None:
        return None
    rows, cols, values = found
    shapes = equation.out_avals[0].shape, equation.in_avals[operand].shape
    pattern, collect = collected(rows, cols, *shapes)
    return Indexed(pattern, Numbers(jnp.asarray(values, dtype)).collected(collect), dtype)


Places = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row, column and value of each entry."""


def _elementwise(equation: Equation, operand: int, factor: np.ndarray) -> Places | None:
    shape = equation.out_avals[0].shape
    if len(factor.shape) != len(shape):
        return None
    factor = np.broadcast_to(factor, shape).reshape(-1)
    taken = np.broadcast_to(numbered(equation.in_avals[operand].shape), shape).reshape(-1)
    at = np.flatnonzero(factor)
    return at, taken[at], factor[at]


def _dot(equation: Equation, operand: int, factor: np.ndarray) -> Places | None:
    contracting, batch = equation.params["dimension_numbers"]
    shapes = [a.shape for a in equation.in_avals]
    free = [
        [a for a in range(len(shapes[i])) if a not in (*contracting[i], *batch[i])] for i in (0, 1)
    ]

    def grouped(x: np.ndarray, i: int) -> np.ndarray:
        """[batch, free, contracted] of an operand."""
        sizes = [prod(shapes[i][a] for a in axes) for axes in (batch[i], free[i], contracting[i])]
        return x.transpose([*batch[i], *free[i], *contracting[i]]).reshape(sizes)

    other = 1 - operand
    weights, inside = grouped(factor, other), grouped(numbered(shapes[operand]), operand)
    b, n, k = np.nonzero(weights)
    if len(b) * inside.shape[1] > MOST_ENTRIES:
        return None
    out = numbered(equation.out_avals[0].shape)  # batch, free axes of the left, of the right one
    out = out.reshape(len(inside), *(x.shape[1] for x in _sided(inside, weights, operand)))
    rows = out[b, :, n] if operand == 0 else out[b, n, :]
    cols = inside[b, :, k]
    values = np.broadcast_to(weights[b, n, k][:, None], cols.shape)
    return rows.reshape(-1), cols.reshape(-1), values.reshape(-1)


def _sided(own: np.ndarray, other: np.ndarray, operand: int) -> tuple[np.ndarray, np.ndarray]:
    return (own, other) if operand == 0 else (other, own)
