"""A state as lists of nodes and edges, for graph networks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from veenv._compat import barrier
from veenv.env.bits import WORD, count_columns, count_in_sets
from veenv.env.encode import EnvParams, NodeLayout, Spec
from veenv.env.lists import at, members
from veenv.env.rules_array import ArrayEdges
from veenv.env.rules_scalar import ScalarEdges
from veenv.graph.graph import Graph

if TYPE_CHECKING:
    import gymnasium

NODE_FEATURES = 8
"""Features of a node, before the sizes of its axes."""

VECTOR = 8
"""Numbers that one vector instruction writes."""

IN_DEGREE, OUT_DEGREE, IS_LEGAL = 0, 1, 6
"""Node features that a step changes."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GraphObservation:
    """The remaining graph as lists; N = I + A + O nodes: inputs, slots, terminal outputs.

    Attributes:
      nodes: float32 [N, 8 + rank]: log1p(in-degree), log1p(out-degree), log1p(size) (of slots),
        depth / largest depth, slot / number of slots, is an output, is legal, is an input; then
        log(size) of each axis of size other than one, for graphs of arrays.
      edges: float32 [E, D], `decode_edges` of each edge; 0 where it is padding.
      senders: int32 [E], the node an edge leaves; N where it is padding.
      receivers: int32 [E], the node it enters; N where it is padding.
      n_node: int32 [], N.
      n_edge: int32 [], the number of edges; the others are padding, and come last.
      action_mask: bool [A], True where the action is legal; slot a is node I + a.
    """

    nodes: Float[Array, "N F"]
    edges: Float[Array, "E D"]
    senders: Int[Array, " E"]
    receivers: Int[Array, " E"]
    n_node: Int[Array, ""]
    n_edge: Int[Array, ""]
    action_mask: Bool[Array, " A"]


@dataclass(frozen=True)
class GraphView:
    """Builds `GraphObservation`s from states.

    Attributes:
      spec: the padded sizes.
      max_edges: E.
    """

    spec: Spec
    max_edges: int

    @classmethod
    def of(cls, spec: Spec, graph: Graph | None, max_edges: int | None) -> GraphView:
        """Returns the view with room for `max_edges`, by default for typical orders (`room_for`).

        Raises:
          ValueError: `max_edges` is no positive number.
        """
        if max_edges is not None and max_edges < 1:
            raise ValueError(f"max_edges must be at least 1, got {max_edges}")
        if max_edges is None:
            max_edges = most_edges(spec) if graph is None else room_for(graph, spec)
        return cls(spec, max(1, max_edges))

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes."""
        return self.spec.num_inputs + self.spec.columns

    def __call__(self, core: Any, mask: Bool[Array, " A"], params: EnvParams) -> GraphObservation:
        """Builds the lists; every node's features are NaN where the edges exceed the room."""
        core, mask = barrier((core, mask))  # else XLA recomputes the step for every edge
        spec, arrays = self.spec, isinstance(core, ArrayEdges)
        sets = core.sources.T if arrays else core.present
        owner, one, used, total = members(sets, self.max_edges)
        row, column = (one, owner) if arrays else (owner, one)
        row, column = barrier((row, column))
        if arrays:
            codes = at(core.codes.reshape(-1), row * spec.columns + column)
        else:
            codes = 1 | _valued(core, row, column) << 1
        codes = barrier(jnp.where(used, codes, 0))
        outside = jnp.int32(self.num_nodes)
        senders = jnp.where(used, row, outside)
        receivers = jnp.where(used, column + spec.num_inputs, outside)
        nodes = self._nodes(*self._degrees(core, senders), mask, params)
        return GraphObservation(
            jnp.where(total > self.max_edges, jnp.nan, nodes),
            decode_edges(codes, spec.rank, spec.links),
            senders,
            receivers,
            outside,
            total,
            mask,
        )

    def _degrees(
        self, core: Any, senders: Int[Array, " E"]
    ) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
        """Counts in-edges and out-edges of every node."""
        num, first = self.num_nodes, self.spec.num_inputs
        if isinstance(core, ArrayEdges):
            none = jnp.zeros(num, jnp.int32)
            leaving = none.at[senders.astype(jnp.uint32)].add(1, mode="drop")
            return placed(count_columns(core.sources.T), first, num), leaving
        entering = count_in_sets(core.present, self.spec.columns)
        return placed(entering, first, num), placed(count_columns(core.present), 0, num)

    def _nodes(
        self,
        in_degree: Int[Array, " N"],
        out_degree: Int[Array, " N"],
        mask: Bool[Array, " A"],
        params: EnvParams,
    ) -> Float[Array, "N F"]:
        """Computes the node features: the static ones, overwritten where a step changes them."""
        most = max(self.spec.rows, self.spec.columns)
        logs = jnp.log1p(jnp.arange(most + 1, dtype=jnp.float32))  # a table: degrees are small
        changing = {
            IN_DEGREE: at(logs, in_degree),
            OUT_DEGREE: at(logs, out_degree),
            IS_LEGAL: placed(mask.astype(jnp.float32), self.spec.num_inputs, self.num_nodes),
        }
        return with_columns(self._lasting(params), barrier(changing))

    def _lasting(self, params: EnvParams) -> Float[Array, "N F"]:
        """Computes the static node features, with zeros in the columns that a step changes."""
        num_inputs, ends = self.spec.num_inputs, self.spec.num_outputs
        static = jnp.pad(params.static_features, ((num_inputs, ends), (0, 0)))
        is_output = jnp.pad(params.is_output.astype(jnp.float32), (num_inputs, 0))
        is_output = jnp.pad(is_output, (0, ends), constant_values=1.0)
        is_input = jnp.arange(self.num_nodes, dtype=jnp.int32) < num_inputs
        zeros = jnp.zeros(self.num_nodes, jnp.float32)
        flags = jnp.stack([is_output, zeros, is_input.astype(jnp.float32)], -1)
        parts = [jnp.stack([zeros, zeros], -1), static, flags]
        if params.axes is not None:
            parts.append(jnp.log(params.axes.astype(jnp.float32)))
        return jnp.concatenate(parts, -1)

    def boxes(self, largest: float) -> dict[str, gymnasium.Space[Any]]:
        """Returns the spaces of the fields, except the mask."""
        import gymnasium

        box, num_nodes, room = gymnasium.spaces.Box, self.num_nodes, self.max_edges
        depth = num_edge_features(self.spec.rank, self.spec.links)
        return {
            "nodes": box(0.0, largest, (num_nodes, NODE_FEATURES + self.spec.rank), np.float32),
            "edges": box(0.0, 1.0, (room, depth), np.float32),
            "senders": box(0, num_nodes, (room,), np.int32),
            "receivers": box(0, num_nodes, (room,), np.int32),
            "n_node": box(0, num_nodes, (), np.int32),
            "n_edge": box(0, self.spec.rows * self.spec.columns, (), np.int32),
        }


def placed(values: Array, first: int, num: int) -> Array:
    """Copies values into an array of zeros, where padding would test every number.

    Examples:
      >>> placed(jnp.array([7, 8]), 1, 4).tolist()
      [0, 7, 8, 0]
    """
    zeros = barrier(jnp.zeros(num, values.dtype))
    return barrier(lax.dynamic_update_slice(zeros, values, (first,)))


def with_columns(
    table: Float[Array, "n F"], columns: Mapping[int, Float[Array, " n"]]
) -> Float[Array, "n F"]:
    """Replaces columns of a table in one pass, as fast as writing it.

    Examples:
      >>> with_columns(jnp.zeros((2, 3)), {1: jnp.array([4.0, 5.0])}).tolist()
      [[0.0, 4.0, 0.0], [0.0, 5.0, 0.0]]
    """
    num = table.shape[1]
    whole = num % VECTOR == 0  # else columns are written as rows, and transposed
    axis = 1 if whole else 0
    table = table if whole else table.T
    position = jnp.expand_dims(jnp.arange(num, dtype=jnp.int32), 1 - axis)
    for index, column in columns.items():
        table = jnp.where(position == index, jnp.expand_dims(column, axis), table)
    return table if whole else barrier(table).T


def _valued(core: ScalarEdges, row: Array, column: Array) -> Int[Array, " E"]:
    """Returns 1 where an edge carries a value, else 0."""
    if core.valued is None:
        return jnp.ones_like(row)
    word = core.valued[column // WORD, row]
    return (word >> (column % WORD).astype(jnp.uint32) & 1).astype(jnp.int32)


def num_edge_features(rank: int, links: bool) -> int:
    """Returns D, the number of features that `decode_edges` makes.

    Args:
      rank: as `Spec.rank`.
      links: as `Spec.links`.

    Examples:
      >>> num_edge_features(0, False), num_edge_features(2, True)
      (1, 14)
    """
    return 1 + rank * rank + 2 * rank + (2 * rank + 1 if links else 0)


def decode_edges(codes: Int[Array, "*shape"], rank: int, links: bool) -> Float[Array, "*shape D"]:
    """Unpacks the integer of an edge (`veenv.structure.packed`) into zeros and ones.

    Args:
      codes: edges, as `Observation.adjacency` has them.
      rank: as `Spec.rank`; 0 for scalar graphs, whose only feature is the first.
      links: as `Spec.links`.

    Returns:
      float32 [..., D]: carries values; then, for every out axis and every in axis, whether they
      are diagonal; along which out axes the values vary; along which in axes; with `links` also
      which out axes are linked, which in axes, and whether the link is an operator.

    Examples:
      >>> from veenv.structure import packed
      >>> from veenv.structure.structure import dense, diagonal
      >>> structures = dense((2,), (3,)), diagonal((3,), valued=False)
      >>> codes = jnp.array([packed.pack(s) for s in structures])
      >>> decode_edges(codes, 1, False).tolist()
      [[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]]
    """
    axes = range(rank)
    fields = [(1, 1, 1)]  # first bit, mask, and value of the masked bits
    fields += [(2 + 3 * k, 7, 1 + j) for k in axes for j in axes]
    fields += [(14 + k, 1, 1) for k in axes] + [(18 + j, 1, 1) for j in axes]
    if links:
        fields += [(22 + k, 1, 1) for k in axes] + [(26 + j, 1, 1) for j in axes] + [(30, 1, 1)]
    table = jnp.array(fields, jnp.int32).reshape((1,) * codes.ndim + (len(fields), 3))
    first, masks, wanted = jnp.moveaxis(table, -1, 0)
    return (codes[..., None] >> first & masks == wanted).astype(jnp.float32)


_TRIED = 12_800
"""Vertices compared in total to estimate room: about a second for thousands of vertices."""


def most_edges(spec: Spec) -> int:
    """Returns the most edges that a graph of a spec can have."""
    slots, ends = spec.num_actions, spec.num_outputs
    return spec.num_inputs * spec.columns + slots * (slots - 1) // 2 + slots * ends


def room_for(graph: Graph, spec: Spec) -> int:
    """Estimates room for edges: twice the most at a time in an order greedy for fill-in.

    Nothing proves that no order makes more: `num_paths` is what always suffices.
    """
    after, before = [0] * graph.num_nodes, [0] * graph.num_nodes  # nodes as bits
    for source, target in graph.edges:
        after[source] |= 1 << target
        before[target] |= 1 << source
    number = most = len(graph.edges)
    draw, left = random.Random(0), list(map(graph.node, graph.eliminable))
    tried = min(32, max(2, _TRIED // max(1, len(left))))

    def gain(v: int) -> int:
        """Counts by how many edges eliminating v grows the graph; an output keeps its in-edges."""
        new = sum((after[v] & ~after[u]).bit_count() for u in _nodes(before[v]))
        gone = 0 if v in graph.output_nodes else before[v].bit_count()
        return new - after[v].bit_count() - gone

    while left:
        v = max(draw.sample(left, min(tried, len(left))), key=gain)
        left.remove(v)
        number += gain(v)
        most, keeps = max(most, number), v in graph.output_nodes
        for u in _nodes(before[v]):
            after[u] = (after[u] | after[v]) & ~(0 if keeps else 1 << v)
        for w in _nodes(after[v]):
            before[w] = (before[w] | before[v]) & ~(1 << v)
        after[v] = 0
    return min(2 * most, num_paths(graph, spec))


def _nodes(bits: int) -> Iterator[int]:
    while bits:
        yield bits.bit_length() - 1
        bits ^= 1 << bits.bit_length() - 1


def num_paths(graph: Graph, spec: Spec) -> int:
    """Counts the pairs of nodes with a path between them: no order ever makes more edges."""
    layout, reached = NodeLayout.of(graph, spec), [0] * graph.num_nodes
    for source, target in sorted(graph.edges, reverse=True):
        reached[source] |= reached[target] | 1 << target
    columns = sum(1 << node for node in layout.column)
    return sum((reached[node] & columns).bit_count() for node in layout.row)
