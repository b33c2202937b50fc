"""Eliminates the vertices of a graph whose edges hold values."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.extend
from jax import Array

from veenv.engine.edge import Edge, Edges
from veenv.engine.pulled import Call, pull_back
from veenv.engine.sums import AsCounted, Policy, Terms
from veenv.graph.linearisation import Linearisation
from veenv.graph.precedence import unreached
from veenv.graph.tableau import Tableau

E = TypeVar("E")


@dataclass(frozen=True)
class Elimination:
    """What is left of a graph after an elimination order.

    Attributes:
      terms: for every edge from an input to an output the partials that it is the sum of, or its
        entries (`veenv.engine.sparse.indexed`).
      executed: multiplications of each elimination.
      additions: additions of each elimination, every sum formed at once.
    """

    terms: Mapping[tuple[int, int], Terms | Any]
    executed: tuple[int, ...]
    additions: tuple[int, ...]

    @property
    def edges(self) -> Edges:
        """The edges, where each is one partial: under the policy `AsCounted`."""
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

    Args:
      linearisation: the program the edges belong to.
      edges: the elemental edges.
      order: eliminable vertex ids, each once.
      calls: the rules of the program that are not linear.
      keep_sums: sums of selections wait until they are multiplied (`veenv.engine.sums`), which
        changes how many additions are emitted; False forms each at once, as they are counted.

    Returns:
      The remaining edges, input → output, and the multiplications and additions of each
      elimination.
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
    """Eliminates the vertices of a checked order.

    Args:
      policy: when sums become dense.
      linearisation: the program the edges belong to.
      parallel: the elemental edges, as many as there are between two nodes.
      order: eliminable vertex ids, each once.
      calls: the rules of the program that are not linear.
      unwanted: (source, target) of edges that are not formed.

    Returns:
      What is left, and what the policy counted in each elimination.
    """
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
    """The rules that are not linear, by the nodes of their results.

    Raises:
      ValueError: if the program has others, or one of them could give something for an output
        that it does not lead to.
    """
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
    """The program that an elimination emits: elemental values in, remaining edges' values out.

    Args:
      linearisation: the program the edges belong to.
      edges: the elemental edges, with concrete values.
      order: eliminable vertex ids, each once.
      keep_sums: as in `eliminate`.

    Returns:
      The jaxpr of the elimination alone, without the computation of the elemental partials and
      without making the blocks of the Jacobian dense.
    """
    pairs = [pair for pair, e in edges.items() if e.values is not None]

    def run(values: Sequence[Array]) -> list[Array]:
        filled = dict(edges)
        for pair, x in zip(pairs, values, strict=True):
            filled[pair] = replace(edges[pair], values=x)
        left = eliminate(linearisation, filled, order, keep_sums=keep_sums).edges
        return [e.values for e in left.values() if e.values is not None]

    return jax.make_jaxpr(run)([edges[pair].values for pair in pairs])
