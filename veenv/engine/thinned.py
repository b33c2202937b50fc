"""Partials by what is multiplied with an array that is mostly zeros: its other elements.

A matrix of differences, an incidence matrix, one-hot rows or a mask, given as a dense array; a
block matrix or a padded array, whose zeros are known and whose other elements are not.
"""

from __future__ import annotations

from math import prod

import jax.numpy as jnp
import numpy as np

from veenv.engine.edge import Edge
from veenv.engine.known import Known
from veenv.engine.places import numbered
from veenv.engine.sparse import indexed
from veenv.engine.sparse.indexed import MOST_ENTRIES, Indexed
from veenv.engine.sparse.numbers import Numbers
from veenv.engine.sparse.pattern import collected
from veenv.engine.sums import num_entries
from veenv.engine.zeros import Zeros
from veenv.graph.equations import Equation

_MOST_STORED = 1 << 18
"""Most entries of a partial of which some are taken."""

_MOST = {"mul": 0.75, "dot_general": 0.5}
"""Share of elements that are not zero up to which a factor is thin: fuller ones multiply faster as
arrays."""


def thin_product(
    equation: Equation, operand: int, e: Edge, known: Known, zeros: Zeros
) -> Indexed | None:
    """The partial of a product by one of its factors.

    Args:
      equation: of any primitive.
      operand: by which operand.
      e: the partial.
      known: the program's variables that are known.
      zeros: elements of them that are always zero.

    Returns:
      Its entries; None where it is no product, or the other factor is not thin.
    """
    name = equation.primitive.name
    if name not in _MOST:
        return None
    other = equation.inputs[1 - operand]
    factor, always = known.quickly(other), None
    if factor is None:
        always = zeros(other)
        factor = None if always is None else ~always
    if factor is None or not 0 < np.count_nonzero(factor) <= _MOST[name] * factor.size:
        return None
    places = _dot if name == "dot_general" else _elementwise
    found = places(equation, operand, factor)
    if found is None:
        return None
    rows, cols, values = found
    shapes = equation.out_avals[0].shape, equation.in_avals[operand].shape
    pattern, collect = collected(rows, cols, *shapes)
    if always is None:
        return Indexed(pattern, Numbers(jnp.asarray(values, e.dtype)).collected(collect), e.dtype)
    whole = indexed.of_edge(e, *shapes) if num_entries(e) <= _MOST_STORED else None
    return None if whole is None else indexed.only(whole, pattern)


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
