"""Elemental partials that only move numbers, as entries at known places.

A gather, a scatter, a slice or a reshape takes each result from one operand element, or adds each
element to one result.  To the algebra of structures the first two are operators without structure,
and a product with values makes the zeros of a reshape stored ones; here they are index arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from veenv.engine import places
from veenv.engine.known import Known
from veenv.engine.sparse import computed, indexed
from veenv.engine.sparse.computed import Matrix
from veenv.engine.stored import Edge
from veenv.engine.supports import supported
from veenv.engine.taps import convolution
from veenv.engine.thinned import thinned
from veenv.graph.equations import Equation
from veenv.graph.linearisation import Elemental, Linearisation
from veenv.linear.selection import Selection
from veenv.structure.structure import Link

ADDS = {"scatter-add", "scatter_add"}
TAKES = {"gather", "scatter", "dynamic_slice", "dynamic_update_slice", *ADDS}
"""Primitives that take each result element from one operand element, by indices."""
_SORTS = {"sort", "top_k", "approx_top_k"}
"""Primitives that do so by the values of an operand."""

_MOST_CHOSEN = 0.95
"""Share of the elements from which on a select is diagonal, the others stored zeros."""

Move = tuple[tuple[int, int], int]
"""(source, target) of an edge, and which of the parallel ones it is."""


def index_arrays(
    lin: Linearisation, parallel: Mapping[tuple[int, int], Sequence[Edge]]
) -> dict[Move, Matrix]:
    """The elemental partials that are index arrays, and are not named by the algebra.

    Args:
      lin: the program with its partials.
      parallel: their values.
    """
    known = Known(lin.program)
    found: dict[Move, Matrix] = {}
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
) -> Matrix | None:
    s = e.structure
    name = equation.primitive.name
    if name == "select_n":
        return _let_through(lin, equation, elemental, e, known)
    if elemental.inner is not None or isinstance(e.link, Selection):
        return None
    out_shape, in_shape = (lin.graph.shapes[n] for n in (elemental.target, elemental.source))
    operand = _operand(lin, equation, elemental)
    if prod(out_shape) == 0 or prod(in_shape) == 0 or operand is None or e.sign < 0:
        return None
    if s.link is Link.NONE and name not in TAKES:
        return thinned(equation, operand, known, e.dtype)
    if name in _SORTS and s.unit:
        return computed.moved(e, (out_shape, in_shape), adds=False)
    if name == "conv_general_dilated" and operand == 0:
        found = convolution(equation, known(equation.inputs[1]), e.dtype)
        return found or supported(equation, operand, e, known, _passes(lin))
    if s.link is Link.OPERATOR:
        evaluated = supported(equation, operand, e, known, _passes(lin))
        if evaluated is not None:
            return evaluated
    found = places.moved(equation) if operand == 0 else None
    if found is None and name in TAKES:
        found = _by_indices(equation, operand, known)
        if found is None and s.unit:
            adds = name in ADDS and operand == 2
            return computed.moved(e, (out_shape, in_shape), adds=adds)
        if found is None and 1 in (prod(out_shape), prod(in_shape)) and e.link is None:
            return computed.one_hot(e, (out_shape, in_shape))
    if found is None:
        selects = s.unit and s.link is Link.SELECTION and name not in TAKES
        return indexed.of_edge(e, out_shape, in_shape) if selects else None
    if name in ADDS and operand == 2:
        added = indexed.selected(found.reshape(in_shape), out_shape, e.dtype)
        return indexed.transpose(added)
    return indexed.selected(found.reshape(out_shape), in_shape, e.dtype)


def _passes(lin: Linearisation) -> int:
    """How many forward or reverse passes the whole Jacobian takes, whichever are fewer."""
    graph = lin.graph
    nodes = range(graph.num_inputs), graph.output_nodes
    return min(sum(prod(graph.shapes[n]) for n in several) for several in nodes)


def _let_through(
    lin: Linearisation, equation: Equation, elemental: Elemental, e: Edge, known: Known
) -> Matrix | None:
    """The elements that a select lets through, where that is known and leaves enough of them out.

    Few that are left out are stored as zeros: axes that stay diagonal take less than index arrays.
    """
    mask, operand = known(equation.inputs[0]), _operand(lin, equation, elemental)
    shape = equation.out_avals[0].shape
    if mask is None or not operand or mask.shape != shape or e.sign < 0 or prod(shape) == 0:
        return None
    chosen = mask == operand - 1
    if np.count_nonzero(chosen) >= _MOST_CHOSEN * chosen.size:
        return None
    return indexed.selected(np.where(chosen, places.numbered(shape), -1), shape, e.dtype)


def _operand(lin: Linearisation, equation: Equation, elemental: Elemental) -> int | None:
    """Which operand a partial is by; None if the variable is several."""
    inside = elemental.source < lin.program.num_inputs
    at = elemental.source - lin.program.num_inputs
    variable = elemental.source if inside else lin.program.vertex_variables[at]
    found = [i for i, a in enumerate(equation.inputs) if isinstance(a, int) and a == variable]
    return found[0] if len(found) == 1 else None


def _by_indices(equation: Equation, operand: int, known: Known) -> np.ndarray | None:
    """The places that a primitive moves an operand's elements to, if its indices are known.

    Returns:
      Flat index of the operand's element that each result element takes, -1 for none; for the
      updates that a scatter adds, the result that each is added to.
    """
    name = equation.primitive.name
    if name in ADDS and operand == 0:
        return places.numbered(equation.in_avals[0].shape)
    first = {"dynamic_update_slice": 2}.get(name, 1)
    last = 2 if name in {*ADDS, "scatter"} else len(equation.inputs)
    indices = [known(a) for a in equation.inputs[first:last]]
    given = [i for i in indices if i is not None]
    if len(given) < len(indices):
        return None
    if name == "gather":
        return places.gathered(equation, given[0])
    if name == "dynamic_slice":
        return places.sliced(equation, given)
    if name == "dynamic_update_slice":
        return places.updated(equation, given, operand)
    targets = places.scattered(equation, given[0])
    return targets if name in ADDS else _set(equation, targets, operand)


def _set(equation: Equation, targets: np.ndarray, operand: int) -> np.ndarray | None:
    """As `_by_indices` for a scatter that overwrites; None where it does so twice.

    Which of several updates of one element counts is the device's choice.
    """
    flat = targets.reshape(-1)
    put = np.flatnonzero(flat >= 0)
    if len(np.unique(flat[put])) < len(put):
        return None
    shape = equation.out_avals[0].shape
    found = places.numbered(shape) if operand == 0 else np.full(shape, -1)
    found.reshape(-1)[flat[put]] = -1 if operand == 0 else put
    return found
