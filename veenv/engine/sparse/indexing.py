"""Eliminates vertices of sparse Jacobians: in the algebra of structures, then entry by entry.

In: a `Linearisation`, its partials and an order. Out: an `Elimination` of terms and entries.

First come the vertices that no index array (of a gather, scatter or reshape) leads to or from, in
the algebra of structures, where axes stay diagonal and bands stay bands. Edges are sums of
structured terms, or entries at known places where terms would be too many. The remaining edges are
written entry by entry, at places known when tracing, and the other vertices are eliminated by
products of sparse matrices.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import TypeVar

import numpy as np
from jax import Array

from veenv import limits
from veenv.engine import edge, edge_product, sums
from veenv.engine.edge import Edge
from veenv.engine.elimination import Call, Elimination, eliminate_under
from veenv.engine.sparse import entries
from veenv.engine.sparse.entries import Entries, Indexed, Matrix
from veenv.engine.sparse.partials import Around, Move, index_arrays
from veenv.engine.sparse.pattern import num_meetings, placed
from veenv.engine.sparse.summands import term
from veenv.engine.sums import Terms
from veenv.graph.linearisation import Linearisation
from veenv.graph.tableau import Tableau
from veenv.linear.barrier import pin
from veenv.structure import structure as algebra
from veenv.structure.structure import Link, Structure

E = TypeVar("E")
Pair = tuple[int, int]
"""Source and target of an edge."""


@dataclass(frozen=True)
class SymmetricBlocks:
    """Blocks of a symmetric Jacobian that an elimination leaves out."""

    # edges that are not formed: their block is the transpose of another
    omitted: frozenset[Pair] = frozenset()
    # edges whose lower triangle equals the upper one
    triangles: frozenset[Pair] = frozenset()


def symmetric_blocks(lin: Linearisation) -> SymmetricBlocks:
    """Returns the blocks to leave out where the k-th output is the k-th input's gradient.

    Of two blocks that are each other's transpose the one in the later row is left out, and of a
    block on the diagonal the lower triangle. Blocks of nodes with further successors stay whole.
    """
    graph = lin.graph
    rows: dict[int, list[int]] = {}
    for row, node in enumerate(graph.outputs):
        if node is not None and node >= graph.num_inputs:
            rows.setdefault(node, []).append(row)
    inside = {u for u, _ in graph.edges}
    last = {node: node_rows for node, node_rows in rows.items() if node not in inside}
    every = [
        (u, node, node_rows) for u in range(graph.num_inputs) for node, node_rows in last.items()
    ]
    dtypes = {a.dtype for a in lin.program.avals[: graph.num_inputs]}
    omitted = frozenset(
        (u, v) for u, v, node_rows in every if min(node_rows) > u and len(dtypes) == 1
    )
    triangles = frozenset((u, v) for u, v, node_rows in every if node_rows == [u])
    return SymmetricBlocks(omitted, triangles)


class _TooMany(Exception):  # noqa: N818  # it is caught, never shown
    """Raised where a matrix has too many entries, or places that are computed."""


def eliminate_sparse(
    lin: Linearisation,
    parallel: Mapping[Pair, Sequence[Edge | Matrix]],
    order: Iterable[int],
    around: Around,
    calls: Sequence[Call] = (),
    symmetric: SymmetricBlocks | None = None,
) -> Elimination:
    """Eliminates under the policy `Sparse`, exact through known gathers, scatters and reshapes.

    Nothing is counted. `around`: the context of the program. `symmetric`: the blocks of a symmetric
    Jacobian to leave out.
    """
    symmetric = SymmetricBlocks() if symmetric is None or calls else symmetric
    order = tuple(order)
    for blocks in () if calls else (False, True):
        index_matrices = index_arrays(lin, parallel, replace(around, blocks=blocks))
        if not index_matrices:
            break
        with suppress(_TooMany):
            return Elimination(_eliminate(lin, parallel, order, index_matrices, symmetric), (), ())
    edges = {pair: list(map(structured_edge, several)) for pair, several in parallel.items()}
    return eliminate_under(Sparse(), lin, edges, order, calls, symmetric.omitted)


def _eliminate(
    lin: Linearisation,
    parallel: Mapping[Pair, Sequence[Edge | Matrix]],
    order: Sequence[int],
    index_matrices: Mapping[Move, Matrix],
    symmetric: SymmetricBlocks,
) -> dict[Pair, Terms | Matrix]:
    graph = lin.graph
    waiting = {node for pair, _ in index_matrices for node in pair}
    plain: dict[Pair, list[Edge]] = {}
    for pair, several in parallel.items():
        for n, e in enumerate(several):
            if (pair, n) not in index_matrices and isinstance(e, Edge):
                plain.setdefault(pair, []).append(e)
    policy = Sparse()
    gathered = ((u, v, policy.gather(s)) for (u, v), s in plain.items())
    first = Tableau(graph.num_nodes, gathered, symmetric.omitted)
    nodes = [graph.node(vertex) for vertex in order]
    outputs = graph.output_nodes
    for node in nodes:
        if node not in waiting:
            first.eliminate(node, policy.multiply, policy.add, keep=node in outputs)
    later, done = _split(lin, _edges(first), waiting, symmetric)
    for (pair, _), move in index_matrices.items():
        later.setdefault(pair, []).append(move)
    known = all(isinstance(x, Indexed) for several in later.values() for x in several)
    triangles = symmetric.triangles if known else ()
    placed = (
        (u, v, _Placed.of((u, v), entries.total(several), triangles))
        for (u, v), several in later.items()
    )
    second = Tableau(graph.num_nodes, placed, symmetric.omitted)
    later_nodes = [node for node in nodes if node in waiting]
    for node in sorted(later_nodes, key=lambda node: not _is_copy(second, node)):
        second.eliminate(node, _multiply, _add, keep=node in outputs)
    result: dict[Pair, Terms | Matrix] = dict(done)
    for (u, v), x in _edges(second).items():
        if v in outputs:
            structured_terms = _converted(lin, (u, v), done[u, v]) if (u, v) in done else []
            result[u, v] = entries.total([x.whole(), *structured_terms])
    return result


def _is_copy(tableau: Tableau[_Placed], node: int) -> bool:
    """Returns whether each element of a node is one of one other node, or zero.

    Such nodes are eliminated first, whatever the order: that takes no operation. The last products
    then start from inputs, so that a symmetric half of them may suffice.
    """
    if len(tableau.preds[node]) != 1:
        return False
    [matrix] = (e.matrix for e in tableau.preds[node].values())
    if not isinstance(matrix, Indexed) or matrix.values is not None or matrix.mask is not None:
        return False
    return bool((np.diff(matrix.pattern.rows) > 0).all())


@dataclass(frozen=True)
class _Placed:
    """An edge between two nodes as entries."""

    pair: Pair  # its source and target
    # the entries; the upper triangle where the pair is among `triangles`
    matrix: Matrix
    triangles: Container[Pair]  # pairs whose final matrix is symmetric, and no factor

    @classmethod
    def of(cls, pair: Pair, matrix: Matrix, triangles: Container[Pair]) -> _Placed:
        if pair in triangles and isinstance(matrix, Indexed):
            matrix = entries.upper(matrix)
        return cls(pair, matrix, triangles)

    def whole(self) -> Matrix:
        """Returns the whole matrix, a triangle mirrored."""
        if self.pair in self.triangles and isinstance(self.matrix, Indexed):
            return entries.mirrored(self.matrix)
        return self.matrix


def _split(
    lin: Linearisation,
    left: Mapping[Pair, Terms | Indexed],
    waiting: Container[int],
    symmetric: SymmetricBlocks,
) -> tuple[dict[Pair, list[Matrix]], dict[Pair, Terms | Indexed]]:
    """Separates the edges that are multiplied further, as entries, from those that are done."""
    inputs, outputs = range(lin.graph.num_inputs), lin.graph.output_nodes
    unfinished = {v for (u, v) in left if u in waiting}
    later: dict[Pair, list[Matrix]] = {}
    done: dict[Pair, Terms | Indexed] = {}
    for (u, v), terms in left.items():
        further = v in waiting or ((u, v) in symmetric.triangles and v in unfinished)
        if u in inputs and v in outputs and not further:
            done[u, v] = terms
        else:
            later[u, v] = _converted(lin, (u, v), terms)
    return later, done


def _converted(lin: Linearisation, pair: Pair, terms: Terms | Indexed) -> list[Matrix]:
    """Returns the terms of an edge, entry by entry."""
    out_shape, in_shape = (lin.graph.shapes[node] for node in reversed(pair))
    if isinstance(terms, Indexed):
        pattern = terms.pattern.reshaped(out_shape, in_shape)
        same = pattern is terms.pattern
        return [terms if same else replace(terms, pattern=pattern, source=terms.values)]
    return [_entries(e, out_shape, in_shape) for e in sums.absorbed(sums.evaluated(terms))]


def as_one(terms: Terms | Matrix, *shapes: Sequence[int]) -> Edge | Matrix:
    """Returns the terms of an edge as one edge of the algebra, or as entries."""
    if isinstance(terms, (Indexed, Entries)):
        return terms
    if len(terms) > 1 and sum(map(sums.num_entries, terms)) <= limits.TABLE:
        several = sums.evaluated(terms)
        return entries.total([entries.of_edge(e, *shapes) for e in several])
    return reduce(edge.add, terms)


def transposed(e: Edge | Matrix) -> Edge | Matrix:
    """Returns a partial with out and in exchanged."""
    if isinstance(e, Edge):
        return edge.transpose(e)
    return entries.transpose(e) if isinstance(e, Indexed) else e.T


def structured_edge(e: Edge | Matrix) -> Edge:
    """Returns a partial as an edge of the algebra, dense if it is entries."""
    if isinstance(e, Indexed):
        [e] = structured(e)
    if isinstance(e, Entries):
        s = algebra.dense(*e.shapes)
        e = Edge(s, e.dense(e.values.dtype).reshape(s.value_shape), e.values.dtype)
    return e


def _edges(tableau: Tableau[E]) -> dict[Pair, E]:
    return {(u, v): e for v, row in enumerate(tableau.preds) for u, e in row.items()}


def _add(a: _Placed, b: _Placed) -> _Placed:
    return replace(a, matrix=entries.total([a.matrix, b.matrix]))


def _multiply(post: _Placed, pre: _Placed) -> _Placed:
    pair = pre.pair[0], post.pair[1]
    product = entries.multiply(post.matrix, pre.matrix, upper=pair in post.triangles)
    if product is None or (
        isinstance(product, Entries) and product.nse > limits.MANY * prod(map(prod, product.shapes))
    ):
        raise _TooMany
    return _Placed(pair, product, post.triangles)


def _entries(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int]) -> Matrix:
    """Returns an edge as entries; raises `_TooMany` for large ones."""
    if prod(edge.entrywise(e.structure).value_shape) > limits.TABLE:
        raise _TooMany
    if e.values is not None:
        e = replace(e, values=pin(e.values))
    return entries.of_edge(e, out_shape, in_shape)


class Sparse:
    """Policy: edges are structured terms, or entries where terms would be too many.

    Attributes:
      multiplications: not counted.
      additions: not counted.
    """

    multiplications = additions = 0

    def gather(self, several: Sequence[Edge]) -> Terms | Indexed:
        """Merges parallel partials."""
        return merged_terms(several)

    def multiply(self, post: Terms | Indexed, pre: Terms | Indexed) -> Terms | Indexed:
        """Multiplies every two terms and merges; entry by entry where one factor is entries."""
        if isinstance(post, Indexed) or isinstance(pre, Indexed):
            left, right = _as_entries(post), _as_entries(pre)
            if left is not None and right is not None and entries.is_light(left, right):
                return entries.multiply_known(left, right)
            post, pre = structured(post), structured(pre)
        products = [_product(p, q) for p in post for q in pre]
        several: list[Terms | Indexed] = [x for x in products if isinstance(x, Indexed)]
        structured_products = [x for x in products if not isinstance(x, Indexed)]
        several += [merged_terms(structured_products)] if structured_products else []
        return reduce(self.add, several)

    def add(self, a: Terms | Indexed, b: Terms | Indexed) -> Terms | Indexed:
        """Merges the terms of both."""
        if isinstance(a, Indexed) or isinstance(b, Indexed):
            left, right = _as_entries(a), _as_entries(b)
            if left is not None and right is not None:
                return entries.total_known([left, right])
            a, b = structured(a), structured(b)
        return merged_terms([*a, *b])

    def left(self, e: Terms | Indexed) -> Terms | Indexed:
        """Returns the edge as it is."""
        return e

    def terms(self, e: Terms | Indexed) -> Terms:
        """Returns the edge, of which entries become one dense term."""
        return structured(e)

    def stored(self, x: Array, pairs: Sequence[tuple[Terms | Indexed, Structure]]) -> Terms:
        """Returns the array as one dense term."""
        (post, *_), pre = structured(pairs[0][0]), pairs[0][1]
        s = algebra.dense(post.structure.out_shape, pre.in_shape)
        return (Edge(s, x.reshape(s.value_shape), x.dtype),)


def _product(p: Edge, q: Edge) -> Edge | Indexed:
    """Multiplies two terms; as entries where the product would store a selection's zeros."""
    product = edge_product.multiply(p, q, keep=True)
    links = {e.structure.link for e in (p, q)}
    stored = sums.num_entries(product)
    selects = Link.SELECTION in links and Link.OPERATOR not in links
    more = product.structure.link is Link.NONE or stored > max(map(sums.num_entries, (p, q)))
    if not selects or not more or stored > limits.TABLE:
        return product
    out_shape, in_shape = product.structure.out_shape, product.structure.in_shape
    between = p.structure.in_shape
    left = entries.known_of_edge(p, out_shape, between)
    right = entries.known_of_edge(q, between, in_shape)
    if left is None or right is None or not entries.is_light(left, right):
        return product
    thin = num_meetings(left.pattern, right.pattern) <= limits.MOSTLY * stored
    return entries.multiply_known(left, right) if thin else product


def merged_terms(several: Sequence[Edge]) -> Terms | Indexed:
    """Merges terms; as entries, or one dense term, if together they would store as much."""
    merged, full = sums.gathered(several)
    if not full:
        return merged
    if any(t.structure.link is Link.OPERATOR for t in merged):
        return merged_terms(sums.evaluated(merged))
    return _union(merged) or (reduce(edge.add, merged),)


def _union(terms: Terms) -> Indexed | None:
    """Returns the sum of terms as entries; None if it is dense, or its places are computed."""
    s = terms[0].structure
    size = prod(s.out_shape) * prod(s.in_shape)
    if size > limits.TABLE or any(sums.num_entries(t) >= limits.FULL * size for t in terms):
        return None
    coordinates = [term(t).coordinates() for t in terms]
    there = np.zeros(size, bool)
    width = prod(s.in_shape)
    for places in coordinates:
        if places is None:
            return None
        rows, cols = places
        at = rows.astype(np.int64) * width + cols
        there[at[(rows >= 0) & (cols >= 0)]] = True
    return _as_entries(terms) if np.count_nonzero(there) < limits.FULL * size else None


def _as_entries(e: Terms | Indexed) -> Indexed | None:
    """Returns an edge as entries; None where places are computed."""
    if isinstance(e, Indexed):
        return e
    s = e[0].structure
    if sum(map(sums.num_entries, e)) > limits.TABLE:
        return None
    matrices = [entries.known_of_edge(t, s.out_shape, s.in_shape) for t in sums.evaluated(e)]
    known = [x for x in matrices if x is not None]
    return entries.total_known(known) if len(known) == len(matrices) else None


def structured(e: Terms | Indexed) -> Terms:
    """Returns an edge as terms: entries become one dense term."""
    if not isinstance(e, Indexed):
        return e
    p = e.pattern
    s = algebra.dense(p.out_shape, p.in_shape)

    def dense(x: Array) -> Array:
        return placed(x, p).reshape(s.value_shape)

    mask = None if e.mask is None else dense(e.mask)
    return (Edge(s, dense(e.stored().astype(e.dtype)), e.dtype, mask=mask),)
