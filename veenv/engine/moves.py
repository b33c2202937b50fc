"""Elemental partials that only move numbers, as entries at known places.

A gather, a scatter, a slice or a reshape takes each result from one operand element, or adds each
element to one result.  To the algebra of structures the first two are operators without structure,
and a product with values makes the zeros of a reshape stored ones; here they are index arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from veenv.engine import complex_moves, places
from veenv.engine.edge import Edge
from veenv.engine.known import Known
from veenv.engine.sparse import computed, indexed
from veenv.engine.sparse.computed import Matrix
from veenv.engine.supports import supported
from veenv.engine.taps import convolution
from veenv.engine.thinned import thin_product
from veenv.engine.zeros import Zeros
from veenv.graph.equations import Equation
from veenv.graph.linearisation import Elemental, Linearisation
from veenv.linear.selection import Selection
from veenv.rules.dtypes import is_complex
from veenv.rules.table import facts
from veenv.structure.structure import Link

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
    zeros = Zeros(known)
    found: dict[Move, Matrix] = {}
    for equation, elemental, number in _numbered(lin):
        pair = elemental.source, elemental.target
        e = parallel[pair][number]
        move = _move(lin, equation, elemental, e, known, zeros)
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
    lin: Linearisation,
    equation: Equation,
    elemental: Elemental,
    e: Edge,
    known: Known,
    zeros: Zeros,
) -> Matrix | None:
    s = e.structure
    name = equation.primitive.name
    out_shape, in_shape = (lin.graph.shapes[n] for n in (elemental.target, elemental.source))
    ways = _ways(lin, equation, elemental)
    empty = prod(out_shape) == 0 or prod(in_shape) == 0
    if elemental.inner is not None or empty or ways is None or e.sign < 0:
        return None
    if lin.realify and any(map(is_complex, (*equation.in_avals, *equation.out_avals))):
        return complex_moves.move(equation, ways, e, (out_shape, in_shape), known, _passes(lin))
    _, operand = ways
    if name == "select_n":
        chosen = places.let_through(equation, operand, known(equation.inputs[0]))
        return None if chosen is None else indexed.selected(chosen, in_shape, e.dtype)
    if isinstance(e.link, Selection):
        return None
    if name == "pad" and operand == 1:
        return _padding(equation, e)
    if s.link is Link.NONE and not places.takes(name):
        return thin_product(equation, operand, e, known, zeros)
    if facts(name).form == "sort" and s.unit:
        return computed.moved(e, (out_shape, in_shape), adds=False)
    if name == "conv_general_dilated" and operand == 0:
        found = convolution(equation, known(equation.inputs[1]), e.dtype)
        return found or supported(equation, ways, e, known, _passes(lin))
    if s.link is Link.OPERATOR:
        evaluated = supported(equation, ways, e, known, _passes(lin))
        if evaluated is not None:
            return evaluated
    return _taken(equation, operand, e, (out_shape, in_shape), known)


def _taken(
    equation: Equation,
    operand: int,
    e: Edge,
    shapes: tuple[Sequence[int], Sequence[int]],
    known: Known,
) -> Matrix | None:
    """Of what takes its elements from an operand, or puts them into what it gives."""
    name, s, (out_shape, in_shape) = equation.primitive.name, e.structure, shapes
    found = places.moved(equation) if operand == 0 else None
    if found is None and places.takes(name):
        found = places.by_indices(equation, operand, known)
        if found is None and s.unit:
            adds = places.adds(name) and operand == 2
            return computed.moved(e, (out_shape, in_shape), adds=adds)
        if found is None and 1 in (prod(out_shape), prod(in_shape)) and e.link is None:
            return computed.one_hot(e, (out_shape, in_shape))
    if found is None:
        selects = s.unit and s.link is Link.SELECTION and not places.takes(name)
        return indexed.of_edge(e, out_shape, in_shape) if selects else None
    adds = places.adds(name) and operand == 2
    return indexed.taken(found, (out_shape, in_shape), e.dtype, adds=adds)


def _passes(lin: Linearisation) -> int:
    """How many forward or reverse passes the whole Jacobian takes, whichever are fewer."""
    graph = lin.graph
    nodes = range(graph.num_inputs), graph.output_nodes
    return min(sum(prod(graph.shapes[n]) for n in several) for several in nodes)


def _padding(equation: Equation, e: Edge) -> Matrix | None:
    """Of a padded array by the one number that it is padded with."""
    taken = places.moved(equation)
    assert taken is not None
    padded = np.where(taken < 0, 0, -1)
    return indexed.selected(padded, (), e.dtype) if (padded == 0).any() else None


def _ways(lin: Linearisation, equation: Equation, elemental: Elemental) -> tuple[int, int] | None:
    """Of which result a partial is, and by which operand; None if the variable is several.

    Of loops and branches it may be several: any of them stands for all.
    """
    program = lin.program

    def variable(node: int) -> int:
        inside = node < program.num_inputs
        return node if inside else program.vertex_variables[node - program.num_inputs]

    by, of = variable(elemental.source), variable(elemental.target)
    operands = [i for i, a in enumerate(equation.inputs) if isinstance(a, int) and a == by]
    results = [k for k, v in enumerate(equation.outputs) if v == of]
    alone = len(operands) == 1 or (operands and facts(equation.primitive.name).form == "loop")
    return (results[0], operands[0]) if alone and len(results) == 1 else None
