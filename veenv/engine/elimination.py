"""The Jacobian engine: evaluates a program with its elemental partials, then eliminates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax import Array

from veenv.engine import sums, terms
from veenv.engine.edge import Edge, Edges
from veenv.engine.sums import Sum
from veenv.graph.linearise import Linearisation
from veenv.graph.tableau import Tableau
from veenv.structure import structure as algebra
from veenv.structure.product import multiply as multiply_structures


@dataclass(frozen=True)
class Elimination:
    """What is left of a graph after an elimination order: edges from inputs to outputs."""

    edges: Edges
    executed: tuple[int, ...]


def eliminate(linearisation: Linearisation, edges: Edges, order: Iterable[int]) -> Elimination:
    """Eliminates the vertices of a checked order.

    Args:
      linearisation: the program the edges belong to.
      edges: the elemental edges.
      order: eliminable vertex ids, each once.

    Returns:
      The remaining edges, input → output, and the multiplications of each elimination.
    """
    graph = linearisation.graph
    tableau: Tableau[Edge | Sum] = Tableau(
        graph.num_nodes, ((u, v, e) for (u, v), e in edges.items())
    )
    counts: list[int] = []

    def multiply(post: Edge | Sum, pre: Edge | Sum) -> Edge | Sum:
        predicted = multiply_structures(post.structure, pre.structure)
        counts[-1] += predicted.multiplications
        result = sums.multiply(post, pre, predicted)
        assert result.structure == predicted.structure, (post.structure, pre.structure)
        return result

    for vertex in order:
        counts.append(0)
        node = graph.node(vertex)
        tableau.eliminate(node, multiply, sums.add, keep=node in graph.output_nodes)
    left = {
        (source, target): sums.formed(e, last=True)
        for target in graph.output_nodes
        for source, e in tableau.preds[target].items()
    }
    return Elimination(left, tuple(counts))


def eliminate_sparse(
    linearisation: Linearisation,
    parallel: Mapping[tuple[int, int], Sequence[Edge]],
    order: Iterable[int],
) -> dict[tuple[int, int], terms.Terms]:
    """As `eliminate`, keeping sums of different structures as several terms."""
    graph = linearisation.graph
    edges = ((u, v, terms.collect(several)) for (u, v), several in parallel.items())
    tableau = Tableau(graph.num_nodes, edges)
    for vertex in order:
        node = graph.node(vertex)
        tableau.eliminate(node, terms.multiply, terms.add, keep=node in graph.output_nodes)
    return {
        (source, target): e
        for target in graph.output_nodes
        for source, e in tableau.preds[target].items()
    }


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
    linearisation: Linearisation, edges: Edges, order: Iterable[int]
) -> jax.extend.core.ClosedJaxpr:
    """The program that an elimination emits: elemental values in, remaining edges' values out.

    Args:
      linearisation: the program the edges belong to.
      edges: the elemental edges, with concrete values.
      order: eliminable vertex ids, each once.

    Returns:
      The jaxpr of the elimination alone, without the computation of the elemental partials and
      without making the blocks of the Jacobian dense.
    """
    pairs = [pair for pair, e in edges.items() if e.values is not None]

    def run(values: Sequence[Array]) -> list[Array]:
        filled = dict(edges)
        for pair, x in zip(pairs, values, strict=True):
            filled[pair] = replace(edges[pair], values=x)
        left = eliminate(linearisation, filled, order).edges
        return [e.values for e in left.values() if e.values is not None]

    return jax.make_jaxpr(run)([edges[pair].values for pair in pairs])
