"""Elimination on graphs of arrays: each edge is its packed structure (`veenv.structure.packed`).

Eliminating a vertex combines each in-edge with each out-edge.  Most vertices have few, some have
many, and no fixed number bounds them in every order; so the pairs are numbered and taken in chunks
until none is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, UInt

from veenv.env.bits import WORD, count_bits, member, num_words, pack_flags
from veenv.env.chunks import as_one_batch, for_chunks
from veenv.env.counts import MOST_ADDENDS, Count, added_at
from veenv.env.encode import EnvParams, NodeLayout, Spec, encode_common
from veenv.env.lists import at, units_at
from veenv.graph.graph import CostModel, Graph
from veenv.structure import packed, packed_product

CHUNK = 16
"""Least number of pairs of an elimination that are combined at once."""

PAIRS = 4
"""Pairs combined at once for each graph of a batch."""

OBSERVED_CHUNK = 256
"""Pairs that are counted at once for the features."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ArrayEdges:
    """Edges of a graph of arrays.

    Attributes:
      codes: int32 [R, C], the integer of each edge's structure, 0 where there is none.
      sources: uint32 [C, ⌈R / 32⌉], for each column the rows that have an edge to it, as bits, so
        that a step need not read a whole column of the codes.
    """

    codes: Int[Array, "R C"]
    sources: UInt[Array, "C words"]


class Pairs(NamedTuple):
    """The pairs of in- and out-edges of one vertex in each of a batch of graphs, numbered.

    Attributes:
      axes: int32 [R + O, rank], sizes of the axes, or one such array for each graph.
      keeps: bool [B], the vertex keeps its in-edges.
      slot: int32 [B], the vertex.
      row: int32 [B], its row.
      outs: int32 [B, C], the codes of its out-edges.
      sources: uint32 [B, words], the rows of its in-edges as bits.
      targets: uint32 [B, words], the columns of its out-edges as bits.
      width: int32 [B], number of its out-edges.
      number: int32 [B], number of pairs.
      ends: int32 [B], pairs up to those of each graph.
    """

    axes: Array
    keeps: Array
    slot: Array
    row: Array
    outs: Array
    sources: Array
    targets: Array
    width: Array
    number: Array
    ends: Array


@dataclass(frozen=True)
class ArrayRules:
    """The rules for a spec of array graphs.

    Attributes:
      spec: the sizes.
      num_devices: devices that share a batch; their parts are played apart.
    """

    spec: Spec
    num_devices: int = 1

    def encode(self, graph: Graph, cost: CostModel) -> EnvParams:
        """Returns the params of a graph.

        Raises:
          ValueError: if the graph does not fit the spec.
        """
        spec = self.spec
        spec.check_fits(graph, cost)
        layout = NodeLayout.of(graph, spec)
        codes = np.zeros((spec.rows, spec.columns), np.int32)
        sources = np.zeros((spec.columns, num_words(spec.rows)), np.uint32)
        for (source, target), structure in graph.structures(cost).items():
            row, column = layout.row[source], layout.column[target]
            codes[row, column] = packed.pack(structure)
            sources[column, row // WORD] |= np.uint32(1 << row % WORD)
        axes = np.ones((spec.num_inputs + spec.columns, spec.rank), np.int32)
        positions = {n: spec.num_inputs + c for n, c in layout.column.items()} | layout.row
        for node in {node for edge in graph.edges for node in edge}:  # spec.rank is theirs
            position = positions[node]
            sizes = [n for n in graph.shapes[node] if n != 1]
            axes[position, : len(sizes)] = sizes
        # `asarray` would copy twice: gigabytes at 20,000 vertices.
        core = ArrayEdges(jax.device_put(codes), jax.device_put(sources))
        return encode_common(graph, cost, spec, core, axes)

    @partial(jax.jit, static_argnums=0)
    def eliminate(
        self, core: ArrayEdges, params: EnvParams, slot: Int[Array, ""], legal: Bool[Array, ""]
    ) -> tuple[ArrayEdges, Count]:
        """Eliminates the vertex of a slot.

        Args:
          core: the edges.
          params: the graph.
          slot: int32 [], in [0, A).
          legal: bool [], if False nothing changes and nothing is paid.

        Returns:
          The edges afterwards, and what it costs, a count [].
        """
        assert params.axes is not None
        args = (core.codes, core.sources, params.is_output[slot], slot, legal)
        batch = jax.tree.map(lambda x: x[None], args)
        after = as_one_batch(self._eliminate, self.num_devices, params.axes, *batch)
        codes, sources, cost = jax.tree.map(lambda leaf: leaf[0], after)
        return ArrayEdges(codes, sources), cost

    def _eliminate(
        self, axes: Array, codes: Array, sources: Array, keeps: Array, slot: Array, legal: Array
    ) -> tuple[Array, Array, Count]:
        """Eliminates one vertex in each of a batch of graphs.

        The pairs of all graphs are numbered and taken in chunks, so that a graph with many of them
        does not keep the others waiting.  Only what a pair touches is read or written: the codes
        of a large batch are far larger than any cache.

        Args:
          axes: int32 [R + O, rank], or one for each graph.
          codes: int32 [B, R, C].
          sources: uint32 [B, C, words].
          keeps: bool [B], the vertex keeps its in-edges.
          slot: int32 [B].
          legal: bool [B].

        Returns:
          Codes and sources afterwards, and what it costs in each, counts [B].
        """
        graphs = jnp.arange(len(slot), dtype=jnp.int32)
        row = self.spec.num_inputs + slot
        outs, own_sources = codes[graphs, row], sources[graphs, slot]
        targets = pack_flags(outs != 0)
        width = count_bits(targets)
        pairs = jnp.where(legal, count_bits(own_sources) * width, 0)
        ends = jnp.cumsum(pairs, dtype=jnp.int32)
        data = Pairs(axes, keeps, slot, row, outs, own_sources, targets, width, pairs, ends)
        carry = (codes, sources, self.spec.counted(jnp.zeros_like(slot)))
        codes, sources, cost = for_chunks(self._combine, self._chunk(slot), ends[-1], carry, data)
        codes = codes.at[graphs, jnp.where(legal, row, self.spec.rows)].set(0, mode="drop")
        dropped = jnp.where(legal & ~keeps, slot, self.spec.columns)
        return codes, sources.at[graphs, dropped].set(0, mode="drop"), cost

    def _chunk(self, slot: Array) -> int:
        """Returns the number of pairs that a batch combines at once."""
        chunk = max(CHUNK, PAIRS * len(slot))
        return min(chunk, MOST_ADDENDS) if self.spec.wide else chunk

    def _combine(self, start: Array, carry: tuple[Any, ...], data: Pairs) -> tuple[Any, ...]:
        """Combines one chunk of the pairs of a batch."""
        codes, sources, cost = carry
        chunk = self._chunk(data.slot)
        pair = start + jnp.arange(chunk, dtype=jnp.int32)
        b = units_at(jnp.maximum(data.ends - start, 0), chunk)
        here = pair < data.ends[-1]
        v = data.slot[b]
        i, j = _divide(pair - data.ends[b] + data.number[b], data.width[b])
        u, w = member(data.sources[b], i), member(data.targets[b], j)
        axes = data.axes if data.axes.ndim == 2 else data.axes[b]
        old = codes[b, u, w]
        new, count = self._join(axes, old, data.outs[b, w], codes[b, u, v], w, v, u)
        codes = codes.at[b, jnp.where(here, u, self.spec.rows), w].set(new, mode="drop")
        last = (
            here & (j == data.width[b] - 1) & ~data.keeps[b]
        )  # the in-edge is not needed any more
        codes = codes.at[b, jnp.where(last, u, self.spec.rows), v].set(0, mode="drop")
        # A new edge adds a bit, and each target loses the bit of the vertex.
        sources = _add_bit(sources, here & (old == 0), b, w, u, 1)
        sources = _add_bit(sources, here & (i == 0), b, w, data.row[b], -1)
        return codes, sources, added_at(cost, b, count * here.astype(jnp.int32))

    @partial(jax.jit, static_argnums=0)
    def adjacency(self, core: ArrayEdges) -> Int[Array, "R C"]:
        """Returns the edges as integers."""
        return core.codes

    @partial(jax.jit, static_argnums=0)
    def degrees(
        self, core: ArrayEdges, params: EnvParams
    ) -> tuple[Int[Array, " A"], Int[Array, " A"], Count]:
        """Returns in-degree, out-degree and cost of eliminating now, for every slot."""
        codes = core.codes
        slots, first_row = self.spec.num_actions, self.spec.num_inputs
        sources, targets = core.sources[:slots], pack_flags(codes[first_row:] != 0)
        in_degree, out_degree = count_bits(sources), count_bits(targets)
        pairs = in_degree * out_degree
        ends = jnp.cumsum(pairs, dtype=jnp.int32)

        data = (params, codes, sources, targets, out_degree, pairs, ends)
        none = self.spec.counted(jnp.zeros(slots, jnp.int32))
        costs = for_chunks(self._price, OBSERVED_CHUNK, ends[-1], none, data)
        return in_degree, out_degree, costs

    def _price(self, start: Array, costs: Count, data: Any) -> Count:
        """Adds the costs of one chunk of the pairs of all slots."""
        params, codes, sources, targets, out_degree, pairs, ends = data
        first_row = self.spec.num_inputs
        pair = start + jnp.arange(OBSERVED_CHUNK, dtype=jnp.int32)
        slot = units_at(jnp.maximum(ends - start, 0), OBSERVED_CHUNK)
        apart = lax.optimization_barrier  # separate loops, which XLA vectorises
        slot, width = apart((slot, out_degree[slot]))
        i, j = apart(_divide(pair - ends[slot] + pairs[slot], width))
        own_sources, own_targets = apart((sources[slot], targets[slot]))
        u, w = apart((member(own_sources, i), member(own_targets, j)))
        columns, flat = self.spec.columns, codes.reshape(-1)
        pre, post = at(flat, u * columns + slot), at(flat, (first_row + slot) * columns + w)
        old = at(flat, u * columns + w)
        _, count = self._join(params.axes, old, post, pre, w, slot, u)
        here = (pair < ends[-1]).astype(jnp.int32)
        return added_at(costs, slot, apart(count * here))

    @property
    def _algebra(self) -> tuple[int, bool]:
        return self.spec.rank, self.spec.links

    def _join(
        self,
        axes: Array | None,
        old: Array,
        post: Array,
        pre: Array,
        w: Array,
        slot: Array,
        u: Array,
    ) -> tuple[Array, Count]:
        """Multiplies edges and adds the products to old edges; returns codes and costs.

        Args:
          axes: int32 [R + O, rank], or one such array for each product.
          old: codes of the edges u → w, 0 where there is none.
          post: codes of the edges slot → w.
          pre: codes of the edges u → slot.
          w: columns.
          slot: slots.
          u: rows.
        """
        assert axes is not None
        first_row = self.spec.num_inputs

        def sizes(nodes: Array) -> list[Array]:
            if axes.ndim == 2:
                return [at(axes[:, k], nodes) for k in range(self.spec.rank)]
            product = jnp.arange(len(nodes), dtype=jnp.int32)
            return [axes[product, nodes, k] for k in range(self.spec.rank)]

        operands = (old, post, pre, sizes(first_row + w), sizes(first_row + slot), sizes(u))
        old, post, pre, sizes_out, sizes_mid, sizes_in = lax.optimization_barrier(operands)
        code, cost, additions = packed_product.multiply(
            post, pre, sizes_out, sizes_mid, sizes_in, *self._algebra, self.spec.counted
        )
        total = packed.add(old, code, *self._algebra)
        if self.spec.additions:
            merged = packed.num_values(
                total, sizes_out, sizes_in, self.spec.rank, self.spec.counted
            )
            cost += additions + merged * (old != 0).astype(jnp.int32)
        return jnp.where(old == 0, code, total), cost


def _add_bit(sources: Array, here: Array, b: Array, column: Array, row: Array, sign: int) -> Array:
    """Adds the row's bit to the sets of the columns (or removes it with sign -1) where `here`."""
    bit = jnp.uint32(1) << (row % WORD).astype(jnp.uint32)
    at = (b, jnp.where(here, column, sources.shape[1]), row // WORD)
    return sources.at[at].add(bit if sign > 0 else -bit, mode="drop")


def _divide(pair: Array, width: Array) -> tuple[Array, Array]:
    """Returns quotient and remainder of a non-negative pair; a width of 0 counts as 1."""
    width = jnp.maximum(width, 1)
    i = lax.div(pair, width)
    return i, pair - i * width
