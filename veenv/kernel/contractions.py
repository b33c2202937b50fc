"""What a contraction is for a processor: how long its sums, how many its matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

_NARROW = range(3, 8)
"""Columns of a right matrix that are few."""


def contracted(equation: Any) -> int:
    """Size of the axes that a contraction, or a convolution, sums over."""
    if equation.primitive.name == "dot_general":
        axes = equation.params["dimension_numbers"][0][0]
        return prod(equation.invars[0].aval.shape[a] for a in axes)
    kernel = equation.invars[1].aval.shape
    return prod(kernel) // max(1, kernel[equation.params["dimension_numbers"].rhs_spec[0]])


def matrices_of(equation: Any, varies: Sequence[bool]) -> tuple[float, bool]:
    """How many products of matrices a contraction is, and whether they are as many for each point.

    What does not vary is multiplied with the rows of all points at once.

    Args:
      equation: a `dot_general`.
      varies: which operands differ from point to point.
    """
    axes = equation.params["dimension_numbers"][1][0]
    return float(prod(equation.invars[0].aval.shape[a] for a in axes)), all(varies)


def is_turned(equation: Any) -> bool:
    """Whether a `dot_general` sums over other axes than the last one by the first one."""
    (left, right), (_, batch) = equation.params["dimension_numbers"]
    return tuple(left) != (equation.invars[0].aval.ndim - 1,) or tuple(right) != (len(batch),)


def narrow(equation: Any, varies: Sequence[bool]) -> tuple[float, bool]:
    """Operations of products of matrices whose right one has a few columns, and if for each point.

    XLA's code for processors is several times slower for them. What does not vary is multiplied
    with the columns of all points at once, which are few for one point only.

    Args:
      equation: a `dot_general`.
      varies: which operands differ from point to point.
    """
    (_, over), (_, batch) = equation.params["dimension_numbers"]
    shape = equation.invars[1].aval.shape
    columns = prod(n for a, n in enumerate(shape) if a not in (*over, *batch))
    if columns not in _NARROW:
        return 0.0, False
    return 2.0 * prod(equation.outvars[0].aval.shape) * contracted(equation), all(varies)
