"""Writes elemental partials as entries at known places: moves, and products with known zeros.

A gather, a scatter, a slice or a reshape takes each result from one operand element, or adds each
element to one result.  The algebra of structures knows nothing of where a gather takes from, and
stores zeros where a reshape is multiplied by values; here all of them are index arrays.

A complex variable is an array with one more axis for its real and its imaginary part
(`veenv.rules.complex`): what moves numbers moves both, and a factor that is known to be real or
imaginary leaves two of the four entries of a product out.

A known factor that is mostly zeros (a matrix of differences, one-hot rows, a mask) leaves the
products with them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from veenv import limits
from veenv.engine.edge import Edge, diagonal_pairs, keep_diagonal
from veenv.engine.known import Known
from veenv.engine.sparse import entries
from veenv.engine.sparse.dependence import dependent_places
from veenv.engine.sparse.entries import Indexed, Matrix, Shapes
from veenv.engine.sparse.pattern import Numbers, Pattern, collected
from veenv.engine.sums import num_entries
from veenv.graph.equations import Equation
from veenv.graph.linearisation import Elemental, Linearisation
from veenv.graph.program import Program
from veenv.linear.linear_map import Selection
from veenv.rules.axes import Product
from veenv.rules.base import is_complex, real_shape
from veenv.rules.indexmap import adds, numbered, sources_in, takes
from veenv.rules.operator_patterns import Places, operator_pattern, products
from veenv.rules.table import ALL, facts
from veenv.structure.structure import Link

Move = tuple[tuple[int, int], int]
"""(source, target) of an edge, and which of the parallel ones it is."""


@dataclass(frozen=True)
class Around:
    """The context of a program: known values, passes of the whole Jacobian, entries in blocks."""

    known: Known  # values of its variables
    # passes of the whole Jacobian that it is a part of, forward or reverse, whichever are fewer
    passes: int
    # moves to computed places have entries at all possible places
    blocks: bool = False

    @classmethod
    def of_whole(cls, lin: Linearisation) -> Around:
        """Returns the context of a program that is no part of another."""
        graph = lin.graph
        nodes = range(graph.num_inputs), graph.output_nodes
        passes = min(sum(prod(graph.shapes[n]) for n in several) for several in nodes)
        return cls(Known(lin.program), passes)

    def inside(self, equation: Equation, program: Program) -> Around:
        """Returns the context of a rule's program, whose first constants are the operands."""
        return replace(self, known=Known(program, self.known, equation.invars))


def index_arrays(
    lin: Linearisation, parallel: Mapping[tuple[int, int], Sequence[Edge | Matrix]], around: Around
) -> dict[Move, Matrix]:
    """Returns the elemental partials that are index arrays, not named by the algebra."""
    matrices: dict[Move, Matrix] = {}
    indexed: set[int] = set()  # nodes given by entries, where a factor's zeros cost nothing
    for equation, elemental, number in _numbered(lin):
        pair = elemental.source, elemental.target
        e, near = parallel[pair][number], elemental.source in indexed
        if isinstance(e, Edge):
            e = _move(lin, equation, elemental, e, around, near=near)
        if e is not None:
            matrices[pair, number] = e
        if e is not None or (near and _passes_on(equation)):
            indexed.add(elemental.target)
    return matrices


def _passes_on(equation: Equation) -> bool:
    """Returns whether an equation only adds, moves or chooses elements."""
    known = facts(equation.primitive.name)
    return known.form in ("entry", "move") and known.linear is not None


def _numbered(lin: Linearisation) -> Iterator[tuple[Equation, Elemental, int]]:
    """Yields each equation, a partial of it, and that partial's number among parallel ones."""
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
    around: Around,
    *,
    near: bool,
) -> Matrix | None:
    """Returns a partial as an index array, else None; `near`: it is multiplied by others anyway."""
    s, known = e.structure, around.known
    name = equation.primitive.name
    shapes = lin.graph.shapes[elemental.target], lin.graph.shapes[elemental.source]
    ways = _ways(lin, equation, elemental)
    if 0 in map(prod, shapes) or ways is None or e.sign < 0:
        return None
    if lin.realify and any(map(is_complex, (*equation.in_avals, *equation.out_avals))):
        return _complex_move(equation, ways, e, shapes, around)
    result, operand = ways
    if (of_part := getattr(equation.primitive, "entries", None)) is not None:  # a batched region
        return of_part(result, operand, e)
    if facts(name).selects:
        chosen = _let_through(equation, operand, known(equation.invars[0]))
        return None if chosen is None else entries.selected(chosen, shapes[1], e.dtype)
    if isinstance(e.link, Selection):
        return None
    if name == "pad" and operand == 1:
        return _padding(equation, e)
    if s.link is Link.NONE and not takes(name):
        most = 1 if near and facts(name).multiplies else limits.MOSTLY
        return _thin_product(equation, operand, e, known, most)
    if facts(name).form == "sort" and s.unit:
        return _computed(e, shapes, blocks=around.blocks, adds=False)
    if facts(name).form == "convolution" and operand == 0:
        known_kernel = convolution(equation, known(equation.invars[1]), e.dtype)
        return known_kernel or supported(equation, ways, e, around)
    if s.link is Link.OPERATOR:
        evaluated = supported(equation, ways, e, around)
        if evaluated is not None:
            return evaluated
    return _index_map(equation, operand, e, shapes, around)


def _index_map(
    equation: Equation, operand: int, e: Edge, shapes: Shapes, around: Around
) -> Matrix | None:
    """Returns the matrix of a gather or scatter; None of others."""
    name, s = equation.primitive.name, e.structure
    added, index_array = adds(name) and operand == 2, sources_in(equation, operand, around.known)
    if index_array is not None:
        return entries.index_map(index_array, shapes, e.dtype, adds=added)
    if takes(name):
        if s.unit:
            return _computed(e, shapes, blocks=around.blocks, adds=added)
        single = 1 in map(prod, shapes) and e.link is None
        return entries.one_hot(e, shapes) if single else None
    selects = s.unit and s.link is Link.SELECTION
    return entries.known_of_edge(e, *shapes) if selects else None


def _computed(e: Edge, shapes: Shapes, *, blocks: bool, adds: bool) -> Matrix | None:
    """Returns moves to computed places as entries; `blocks`: at all places that are possible."""
    masked = entries.blocks(e, shapes) if blocks and num_entries(e) <= _LISTED else None
    return masked or entries.computed_map(e, shapes, adds=adds)


def _padding(equation: Equation, e: Edge) -> Matrix | None:
    """Returns the partial of a padded array by the number that fills it."""
    padded = sources_in(equation, 1, lambda _: None)
    assert padded is not None
    return entries.selected(padded, (), e.dtype) if (padded == 0).any() else None


def _ways(lin: Linearisation, equation: Equation, elemental: Elemental) -> tuple[int, int] | None:
    """Returns the numbers of a partial's result and operand; None if the variable is several.

    A loop or branch may have the variable as several operands; any of them stands for all.
    """
    by, of = map(lin.program.variable, (elemental.source, elemental.target))
    operands = [i for i, a in enumerate(equation.invars) if isinstance(a, int) and a == by]
    results = [k for k, v in enumerate(equation.outvars) if v == of]
    alone = len(operands) == 1 or (operands and facts(equation.primitive.name).form == "loop")
    return (results[0], operands[0]) if alone and len(results) == 1 else None


def _complex_move(
    equation: Equation, ways: tuple[int, int], e: Edge, shapes: Shapes, around: Around
) -> Indexed | None:
    """Returns a partial of complex variables as entries; None where they are not known.

    `shapes` have an axis of real and imaginary parts where variables are complex.
    """
    name, (result, operand), known = equation.primitive.name, ways, around.known
    alike = is_complex(equation.in_avals[operand]) and is_complex(equation.out_avals[result])
    if alike and facts(name).multiplies:
        return _turned(equation, operand, e, shapes, known)
    index_array = None
    if alike and facts(name).selects:
        index_array = _let_through(equation, operand, known(equation.invars[0]))
    elif alike:
        index_array = sources_in(equation, operand, known)
    if index_array is not None:
        both = np.where(index_array[..., None] < 0, -1, 2 * index_array[..., None] + np.arange(2))
        return entries.index_map(both, shapes, e.dtype, adds=adds(name) and operand == 2)
    if e.structure.link is Link.OPERATOR:
        return supported(equation, ways, e, around, realify=True)
    selects = e.structure.unit and e.structure.link is Link.SELECTION
    return entries.known_of_edge(e, *shapes) if selects else None


def _turned(
    equation: Equation, operand: int, e: Edge, shapes: Shapes, known: Known
) -> Indexed | None:
    """Multiplies by a known complex factor, whose zero parts are left out."""
    factor, shape = known(equation.invars[1 - operand]), equation.out_avals[0].shape
    if factor is None or equation.in_avals[operand].shape != shape:
        return None
    re, im = (np.broadcast_to(x, shape).reshape(-1) for x in (np.real(factor), np.imag(factor)))
    entries = np.stack([re, -im, im, re], axis=-1).reshape(-1, 2, 2)
    if not 0 < np.count_nonzero(entries) <= limits.MOSTLY * entries.size:
        return None
    at, row, col = np.nonzero(entries)
    pattern, collect = collected(2 * at + row, 2 * at + col, *shapes)
    values = jnp.asarray(entries[at, row, col], e.dtype)
    return Indexed(pattern, Numbers(values).collected(collect), e.dtype)


_LISTED = limits.LISTED // limits.THIN
"""Most entries of a partial of which some are taken, each by its row, column and number."""


def _thin_product(
    equation: Equation, operand: int, e: Edge, known: Known, most: float
) -> Indexed | None:
    """Returns the partial of a product with a mostly zero factor as entries; None of others."""
    known_of = facts(equation.primitive.name)
    if not (known_of.multiplies or known_of.form == "dot"):
        return None
    factor = known(equation.invars[1 - operand])
    if factor is None or not 0 < (nonzero := np.count_nonzero(factor)) <= most * factor.size:
        return None
    if nonzero == factor.size:
        return None
    places_of = _dot_places if known_of.form == "dot" else _elementwise_places
    valued = places_of(equation, operand, factor)
    if valued is None:
        return None
    rows, cols, values = valued
    shapes = equation.out_avals[0].shape, equation.in_avals[operand].shape
    pattern, collect = collected(rows, cols, *shapes)
    return Indexed(pattern, Numbers(jnp.asarray(values, e.dtype)).collected(collect), e.dtype)


Valued = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row, column and value of each entry."""


def _elementwise_places(equation: Equation, operand: int, factor: np.ndarray) -> Valued | None:
    shape = equation.out_avals[0].shape
    if len(factor.shape) != len(shape):
        return None
    factor = np.broadcast_to(factor, shape).reshape(-1)
    columns = np.broadcast_to(numbered(equation.in_avals[operand].shape), shape).reshape(-1)
    at = np.flatnonzero(factor)
    return at, columns[at], factor[at]


def _dot_places(equation: Equation, operand: int, factor: np.ndarray) -> Valued | None:
    axes = Product.of(equation)
    weights = axes.grouped(factor, 1 - operand)
    inside = axes.grouped(numbered(equation.in_avals[operand].shape), operand)
    b, n, k = np.nonzero(weights)
    if len(b) * inside.shape[1] > limits.TABLE:
        return None
    out = numbered(equation.out_avals[0].shape)  # batch, free axes of the left, of the right one
    sides = (inside, weights) if operand == 0 else (weights, inside)
    out = out.reshape(len(inside), *(x.shape[1] for x in sides))
    rows = out[b, :, n] if operand == 0 else out[b, n, :]
    cols = inside[b, :, k]
    values = np.broadcast_to(weights[b, n, k][:, None], cols.shape)
    return rows.reshape(-1), cols.reshape(-1), values.reshape(-1)


def _let_through(equation: Equation, operand: int, mask: np.ndarray | None) -> np.ndarray | None:
    """Returns the elements that a select takes of one case; -1 where it takes another's.

    None where the mask is unknown or a scalar, or shuts hardly any element out: then stored zeros
    on diagonal axes cost less than index arrays.
    """
    shape = equation.out_avals[0].shape
    if mask is None or mask.shape != shape:
        return None
    chosen = mask == operand - 1
    if np.count_nonzero(chosen) >= limits.FULL * chosen.size:
        return None
    return np.where(chosen, numbered(shape), -1)


def _only_adds(name: str) -> bool:
    """Returns whether an operator adds up entries of its operand, and does nothing else."""
    return facts(name).form in ("running", "window") and facts(name).linear is ALL


def supported(
    equation: Equation, ways: tuple[int, int], e: Edge, around: Around, *, realify: bool = False
) -> Indexed | None:
    """Returns a partial as entries where it can have any; None if unknown or too many.

    An expensive operator is evaluated only if it takes no more passes than the whole program's
    modes.
    """
    (result, operand), passes = ways, around.passes
    form = facts(equation.primitive.name).form
    listed = dependent_places if form == "loop" else operator_pattern
    places = listed(equation, ways, around.known)
    of, by = equation.out_avals[result], equation.in_avals[operand]
    out_shape, in_shape = (real_shape(a, realify=realify) for a in (of, by))
    if places is not None and realify:
        alike = _only_adds(equation.primitive.name)
        places = _of_parts(*places, 1 + is_complex(of), 1 + is_complex(by), alike=alike)
    if places is None or len(places[0]) > _LISTED:
        return None
    pattern, collect = collected(*places, out_shape, in_shape)
    if _only_adds(equation.primitive.name) and collect.is_gather:
        return Indexed(pattern, None, e.dtype)
    expensive = form in ("matrix", "loop")
    compressed = _compressed(e, pattern, min(_passes(e), passes + 1) if expensive else _passes(e))
    if compressed is not None:
        return compressed
    if num_entries(e) > _LISTED or (expensive and _passes(e) > passes):
        return None
    x = entries.known_of_edge(keep_diagonal(e), out_shape, in_shape)
    if x is None or pattern.nse == prod(pattern.sizes):
        return None
    return entries.only(x, pattern) or x  # selections next to an operator make it dense


def _compressed(e: Edge, pattern: Pattern, most: int) -> Indexed | None:
    """Evaluates an operator by one pass for each colour of columns or rows, if those are few."""
    s, link = e.structure, e.link
    whole = len(s.link_out) == len(s.out_shape) and len(s.link_in) == len(s.in_shape)
    if link is None or not (whole and s.unit) or e.mask is not None or not pattern.nse:
        return None
    colourings = [
        (int(colours.max()) + 1, transposed, colours)
        for transposed, colours in enumerate((coloured(pattern), coloured(pattern.T)))
    ]
    passes, transposed, colours = min(colourings, key=lambda one: one[0])
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
    """Colours columns greedily, int32 [columns]: two that share a row have two colours.

    Examples:
      >>> band = collected(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), (2,), (3,))[0]
      >>> coloured(band).tolist()
      [0, 1, 0]
    """
    order, starts = pattern.by_column
    rows = pattern.rows[order].tolist()
    seen: list[set[int]] = [set() for _ in range(pattern.sizes[0])]
    colour_of = np.zeros(pattern.sizes[1], np.int32)
    for column, (start, end) in enumerate(pairwise(starts.tolist())):
        column_rows = rows[start:end]
        used = set().union(*(seen[row] for row in column_rows))
        number = next(k for k in count() if k not in used)
        colour_of[column] = number
        for row in column_rows:
            seen[row].add(number)
    return colour_of


def _of_parts(rows: np.ndarray, cols: np.ndarray, outs: int, ins: int, *, alike: bool) -> Places:
    """Returns places in arrays of parts: each part of each other, or of itself alone."""
    pairs = [(i, j) for i in range(outs) for j in range(ins) if i == j or not alike]
    several = [(outs * rows + i, ins * cols + j) for i, j in pairs]
    return np.concatenate([r for r, _ in several]), np.concatenate([c for _, c in several])


def _passes(e: Edge) -> int:
    """Counts the passes that evaluate an operator: one serves a whole diagonal axis."""
    shape = e.structure.out_shape
    return min(e.structure.linked_sizes) // prod(shape[k] for k, _ in diagonal_pairs(e))


def convolution(equation: Equation, kernel: np.ndarray | None, dtype: Any) -> Indexed | None:
    """Returns a convolution's partial by its image; None where the kernel is large or unknown."""
    if kernel is None or kernel.size > limits.TAPS:
        return None
    rows, cols, at = products(equation)
    weights = kernel.reshape(-1)[at]
    there = np.flatnonzero(weights)
    if not len(there):
        return None
    shapes = equation.out_avals[0].shape, equation.in_avals[0].shape
    pattern, collect = collected(rows[there], cols[there], *shapes)
    return Indexed(pattern, Numbers(jnp.asarray(weights[there], dtype)).collected(collect), dtype)
