"""Eliminates the vertices of a graph whose edges hold values, and counts operations.

In: a `Linearisation`, edges by (source, target), an order. Out: an `Elimination`, the edges from
inputs to outputs and the counts.

A rule that is not linear in its cotangents (gradient clipping, say) has no matrix; it is applied to
the rows of the Jacobian. In an order that its graph allows, everything behind its results is
eliminated before the first of them. The edges from the results to the outputs are then the rows
that reverse mode would pull back, and are pulled back one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any, TypeVar

import jax
import jax.extend
import jax.numpy as jnp
from jax import Array

from veenv.engine.edge import Edge, Edges, todense
from veenv.engine.sums import AsCounted, Policy, Terms
from veenv.graph.graph import Graph
from veenv.graph.linearisation import Elemental, Linearisation
from veenv.graph.precedence import ReverseOnly, unreached
from veenv.graph.tableau import Tableau
from veenv.structure import structure as algebra

E = TypeVar("E")


@dataclass(frozen=True)
class Call:
    """A rule at the values of its equation, which is not linear."""

    rule: ReverseOnly  # where it stands in the graph
    result_shapes: Sequence[tuple[int, ...]]  # shape of each result, as real numbers
    operand_shapes: Sequence[tuple[int, ...]]  # shape of each operand, as real numbers
    dtypes: Sequence[Any]  # dtype of each result's cotangent
    # cotangents of all results → cotangents of all operands
    pull: Callable[[Sequence[Array]], Sequence[Array]]

    def rows(self, cotangents: Mapping[int, Array], num_rows: int) -> dict[int, Array]:
        """Pulls back rows [num_rows, *result] of some results to rows of the operands."""
        every = []
        results = zip(self.rule.results, self.result_shapes, self.dtypes, strict=True)
        for node, shape, dtype in results:
            cotangent = cotangents.get(node)
            every.append(jnp.zeros((num_rows, *shape), dtype) if cotangent is None else cotangent)
        total: dict[int, Array] = {}
        pulled = jax.vmap(lambda *g: tuple(self.pull(g)))(*every)
        for node, x in zip(self.rule.operands, pulled, strict=True):
            total[node] = total[node] + x if node in total else x
        return total


def elemental_edges(
    call: Call, elementals: Sequence[Elemental], outputs: frozenset[int]
) -> Iterator[Edge]:
    """Yields the edges of a rule: its rows for an output, no values for other nodes."""
    rows_of: dict[int, dict[int, Array]] = {}
    for e in elementals:
        at = call.rule.results.index(e.target)
        if e.target not in outputs:
            yield Edge(e.partial.executed, None, call.dtypes[at])
            continue
        if e.target not in rows_of:
            shape = call.result_shapes[at]
            size = prod(shape)
            basis = jnp.eye(size, dtype=call.dtypes[at]).reshape(size, *shape)
            rows_of[e.target] = call.rows({e.target: basis}, size)
        x = rows_of[e.target][e.source]
        yield Edge(e.partial.executed, x.reshape(e.partial.executed.value_shape), x.dtype)


def pull_back(
    tableau: Tableau[E], call: Call, shapes: Sequence[tuple[int, ...]], policy: Policy[E]
) -> None:
    """Puts edges from a rule's operands in place of those from its results to outputs."""
    results = dict(zip(call.rule.results, call.result_shapes, strict=True))
    operands = dict(zip(call.rule.operands, call.operand_shapes, strict=True))
    for target in {w: None for r in results for w in tableau.succs[r]}:
        row, size = tableau.preds[target], prod(shapes[target])
        posts = {r: row.pop(r) for r in results if r in row}
        rows = {
            r: dense(policy.terms(post), shapes[target], results[r]).reshape(size, *results[r])
            for r, post in posts.items()
        }
        for source, x in call.rows(rows, size).items():
            pairs = [
                (post, algebra.dense(results[r], operands[source])) for r, post in posts.items()
            ]
            new = policy.stored(x.reshape(*shapes[target], *operands[source]), pairs)
            old = row.get(source)
            row[source] = new if old is None else policy.add(old, new)
            tableau.succs[source][target] = None
    for r in results:
        tableau.succs[r] = {}


def dense(
    terms: Terms, out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any = None
) -> Array:
    """Returns the dense array of a sum of terms, in their dtype by default."""
    arrays = [todense(t, out_shape, in_shape, t.dtype if dtype is None else dtype) for t in terms]
    return reduce(jnp.add, arrays)


@dataclass(frozen=True)
class Elimination:
    """The result of an elimination: the edges that remain, and what it counted."""

    # for every edge from an input to an output the partials that add up to it, or its entries
    # (`veenv.engine.sparse.entries`)
    terms: Mapping[tuple[int, int], Terms | Any]
    executed: tuple[int, ...]  # multiplications of each elimination
    additions: tuple[int, ...]  # additions of each elimination, every sum formed at once

    @property
    def edges(self) -> Edges:
        """The remaining edges as one partial each: under the policy `AsCounted`."""
        return {pair: edge for pair, (edge,) in self.terms.items()}


def eliminate(
    linearisation: Linearisation,
    edges: Edges,
    order: Iterable[int],
    calls: Sequence[Call] = (),
    *,
    keep_sums: bool = True,
) -> Elimination:
    """Eliminates the vertices of a checked order, with the structures of the algebra.

    Sums of selections are delayed until they are multiplied (`veenv.engine.sums`), which changes
    the number of emitted additions. Without `keep_sums` each is formed at once, as counted.
    """
    policy = AsCounted(wait=keep_sums)
    parallel = {pair: (edge,) for pair, edge in edges.items()}
    return eliminate_under(policy, linearisation, parallel, order, calls)


def eliminate_under(
    policy: Policy[E],
    linearisation: Linearisation,
    parallel: Mapping[tuple[int, int], Sequence[Edge]],
    order: Iterable[int],
    calls: Sequence[Call] = (),
    unwanted: Container[tuple[int, int]] = (),
) -> Elimination:
    """Eliminates the vertices of a checked order; `unwanted` edges are not formed."""
    graph = linearisation.graph
    gathered = ((u, v, policy.gather(several)) for (u, v), several in parallel.items())
    tableau: Tableau[E] = Tableau(graph.num_nodes, gathered, unwanted)
    multiplications: list[int] = []
    additions: list[int] = []
    waiting = _by_result(linearisation, calls)
    for vertex in order:
        node = graph.node(vertex)
        if node in waiting:
            call = waiting[node]
            pull_back(tableau, call, graph.shapes, policy)
            for r in call.rule.results:
                del waiting[r]
        before = policy.multiplications, policy.additions
        tableau.eliminate(node, policy.multiply, policy.add, keep=node in graph.output_nodes)
        multiplications.append(policy.multiplications - before[0])
        additions.append(policy.additions - before[1])
    left = {
        (source, target): policy.left(e)
        for target in graph.output_nodes
        for source, e in tableau.preds[target].items()
    }
    return Elimination(left, tuple(multiplications), tuple(additions))


def _by_result(linearisation: Linearisation, calls: Sequence[Call]) -> dict[int, Call]:
    """Returns the rules that are not linear, by the nodes of their results."""
    graph = linearisation.graph
    for call in calls:
        leaf = None if call.rule.zero else unreached(call.rule, graph.edges, graph.outputs)
        if leaf is not None:
            raise ValueError(
                f"the derivative rule of {call.rule.name} ({call.rule.source}) is not provably "
                f"zero where its cotangent is, and output leaf {leaf} does not depend on its "
                "result: differentiate by fewer outputs, or make the rule one of its cotangent"
            )
    if len(calls) != len(linearisation.graph.reverse_only):
        raise ValueError(
            f"the program has {len(linearisation.graph.reverse_only)} rules that are not linear in "
            f"their cotangents, got {len(calls)}"
        )
    return {r: call for call in calls for r in call.rule.results}


def elimination_jaxpr(
    linearisation: Linearisation, edges: Edges, order: Iterable[int], *, keep_sums: bool = True
) -> jax.extend.core.ClosedJaxpr:  # pyright: ignore[reportPrivateImportUsage]
    """Traces an elimination alone: elemental values in, remaining edges' values out."""

    def run(values: Sequence[Array | None]) -> list[Array | None]:
        valued = zip(edges.items(), values, strict=True)
        filled = {pair: replace(e, values=x) for (pair, e), x in valued}
        left = eliminate(linearisation, filled, order, keep_sums=keep_sums).edges
        return [e.values for e in left.values()]

    return jax.make_jaxpr(run)([e.values for e in edges.values()])


@dataclass(frozen=True)
class Counts:
    """Operations of an elimination order, as the engine ran it.

    Attributes:
      order: the eliminated vertex ids.
      multiplications_per_vertex: the literature's count of each elimination.
      executed_per_vertex: multiplications really executed in each elimination.
      additions_per_vertex: additions of each elimination with every sum formed at once; where
        selections meet (`veenv.engine.sums`) the engine executes others.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> f = lambda x: jnp.sum(jnp.sin(x) * x)
      >>> _, counts = veenv.jacve(f, "reverse", count_ops=True)(jnp.ones(3))
      >>> counts.order, counts.multiplications_per_vertex, counts.multiplications
      ((2, 1), (6, 3), 9)
      >>> counts.executed, counts.additions, counts.operations
      (3, 3, 6)
    """

    order: tuple[int, ...]
    multiplications_per_vertex: tuple[int, ...]
    executed_per_vertex: tuple[int, ...]
    additions_per_vertex: tuple[int, ...]

    @property
    def multiplications(self) -> int:
        """The total under the literature's count."""
        return sum(self.multiplications_per_vertex)

    @property
    def executed(self) -> int:
        """The total of the executed multiplications."""
        return sum(self.executed_per_vertex)

    @property
    def additions(self) -> int:
        """The total of the additions."""
        return sum(self.additions_per_vertex)

    @property
    def operations_per_vertex(self) -> tuple[int, ...]:
        """The executed multiplications and additions of each elimination."""
        pairs = zip(self.executed_per_vertex, self.additions_per_vertex, strict=True)
        return tuple(m + a for m, a in pairs)

    @property
    def operations(self) -> int:
        """The total of the executed multiplications and the additions."""
        return self.executed + self.additions


def counts_of(graph: Graph, ids: tuple[int, ...], done: Elimination | None) -> Counts:
    """Returns the counts of an elimination; the graph's where `done`, which counts, is None."""
    literature = graph.costs(ids)
    if done is None:
        return Counts(ids, literature, graph.costs(ids, "executed"), graph.additions(ids))
    return Counts(ids, literature, done.executed, done.additions)
