"""The Jacobian engine: evaluates a program with its elemental partials, then eliminates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv.engine import edge, sums, terms
from veenv.engine.edge import Edge, Edges
from veenv.engine.pulled import Call, Form, pull_back
from veenv.engine.sums import Sum
from veenv.graph.linearise import Linearisation
from veenv.graph.precedence import ReverseOnly, unreached
from veenv.graph.tableau import Tableau
from veenv.structure import structure as algebra
from veenv.structure.product import multiply as multiply_structures
from veenv.structure.structure import Structure


@dataclass(frozen=True)
class Elimination:
    """What is left of a graph after an elimination order: edges from inputs to outputs."""

    edges: Edges
    executed: tuple[int, ...]
    additions: tuple[int, ...]


def eliminate(
    linearisation: Linearisation,
    edges: Edges,
    order: Iterable[int],
    calls: Sequence[Call] = (),
    *,
    keep_sums: bool = True,
) -> Elimination:
    """Eliminates the vertices of a checked order.

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
    graph = linearisation.graph
    tableau: Tableau[Edge | Sum] = Tableau(
        graph.num_nodes, ((u, v, e) for (u, v), e in edges.items())
    )
    multiplications: list[int] = []
    additions: list[int] = []

    def multiply(post: Edge | Sum, pre: Edge | Sum) -> Edge | Sum:
        predicted = multiply_structures(post.structure, pre.structure)
        multiplications[-1] += predicted.multiplications
        additions[-1] += predicted.additions
        result = sums.multiply(post, pre, predicted)
        assert result.structure == predicted.structure, (post.structure, pre.structure)
        return result

    def add(a: Edge | Sum, b: Edge | Sum) -> Edge | Sum:
        total = sums.add(a, b) if keep_sums else edge.add(sums.formed(a), sums.formed(b))
        additions[-1] += total.structure.num_values
        return total

    form = Form(
        _dense_sum,
        _product,
        lambda e: e,
        sums.add,
    )
    owed: dict[int, int] = {}
    waiting = _by_result(linearisation, calls)
    for vertex in order:
        node = graph.node(vertex)
        if node in waiting:
            owed |= _as_stored(tableau, waiting[node].rule)
            _pull_once(tableau, waiting, node, graph.shapes, form)
        multiplications.append(owed.get(node, 0))
        additions.append(0)
        tableau.eliminate(node, multiply, add, keep=node in graph.output_nodes)
    left = {
        (source, target): sums.formed(e, last=True)
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


def _pull_once(
    tableau: Tableau[Any], waiting: dict[int, Call], node: int, shapes: Any, form: Form[Any]
) -> None:
    """Applies the rule that a node is a result of, which then waits no more."""
    call = waiting[node]
    pull_back(tableau, call, shapes, form)
    for r in call.rule.results:
        del waiting[r]


def _as_stored(tableau: Tableau[Edge | Sum], rule: ReverseOnly) -> dict[int, int]:
    """The multiplications of eliminating a rule's results, were its partials stored matrices."""
    return {
        r: sum(
            multiply_structures(tableau.preds[w][r].structure, pre.structure).multiplications
            for w in tableau.succs[r]
            for pre in tableau.preds[r].values()
        )
        for r in rule.results
    }


def eliminate_sparse(
    linearisation: Linearisation,
    parallel: Mapping[tuple[int, int], Sequence[Edge]],
    order: Iterable[int],
    calls: Sequence[Call] = (),
) -> dict[tuple[int, int], terms.Terms]:
    """As `eliminate`, keeping sums of different structures as several terms."""
    graph = linearisation.graph
    edges = ((u, v, terms.collect(several)) for (u, v), several in parallel.items())
    tableau = Tableau(graph.num_nodes, edges)
    form = Form(_dense_terms, None, lambda e: (e,), terms.add)
    waiting = _by_result(linearisation, calls)
    for vertex in order:
        node = graph.node(vertex)
        if node in waiting:
            _pull_once(tableau, waiting, node, graph.shapes, form)
        tableau.eliminate(node, terms.multiply, terms.add, keep=node in graph.output_nodes)
    return {
        (source, target): e
        for target in graph.output_nodes
        for source, e in tableau.preds[target].items()
    }


def _product(pairs: Sequence[tuple[Edge | Sum, Structure]]) -> Structure:
    """The structure of a sum of products."""
    every = [multiply_structures(post.structure, pre).structure for post, pre in pairs]
    return reduce(algebra.add, every)


def _dense_sum(e: Edge | Sum, out_shape: Sequence[int], in_shape: Sequence[int]) -> Array:
    single = sums.formed(e, last=True)
    return edge.todense(single, out_shape, in_shape, single.dtype)


def _dense_terms(e: terms.Terms, out_shape: Sequence[int], in_shape: Sequence[int]) -> Array:
    return reduce(jnp.add, [edge.todense(t, out_shape, in_shape, t.dtype) for t in e])


def jacobian_leaf(
    linearisation: Linearisation,
    edges: Mapping[tuple[int, int], Any],
    output: int,
    source: int,
    build: Callable[..., Any],
    zero: Callable[..., Any],
    single: Callable[[Edge], Any] = lambda e: e,
) -> Any:
    """The block of the Jacobian of output leaf `output` by input leaf `source`.

    Args:
      linearisation: the program.
      edges: what is left after the elimination.
      output: number of the output leaf.
      source: number of the input leaf.
      build: makes a block of what is left, the two shapes and a dtype.
      zero: makes a block of zeros of the two shapes and a dtype.
      single: puts one edge into the form of what is left.
    """
    program, graph = linearisation.program, linearisation.graph
    out_aval, in_aval = program.out_avals[output], program.avals[source]
    node = graph.outputs[output]
    if node == source:
        unit = Edge(algebra.diagonal(out_aval.shape, valued=False), None, in_aval.dtype)
        return build(single(unit), out_aval.shape, in_aval.shape, in_aval.dtype)
    found = None if node is None else edges.get((source, node))
    if found is None:
        return zero(out_aval.shape, in_aval.shape, in_aval.dtype)
    return build(found, out_aval.shape, in_aval.shape, in_aval.dtype)


def zero_block(out_shape: Sequence[int], in_shape: Sequence[int], dtype: Any) -> Array:
    """A dense block of zeros; float0 inputs give float0 zeros, as in JAX."""
    shape = (*out_shape, *in_shape)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.zeros(shape, jax.dtypes.float0)  # type: ignore[return-value]
    return jnp.zeros(shape, dtype)


def elimination_jaxpr(
    linearisation: Linearisation, edges: Edges, order: Iterable[int], *, keep_sums: bool = True
) -> jax.extend.core.ClosedJaxpr:
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
