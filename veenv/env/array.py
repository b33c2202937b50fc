"""The rules for graphs of arrays: an edge is the integer of its structure (`veenv.packed`).

Eliminating a vertex combines each in-edge with each out-edge.  Most vertices have few, some have
many, and no fixed number bounds them in every order; so the pairs are numbered and taken in chunks
until none is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from veenv import packed
from veenv.env.bits import count_bits, member, pack_flags
from veenv.env.chunks import for_chunks
from veenv.env.params import EnvParams, Layout, Spec, encode_common
from veenv.graph import CostModel, Graph

CHUNK = 32
"""Pairs of an elimination that are combined at once."""

OBSERVED_CHUNK = 256
"""Pairs that are counted at once for the features."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ArrayCore:
    """Edges of a graph of arrays.

    Attributes:
      codes: int32 [R, C], the integer of each edge's structure, 0 where there is none.
    """

    codes: Int[Array, "R C"]


@dataclass(frozen=True)
class ArrayRules:
    """The rules for a spec of array graphs."""

    spec: Spec

    def encode(self, graph: Graph, cost: CostModel) -> EnvParams:
        """The params of a graph.

        Raises:
          ValueError: if the graph does not fit the spec, or its total could pass int32.
        """
        spec = self.spec
        spec.check_fits(graph, cost)
        layout = Layout.of(graph, spec)
        codes = np.zeros((spec.rows, spec.columns), np.int32)
        for (source, target), structure in graph.structures(cost).items():
            codes[layout.row[source], layout.column[target]] = packed.pack(structure)
        axes = np.ones((spec.num_inputs + spec.columns, spec.rank), np.int32)
        positions = {n: spec.num_inputs + c for n, c in layout.column.items()} | layout.row
        for node, position in positions.items():
            sizes = [n for n in graph.shapes[node] if n != 1]
            axes[position, : len(sizes)] = sizes
        core = ArrayCore(jnp.asarray(codes))
        return encode_common(graph, cost, spec, core, axes)

    @partial(jax.jit, static_argnums=0)
    def eliminate(
        self, core: ArrayCore, params: EnvParams, slot: Int[Array, ""], legal: Bool[Array, ""]
    ) -> tuple[ArrayCore, Int[Array, ""]]:
        """Eliminates the vertex of a slot.

        Args:
          core: the edges.
          params: the graph.
          slot: int32 [], in [0, A).
          legal: bool [], if False nothing changes and nothing is paid.

        Returns:
          The edges afterwards, and the number of multiplications, int32 [].
        """
        first_row = self.spec.num_inputs
        ins, outs = core.codes[:, slot], core.codes[first_row + slot]
        sources, targets = pack_flags(ins != 0), pack_flags(outs != 0)
        width = count_bits(targets)
        total = jnp.where(legal, count_bits(sources) * width, 0)

        data = (params, slot, ins, outs, sources, targets, width, total)
        carry = (core.codes, jnp.zeros((), jnp.int32))
        codes, cost = for_chunks(self._combine, CHUNK, total, carry, data)
        codes = codes.at[jnp.where(legal, first_row + slot, self.spec.rows)].set(0, mode="drop")
        dropped = legal & ~params.is_output[slot]
        codes = codes.at[:, jnp.where(dropped, slot, self.spec.columns)].set(0, mode="drop")
        return ArrayCore(codes), cost

    def _combine(self, start: Array, carry: tuple[Array, Array], data: Any) -> tuple[Array, Array]:
        """Combines one chunk of the pairs of an elimination."""
        params, slot, ins, outs, sources, targets, width, total = data
        codes, cost = carry
        pair = start + jnp.arange(CHUNK, dtype=jnp.int32)
        i, j = _divide(pair, width)
        u, w = member(sources, i), member(targets, j)
        code, count = self._multiply(params, outs[w], ins[u], w, slot, u)
        old = codes[u, w]
        new = jnp.where(old == 0, code, packed.add(old, code, *self._algebra))
        here = pair < total
        codes = codes.at[jnp.where(here, u, self.spec.rows), w].set(new, mode="drop")
        return codes, cost + jnp.where(here, count, 0).sum(dtype=jnp.int32)

    @partial(jax.jit, static_argnums=0)
    def adjacency(self, core: ArrayCore) -> Int[Array, "R C"]:
        """The edges as integers."""
        return core.codes

    @partial(jax.jit, static_argnums=0)
    def degrees(
        self, core: ArrayCore, params: EnvParams
    ) -> tuple[Int[Array, " A"], Int[Array, " A"], Int[Array, " A"]]:
        """In-degree, out-degree and cost of eliminating now, for every slot."""
        codes = core.codes
        slots, first_row = self.spec.num_actions, self.spec.num_inputs
        sources = pack_flags(codes[:, :slots].T != 0)
        targets = pack_flags(codes[first_row:] != 0)
        in_degree, out_degree = count_bits(sources), count_bits(targets)
        pairs = in_degree * out_degree
        ends = jnp.cumsum(pairs, dtype=jnp.int32)

        data = (params, codes, sources, targets, out_degree, pairs, ends)
        none = jnp.zeros(slots, jnp.int32)
        costs = for_chunks(self._price, OBSERVED_CHUNK, ends[-1], none, data)
        return in_degree, out_degree, costs

    def _price(self, start: Array, costs: Array, data: Any) -> Array:
        """Counts one chunk of the pairs of all slots."""
        params, codes, sources, targets, out_degree, pairs, ends = data
        first_row = self.spec.num_inputs
        pair = start + jnp.arange(OBSERVED_CHUNK, dtype=jnp.int32)
        slot = (ends <= pair[:, None]).sum(-1, dtype=jnp.int32).clip(max=len(ends) - 1)
        i, j = _divide(pair - ends[slot] + pairs[slot], out_degree[slot])
        u, w = member(sources[slot], i), member(targets[slot], j)
        pre, post = codes[u, slot], codes[first_row + slot, w]
        _, count = self._multiply(params, post, pre, w, slot, u)
        return costs.at[slot].add(jnp.where(pair < ends[-1], count, 0))

    @property
    def _algebra(self) -> tuple[int, bool]:
        return self.spec.rank, self.spec.links

    def _multiply(
        self, params: EnvParams, post: Array, pre: Array, w: Array, slot: Array, u: Array
    ) -> tuple[Array, Array]:
        """Codes and counts of products over the axes of column w, of a slot, and of row u."""
        axes = params.axes
        assert axes is not None
        first_row = self.spec.num_inputs

        def sizes(at: Array) -> Array:
            return jnp.moveaxis(axes[at], -1, 0)

        return packed.multiply(
            post, pre, sizes(first_row + w), sizes(first_row + slot), sizes(u), *self._algebra
        )


def _divide(pair: Array, width: Array) -> tuple[Array, Array]:
    """Quotient and remainder; a width of 0 counts as 1."""
    width = jnp.maximum(width, 1)
    i = pair // width
    return i, pair - i * width
