"""From an observation to what the network reads: per-vertex features and vertex-to-vertex edges.

Free of parameters, so a rollout computes it once for each step and the updates reuse it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from veenv.env import Observation
from veenv.env.bits import count_bits, count_in_sets, member, num_words, pack_flags, spread

# The environment's features, and those computed here.
NUM_BASE_FEATURES = 8 + 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GraphInputs:
    """What the network reads of one state.

    Attributes:
      nodes: features of every slot, 0 where it is not legal, float32 [A, F].
      edges: edges from slot u to slot v, bool [A, A]; [A, 0] if no messages are learned.
      mask: legal slots, bool [A].
    """

    nodes: Float[Array, "A F"]
    edges: Bool[Array, "A E"]
    mask: Bool[Array, " A"]

    def compact(self, num_slots: int) -> GraphInputs:
        """The legal slots, in their order, at the front of so many slots; the rest is cut off.

        Args:
          num_slots: K, at least the number of legal slots.

        Example:
          >>> mask = jnp.array([False, True, False, True])
          >>> inputs = GraphInputs(jnp.arange(4.0)[:, None], jnp.zeros((4, 0), bool), mask)
          >>> inputs.compact(3).nodes.ravel().tolist(), inputs.compact(3).mask.tolist()
          ([1.0, 3.0, 0.0], [True, True, False])
        """
        ranks = jnp.arange(num_slots, dtype=jnp.int32)
        words = jnp.broadcast_to(pack_flags(self.mask), (num_slots, num_words(len(self.mask))))
        slots, kept = member(words, ranks), ranks < self.mask.sum(dtype=jnp.int32)
        # What lies behind the legal slots is some row or other, and becomes 0.
        nodes = self.nodes.at[slots].get(mode="clip") * kept[:, None].astype(self.nodes.dtype)
        edges = self.edges.at[slots].get(mode="clip") & kept[:, None]
        if edges.shape[1]:
            edges = edges.at[:, slots].get(mode="clip") & kept[None]
        return GraphInputs(nodes, edges, kept)

    def first(self, num_slots: int) -> GraphInputs:
        """The first slots alone, of inputs [..., A, ...] whose legal slots are in front.

        Args:
          num_slots: K, at least the number of legal slots.
        """
        edges = self.edges[..., :num_slots, : min(num_slots, self.edges.shape[-1])]
        return GraphInputs(self.nodes[..., :num_slots, :], edges, self.mask[..., :num_slots])


def places(mask: Bool[Array, "*n A"]) -> Int[Array, "*n A"]:
    """Where `GraphInputs.compact` moves each legal slot, int32; -1 or more also for the others."""
    return jnp.cumsum(mask.astype(jnp.int32), axis=-1) - 1


def num_features(num_hops: int) -> int:
    """F, the number of features of a slot: its own and the sums over its neighbourhoods."""
    return NUM_BASE_FEATURES * (2 ** (num_hops + 1) - 1)


def encode(
    obs: Observation,
    num_hops: int = 1,
    keep_edges: bool = False,
    words: UInt[Array, "R W"] | None = None,
) -> GraphInputs:
    """Features and edges of one observation.

    To the environment's eight features of a vertex it adds log1p of: edges from inputs, edges to
    nodes that are outputs only, and fill-in (new edges that eliminating the vertex now would make).
    Every hop appends the sums of the hop before over predecessors and over successors, each over
    the root of their number: messages without parameters (Frasca et al. 2020, "SIGN: Scalable
    inception graph neural networks").

    Args:
      obs: one observation (batch with `jax.vmap`).
      num_hops: number of hops.
      keep_edges: whether the network needs the edges as well.
      words: the adjacency as bits (`pack_rows`), if they are at hand; the matrix is not read then.
    """
    mask = obs.action_mask
    num_slots = mask.shape[0]
    words = pack_rows(obs.adjacency) if words is None else words
    present = spread(words, num_slots) != 0
    edges = present[-num_slots:]
    matrix = edges.astype(jnp.float32)
    legal = mask.astype(jnp.float32)[:, None]
    counts = obs.features, _legal_degrees(words, mask), _pairs(words, present)
    # Without the barrier the compiler counts again for every reader of the features.
    features, degrees, existing = jax.lax.optimization_barrier(counts)
    extra = _extra_features(features, degrees, existing)
    base = jnp.concatenate([features, extra], axis=-1) * legal
    scale = jax.lax.rsqrt(jnp.maximum(degrees, 1.0)) * legal
    nodes, level = [base], base
    for _ in range(num_hops):
        over_in, over_out = _sums(matrix, level)
        level = jnp.concatenate([over_in * scale[:, :1], over_out * scale[:, 1:]], axis=-1)
        nodes.append(level)
    kept = edges if keep_edges else jnp.zeros((num_slots, 0), bool)
    return GraphInputs(jnp.concatenate(nodes, axis=-1), kept, mask)


def _sums(
    matrix: Float[Array, "A A"], x: Float[Array, "A F"]
) -> tuple[Float[Array, "A F"], Float[Array, "A F"]]:
    """Sums of `x` over the predecessors and over the successors of every slot."""
    return jax.lax.dot_general(matrix, x, (((0,), (0,)), ((), ()))), matrix @ x


def _legal_degrees(words: UInt[Array, "R W"], mask: Bool[Array, " A"]) -> Float[Array, "A 2"]:
    """The legal predecessors and the legal successors of every slot, counted."""
    own = words[-len(mask) :]
    legal = jnp.pad(pack_flags(mask), (0, own.shape[1] - num_words(len(mask))))
    sources = jnp.where(mask[:, None], own, jnp.uint32(0))
    counts = count_in_sets(sources.T, len(mask)), count_bits(own & legal[None])
    return jnp.stack(counts, axis=-1).astype(jnp.float32)


def _extra_features(
    features: Float[Array, "A F"], degrees: Float[Array, "A 2"], existing: Int[Array, " A"]
) -> Float[Array, "A 3"]:
    """What the environment's features leave out, log1p of the counts."""
    total = jnp.round(jnp.expm1(features[:, :2]))
    fill_in = total[:, 0] * total[:, 1] - existing.astype(total.dtype)
    counts = jnp.concatenate([total - degrees, fill_in[:, None]], axis=-1)
    return jnp.log1p(jnp.maximum(counts, 0.0))


def existing_pairs(adjacency: Int[Array, "R C"], num_slots: int) -> Int[Array, " A"]:
    """Counts, for every slot, the (predecessor, successor) pairs that already have an edge.

    Returns:
      int32 [A].
    """
    return _pairs(pack_rows(adjacency), adjacency[:, :num_slots] != 0)


def _pairs(words: UInt[Array, "R W"], present: Bool[Array, "R A"]) -> Int[Array, " A"]:
    """`existing_pairs` of edges as bits, of which `present` are those to slots."""
    own = words[-present.shape[1] :]
    common = sum(
        jax.lax.population_count(word[:, None] & to[None])
        for word, to in zip(words.T, own.T, strict=True)
    )
    return jnp.where(present, common, jnp.uint32(0)).sum(0, dtype=jnp.int32)


def pack_rows(adjacency: Int[Array, "R C"]) -> UInt[Array, "R W"]:
    """Packs which entries are not 0 into 32-bit words, row by row; uint32 [R, ceil(C / 32)]."""
    rows, columns = adjacency.shape
    bits = jnp.pad((adjacency != 0).astype(jnp.uint32), ((0, 0), (0, -columns % 32)))
    shifts = jnp.arange(32, dtype=jnp.uint32)[None, None]
    return (bits.reshape(rows, -1, 32) << shifts).sum(-1, dtype=jnp.uint32)
