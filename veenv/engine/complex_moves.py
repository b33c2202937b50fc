"""Elemental partials that move complex numbers, or turn them by known ones, as known entries.

A complex variable is an array with one more axis for its real and its imaginary part
(`veenv.rules.complex`): what moves numbers moves both, and a factor that is known to be real or
imaginary leaves two of the four entries of a product out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from veenv.engine import places
from veenv.engine.edge import Edge
from veenv.engine.known import Known
from veenv.engine.sparse import computed, indexed
from veenv.engine.sparse.computed import Computed, Matrix
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.sparse.numbers import Numbers
from veenv.engine.sparse.pattern import collected
from veenv.engine.supports import supported
from veenv.graph.equations import Equation
from veenv.rules.dtypes import is_complex
from veenv.structure.structure import Link

_MOST = 0.75
"""Share of entries that are not zero up to which a product by a known factor is taken apart."""


def move(
    equation: Equation,
    ways: tuple[int, int],
    e: Edge,
    shapes: Sequence[Sequence[int]],
    known: Known,
    passes: int,
) -> Indexed | None:
    """A partial of an equation of complex variables.

    Args:
      equation: of any primitive.
      ways: of which result, by which operand.
      e: the partial.
      shapes: of the result and of the operand, with the axis of parts where they are complex.
      known: the program's variables that are known.
      passes: see `supported`.

    Returns:
      Its entries at known places; None where it is none of these.
    """
    name, (result, operand), (out_shape, in_shape) = equation.primitive.name, ways, shapes
    alike = is_complex(equation.in_avals[operand]) and is_complex(equation.out_avals[result])
    if alike and name == "mul":
        return _turned(equation, operand, e, shapes, known)
    found = _places(equation, operand, known) if alike else None
    if found is not None:
        both = np.where(found[..., None] < 0, -1, 2 * found[..., None] + np.arange(2))
        adds = places.adds(name) and operand == 2
        return indexed.taken(both, shapes, e.dtype, adds=adds)
    if e.structure.link is Link.OPERATOR:
        return supported(equation, ways, e, known, passes, realify=True)
    selects = e.structure.unit and e.structure.link is Link.SELECTION
    return indexed.of_edge(e, out_shape, in_shape) if selects else None


def _places(equation: Equation, operand: int, known: Known) -> np.ndarray | None:
    """For each result the element that it is, or for each that is added the result; -1 for none."""
    if equation.primitive.name == "select_n":
        return places.let_through(equation, operand, known(equation.inputs[0]))
    found = places.moved(equation) if operand == 0 else None
    return places.by_indices(equation, operand, known) if found is None else found


def _turned(
    equation: Equation, operand: int, e: Edge, shapes: Sequence[Sequence[int]], known: Known
) -> Indexed | None:
    """The product with a known factor, of which the parts that are zero are left out."""
    factor, shape = known(equation.inputs[1 - operand]), equation.out_avals[0].shape
    if factor is None or equation.in_avals[operand].shape != shape:
        return None
    re, im = (np.broadcast_to(x, shape).reshape(-1) for x in (np.real(factor), np.imag(factor)))
    entries = np.stack([re, -im, im, re], axis=-1).reshape(-1, 2, 2)
    if not 0 < np.count_nonzero(entries) <= _MOST * entries.size:
        return None
    at, row, col = np.nonzero(entries)
    pattern, collect = collected(2 * at + row, 2 * at + col, *shapes)
    values = jnp.asarray(entries[at, row, col], e.dtype)
    return Indexed(pattern, Numbers(values).collected(collect), e.dtype)


def by_complex(x: Matrix, in_shape: Sequence[int], dtype: Any) -> Matrix:
    """From partials by real and imaginary part, ∂x and ∂y, to ∂x - i ∂y, as `jax.grad` has it.

    Args:
      x: by pairs of real numbers.
      in_shape: shape of the complex variable.
      dtype: its dtype.
    """
    if isinstance(x, Indexed) and x.mask is None:
        p = x.pattern
        pattern, collect = collected(p.rows, p.cols // 2, p.out_shape, in_shape)
        values = x.stored().astype(dtype) * jnp.asarray(np.where(p.cols % 2, -1j, 1), dtype)
        return Indexed(pattern, Numbers(values).collected(collect), dtype)
    x = computed.as_computed(x)
    factor = jnp.where(jnp.asarray(x.cols) % 2 == 1, -1j, 1).astype(dtype)
    cols = x.cols // 2  # no place, -1, stays none
    return Computed(x.values.astype(dtype) * factor, x.rows, cols, x.out_shape, tuple(in_shape))
