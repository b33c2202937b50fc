"""Elemental partials that only move numbers, as entries at known places.

A gather, a scatter, a slice or a reshape takes each result from one operand element, or adds each
element to one result.  To the algebra of structures the first two are operators without structure,
and a product with values makes the zeros of a reshape stored ones; here they are index arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.engine import edge
from veenv.engine.edge import Edge
from veenv.engine.known import Known
from veenv.engine.sparse import indexed
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.taps import convolution
from veenv.graph.equations import Equation
from veenv.graph.linearise import Elemental, Linearisation
from veenv.structure.structure import Link

TAKES = {"gather", "scatter", "scatter-add", "scatter_add", "dynamic_slice", "dynamic_update_slice"}
"""Primitives that take each result element from one operand element, by indices."""

Move = tuple[tuple[int, int], int]
"""(source, target) of an edge, and which of the parallel ones it is."""


def moves(
    lin: Linearisation, parallel: Mapping[tuple[int, int], Sequence[Edge]]
) -> dict[Move, Indexed]:
    """The elemental partials that are index arrays, and are not named by the algebra.

    Args:
      lin: the program with its partials.
      parallel: their values.
    """
    known = Known(lin.program)
    found: dict[Move, Indexed] = {}
    for equation, elemental, number in _numbered(lin):
        pair = elemental.source, elemental.target
        e = parallel[pair][number]
        move = _move(lin, equation, elemental, e, known)
        if move is not None:
            found[pair, number] = move
    return found


def _numbered(lin: Linearisation) -> Iterator[tuple[Equation, Elemental, int]]:
    """Every elemental partial with its equation and its number among the parallel ones."""
    seen: dict[tuple[int, int], int] = {}
    for equation, several in zip(lin.program.equations, lin.elementals, strict=True):
        for e in several:
            number = seen.get((e.source, e.target), 0)
            seen[e.source, e.target] = number + 1
            yield equation, e, number


def _move(
    lin: Linearisation, equation: Equation, elemental: Elemental, e: Edge, known: Known
) -> Indexed | None:
    s = e.structure
    name = equation.primitive.name
    if elemental.inner is not None or s.link is Link.NONE or edge.is_known(e):
        return None
    out_shape, in_shape = (lin.graph.shapes[n] for n in (elemental.target, elemental.source))
    if prod(out_shape) == 0 or prod(in_shape) == 0:
        return None
    if s.unit and s.link is Link.SELECTION and name not in TAKES:
        return indexed.of_edge(e, out_shape, in_shape)
    operand = _operand(lin, equation, elemental)
    if operand is None:
        return None
    if name == "conv_general_dilated" and operand == 0:
        return convolution(equation, known(equation.inputs[1]), e.dtype)
    if name not in TAKES or len(equation.outputs) != 1:
        return None
    places = _places(equation, operand, known)
    if places is None:
        return None
    if name in {"scatter-add", "scatter_add"} and operand == 2:
        added = indexed.selected(places.reshape(in_shape), out_shape, e.dtype)
        return indexed.transpose(added)
    return indexed.selected(places.reshape(out_shape), in_shape, e.dtype)


def _operand(lin: Linearisation, equation: Equation, elemental: Elemental) -> int | None:
    """Which operand a partial is by; None if the variable is several."""
    inside = elemental.source < lin.program.num_inputs
    at = elemental.source - lin.program.num_inputs
    slot = elemental.source if inside else lin.program.vertex_slots[at]
    found = [i for i, a in enumerate(equation.inputs) if isinstance(a, int) and a == slot]
    return found[0] if len(found) == 1 else None


def _places(equation: Equation, operand: int, known: Known) -> np.ndarray | None:
    """Flat index of the operand's element that each result element takes, -1 for none.

    For the updates that a scatter adds, the result that each is added to.
    """
    avals = equation.in_avals
    others: list[Any] = []
    for aval, atom in zip(avals, equation.inputs, strict=True):
        value = np.zeros(aval.shape, np.int32)
        if jnp.issubdtype(aval.dtype, jnp.integer):
            value = known(atom)
            if value is None:
                return None
        others.append(value)
    params = dict(equation.params)
    if "fill_value" in params:
        params["fill_value"] = 0
    name = equation.primitive.name
    adds = name in {"scatter-add", "scatter_add"}
    if adds and operand == 0:
        return np.arange(prod(avals[0].shape))
    size = prod(equation.out_avals[0].shape if adds else avals[operand].shape)
    dtype = avals[operand].dtype if adds else jnp.dtype("int32")
    exact = 1 << (jnp.finfo(dtype).nmant + 1) if adds else np.iinfo(np.int32).max
    if size >= exact:
        return None
    with jax.ensure_compile_time_eval():
        numbers = jnp.arange(1, size + 1, dtype=dtype)

        def run(x: Any) -> Any:
            given = [jnp.asarray(v) for v in others]
            if adds:
                given[0] = given[0].astype(dtype)
            given[operand] = x
            return _compat.bind(equation.primitive, params, given)[0]

        if adds:
            shape = jax.ShapeDtypeStruct(avals[operand].shape, dtype)
            back = jax.linear_transpose(run, shape)
            taken = back(numbers.reshape(equation.out_avals[0].shape))[0]
        else:
            taken = run(numbers.reshape(avals[operand].shape))
    return np.asarray(taken).astype(np.int64) - 1
