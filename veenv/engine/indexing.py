"""Elimination of sparse Jacobians where gathers, scatters and reshapes stand between structures.

First every vertex is eliminated that no index array leads to or from, in the algebra of structures:
axes stay diagonal, bands stay bands.  What is left is written entry by entry, its places known
when tracing, and the other vertices are eliminated as sparse matrices are multiplied.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from veenv.engine import terms
from veenv.engine.elimination import Elimination, eliminate_under
from veenv.engine.moves import Move, index_arrays
from veenv.engine.pulled import Call
from veenv.engine.sparse import computed, indexed
from veenv.engine.sparse.computed import Computed, Matrix
from veenv.engine.sparse.indexed import Indexed
from veenv.engine.sparse.policy import Sparse
from veenv.engine.sparse.summands import entry_shape
from veenv.engine.stored import Edge
from veenv.graph.linearisation import Linearisation
from veenv.graph.tableau import Tableau
from veenv.linear.barrier import pin
from veenv.rules.dtypes import is_complex

E = TypeVar("E")
Pair = tuple[int, int]
"""Source and target of an edge."""


class _TooMany(Exception):  # noqa: N818  # it is caught, never shown
    """A matrix is better held otherwise: it has too many entries, or places that are computed."""


def eliminate_sparse(
    lin: Linearisation,
    parallel: Mapping[Pair, Sequence[Edge]],
    order: Iterable[int],
    calls: Sequence[Call] = (),
) -> Elimination:
    """As under the policy `Sparse`, and exact through gathers, scatters and reshapes it knows.

    Args:
      lin: the program the edges belong to.
      parallel: its elemental edges.
      order: eliminable vertex ids, each once.
      calls: the rules of the program that are not linear.

    Returns:
      What is left: edges as terms, or as entries at known places. Nothing is counted.
    """
    order = tuple(order)
    mixed = lin.realify and any(map(is_complex, lin.program.avals))
    found = {} if calls or mixed else index_arrays(lin, parallel)
    if found:
        try:
            return Elimination(_eliminate(lin, parallel, order, found), (), ())
        except _TooMany:
            pass
    return eliminate_under(Sparse(), lin, parallel, order, calls)


def _eliminate(
    lin: Linearisation,
    parallel: Mapping[Pair, Sequence[Edge]],
    order: Sequence[int],
    found: Mapping[Move, Matrix],
) -> dict[Pair, terms.Terms | Indexed | Computed]:
    graph = lin.graph
    waiting = {node for pair, _ in found for node in pair}
    plain: dict[Pair, list[Edge]] = {}
    for pair, several in parallel.items():
        rest = [e for n, e in enumerate(several) if (pair, n) not in found]
        if rest:
            plain[pair] = rest
    policy = Sparse()
    first = Tableau(graph.num_nodes, ((u, v, policy.gather(s)) for (u, v), s in plain.items()))
    nodes = [graph.node(vertex) for vertex in order]
    outputs = graph.output_nodes
    for node in nodes:
        if node not in waiting:
            first.eliminate(node, policy.multiply, policy.add, keep=node in outputs)
    later, done = _split(lin, _edges(first), waiting)
    for (pair, _), move in found.items():
        later.setdefault(pair, []).append(move)
    second = Tableau(
        graph.num_nodes, ((u, v, computed.total(several)) for (u, v), several in later.items())
    )
    for node in nodes:
        if node in waiting:
            second.eliminate(node, _multiply, _add, keep=node in outputs)
    result: dict[Pair, terms.Terms | Indexed | Computed] = dict(done)
    for (u, v), x in _edges(second).items():
        if v in outputs:
            also = _converted(lin, (u, v), done[u, v]) if (u, v) in done else []
            result[u, v] = computed.total([x, *also])
    return result


def _split(
    lin: Linearisation,
    left: Mapping[Pair, terms.Terms | Indexed],
    waiting: Container[int],
) -> tuple[dict[Pair, list[Matrix]], dict[Pair, terms.Terms | Indexed]]:
    """The edges that are to be multiplied further, as entries, and those that are done."""
    inputs, outputs = range(lin.graph.num_inputs), lin.graph.output_nodes
    later: dict[Pair, list[Matrix]] = {}
    done: dict[Pair, terms.Terms | Indexed] = {}
    for (u, v), some in left.items():
        if u in inputs and v in outputs and v not in waiting:
            done[u, v] = some
        else:
            later[u, v] = _converted(lin, (u, v), some)
    return later, done


def _converted(
    lin: Linearisation, pair: tuple[int, int], some: terms.Terms | Indexed
) -> list[Matrix]:
    """The terms of an edge, entry by entry."""
    out_shape, in_shape = (lin.graph.shapes[node] for node in reversed(pair))
    if isinstance(some, Indexed):
        return [replace(some, pattern=some.pattern.reshaped(out_shape, in_shape))]
    return [_entries(e, out_shape, in_shape) for e in terms.evaluated(some)]


def _edges(tableau: Tableau[E]) -> dict[Pair, E]:
    return {(u, v): e for v, row in enumerate(tableau.preds) for u, e in row.items()}


def _add(a: Matrix, b: Matrix) -> Matrix:
    return computed.total([a, b])


def _multiply(post: Matrix, pre: Matrix) -> Matrix:
    product = computed.multiply(post, pre)
    if product is None:
        raise _TooMany
    return product


def _entries(e: Edge, out_shape: Sequence[int], in_shape: Sequence[int]) -> Matrix:
    if prod(entry_shape(e.structure)) > indexed.MOST_ENTRIES:
        raise _TooMany
    if e.values is not None:
        e = replace(e, values=pin(e.values))
    return computed.of_edge(e, out_shape, in_shape)
