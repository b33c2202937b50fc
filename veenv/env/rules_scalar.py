"""Elimination on scalar graphs: an edge is one bit, a vertex is eliminated by bitwise operations.

Bit c % 32 of word c // 32 of row r says whether there is an edge from node r to node c.  All rows
are kept side by side ([W, R]), so that one elimination is a few passes of vector instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, UInt

from veenv.env.bits import WORD, count_bits, count_in_sets, num_words, spread
from veenv.env.counts import Count
from veenv.env.encode import EnvParams, NodeLayout, Spec, encode_common
from veenv.graph.graph import CostModel, Graph


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ScalarEdges:
    """Edges of a scalar graph as bits.

    Attributes:
      present: uint32 [W, R], the edges.
      valued: uint32 [W, R], the edges that carry a value (their product costs a multiplication);
        None if every edge does.
    """

    present: UInt[Array, "W R"]
    valued: UInt[Array, "W R"] | None


@dataclass(frozen=True)
class ScalarRules:
    """The rules for a spec of scalar graphs."""

    spec: Spec

    def encode(self, graph: Graph, cost: CostModel) -> EnvParams:
        """Returns the params of a graph.

        Raises:
          ValueError: if the graph does not fit the spec.
        """
        spec = self.spec
        spec.check_fits(graph, cost)
        layout = NodeLayout.of(graph, spec)
        shape = (num_words(spec.columns), spec.rows)
        present, valued = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)
        for (source, target), structure in graph.structures(cost).items():
            word, bit = divmod(layout.column[target], WORD)
            present[word, layout.row[source]] |= np.uint32(1 << bit)
            if not structure.unit:
                valued[word, layout.row[source]] |= np.uint32(1 << bit)
        core = ScalarEdges(jnp.asarray(present), jnp.asarray(valued) if spec.unit_edges else None)
        return encode_common(graph, cost, spec, core)

    @partial(jax.jit, static_argnums=0)
    def eliminate(
        self, core: ScalarEdges, params: EnvParams, slot: Int[Array, ""], legal: Bool[Array, ""]
    ) -> tuple[ScalarEdges, Count]:
        """Eliminates the vertex of a slot.

        Args:
          core: the edges.
          params: the graph.
          slot: int32 [], in [0, A).
          legal: bool [], if False nothing changes and nothing is paid.

        Returns:
          The edges afterwards, and what it costs, a count [].
        """
        present = core.present
        row = self.spec.num_inputs + slot
        word, bit = slot // WORD, jnp.uint32(1) << (slot % WORD).astype(jnp.uint32)
        sources = ((present[word] & bit) != 0) & legal
        targets = present[:, row]
        own_word = jnp.arange(present.shape[0], dtype=jnp.int32) == word
        dropped = jnp.where(own_word & ~params.is_output[slot], bit, jnp.uint32(0))
        own_row = (jnp.arange(self.spec.rows, dtype=jnp.int32) == row) & legal

        def fill(old: Array, new: Array) -> Array:
            """Adds `new` to the rows that reach the vertex, and removes the vertex's edges."""
            new = jnp.where(sources[None], (old | new) & ~dropped[:, None], old)
            return jnp.where(own_row[None], jnp.uint32(0), new)

        filled = fill(present, targets[:, None])
        additions = jnp.zeros((), jnp.int32)
        if self.spec.additions:  # one for each edge that exists already
            there = count_bits((present & targets[:, None]).T)
            additions = jnp.where(sources, there, 0).sum(dtype=jnp.int32)
        if core.valued is None:
            cost = self.spec.counted(_count(sources)) * count_bits(targets) + additions
            return ScalarEdges(filled, None), cost
        valued_sources = ((core.valued[word] & bit) != 0) & legal
        valued_targets = core.valued[:, row]
        # A product is valued if a factor is, and a sum always is.
        gained = jnp.where(valued_sources[None], targets[:, None], valued_targets[:, None])
        gained |= present & targets[:, None]
        cost = self.spec.counted(_count(valued_sources)) * count_bits(valued_targets)
        return ScalarEdges(filled, fill(core.valued, gained)), cost + additions

    @partial(jax.jit, static_argnums=0)
    def adjacency(self, core: ScalarEdges) -> Int[Array, "R C"]:
        """Returns edges as integers: 0 for none, else bit 0 is set, and bit 1 if it is valued."""
        present = spread(core.present.T, self.spec.columns)
        valued = present if core.valued is None else spread(core.valued.T, self.spec.columns)
        return present | (valued << 1)

    @partial(jax.jit, static_argnums=0)
    def degrees(
        self, core: ScalarEdges, params: EnvParams
    ) -> tuple[Int[Array, " A"], Int[Array, " A"], Count]:
        """Returns in-degree, out-degree and cost of eliminating now, for every slot."""
        del params
        in_degree, out_degree = self._degrees(core.present)
        if core.valued is None:
            cost = self.spec.counted(in_degree) * out_degree
        else:
            valued_in, valued_out = self._degrees(core.valued)
            cost = self.spec.counted(valued_in) * valued_out
        if self.spec.additions:
            cost += self._additions(core.present)
        return in_degree, out_degree, cost

    def _additions(self, edges: UInt[Array, "W R"]) -> Int[Array, " A"]:
        """Counts for every slot the edges that lead from a predecessor to a successor."""
        targets = edges[:, self.spec.num_inputs :]
        common = jnp.zeros((self.spec.rows, self.spec.num_actions), jnp.int32)
        for word in range(edges.shape[0]):
            common += lax.population_count(edges[word, :, None] & targets[word][None]).astype(
                jnp.int32
            )
        return (spread(edges.T, self.spec.num_actions) * common).sum(0, dtype=jnp.int32)

    def _degrees(self, edges: UInt[Array, "W R"]) -> tuple[Array, Array]:
        in_degree = count_in_sets(edges, self.spec.num_actions)
        return in_degree, count_bits(edges[:, self.spec.num_inputs :].T)


def _count(flags: Bool[Array, " R"]) -> Int[Array, ""]:
    """Counts the flags that are set; bytes first, as XLA writes out the numbers that it sums."""
    eighths = jnp.pad(flags, (0, -len(flags) % 8)).reshape(8, -1)
    return eighths.sum(0, dtype=jnp.uint8).sum(dtype=jnp.int32)
