"""From an observation to what the network reads: per-vertex features and vertex-to-vertex edges.

Free of parameters, so a rollout computes it once for each step and the updates reuse it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from veenv.env import Observation

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


def num_features(num_hops: int) -> int:
    """F, the number of features of a slot: its own and the sums over its neighbourhoods."""
    return NUM_BASE_FEATURES * (2 ** (num_hops + 1) - 1)


def encode(obs: Observation, num_hops: int = 1, keep_edges: bool = False) -> GraphInputs:
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
    """
    mask = obs.action_mask
    num_slots = mask.shape[0]
    edges = obs.adjacency[-num_slots:, :num_slots] != 0
    matrix = edges.astype(jnp.float32)
    legal = mask.astype(jnp.float32)[:, None]
    degrees = jnp.concatenate(_sums(matrix, legal), axis=-1)
    base = jnp.concatenate([obs.features, _extra_features(obs, degrees)], axis=-1) * legal
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


def _extra_features(obs: Observation, degrees: Float[Array, "A 2"]) -> Float[Array, "A 3"]:
    """What the environment's features leave out, log1p of the counts."""
    num_slots = obs.action_mask.shape[0]
    total = jnp.round(jnp.expm1(obs.features[:, :2]))
    existing = existing_pairs(obs.adjacency, num_slots).astype(total.dtype)
    fill_in = total[:, 0] * total[:, 1] - existing
    counts = jnp.concatenate([total - degrees, fill_in[:, None]], axis=-1)
    return jnp.log1p(jnp.maximum(counts, 0.0))


def existing_pairs(adjacency: Int[Array, "R C"], num_slots: int) -> Int[Array, " A"]:
    """Counts, for every slot, the (predecessor, successor) pairs that already have an edge.

    Returns:
      int32 [A].
    """
    words = pack_rows(adjacency)
    common = sum(
        jax.lax.population_count(word[:, None] & word[None, -num_slots:]) for word in words.T
    )
    present = adjacency[:, :num_slots] != 0
    return jnp.where(present, common, jnp.uint32(0)).sum(0, dtype=jnp.int32)


def pack_rows(adjacency: Int[Array, "R C"]) -> UInt[Array, "R W"]:
    """Packs which entries are not 0 into 32-bit words, row by row; uint32 [R, ceil(C / 32)]."""
    rows, columns = adjacency.shape
    bits = jnp.pad((adjacency != 0).astype(jnp.uint32), ((0, 0), (0, -columns % 32)))
    shifts = jnp.arange(32, dtype=jnp.uint32)[None, None]
    return (bits.reshape(rows, -1, 32) << shifts).sum(-1, dtype=jnp.uint32)
