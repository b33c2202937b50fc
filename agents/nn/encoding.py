"""Computes what the network reads of an observation: features of every vertex.

Free of parameters, so a rollout computes it once for each step and the updates reuse it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from veenv.env import Observation
from veenv.env.bits import count_bits, count_in_sets, num_words, pack_flags

# The environment's features, and those computed here.
NUM_BASE_FEATURES = 8 + 3

LANES, MOST_TERMS = 16, 32
"""Rows that are counted side by side, at least, and words in all that the program writes out."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GraphInputs:
    """Inputs of the network for one state.

    Attributes:
      nodes: features of every slot, 0 where it is not legal, float32 [A, F].
      mask: legal slots, bool [A].
    """

    nodes: Float[Array, "A F"]
    mask: Bool[Array, " A"]


def num_features(num_hops: int) -> int:
    """F, the number of features of a slot: its own and the sums over its neighbourhoods."""
    return NUM_BASE_FEATURES * (2 ** (num_hops + 1) - 1)


def encode(
    obs: Observation,
    num_hops: int = 1,
    words: UInt[Array, "R W"] | None = None,
    slots: Int[Array, " K"] | None = None,
) -> GraphInputs:
    """Computes the features of one observation.

    To the environment's eight features of a vertex it adds log1p of: edges from inputs, edges to
    nodes that are outputs only, and fill-in (new edges that eliminating the vertex now would make).
    Every hop appends the sums of the hop before over predecessors and over successors, each over
    the root of their number: messages without parameters (Frasca et al. 2020, "SIGN: Scalable
    inception graph neural networks").

    Args:
      obs: one observation (batch with `jax.vmap`).
      num_hops: number of hops.
      words: the adjacency's rows as bits (`pack_flags`), if at hand; the matrix is not read then.
      slots: the slots to read, in any order, among them all that have edges; A or more stands for
        none. All slots by default.

    Examples:
      >>> import veenv
      >>> obs, _ = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0).reset()
      >>> some = encode(obs, slots=jnp.array([1, 0, 2]))
      >>> bool((some.nodes[jnp.array([1, 0])] == encode(obs).nodes).all()), some.mask.tolist()
      (True, [True, True, False])
    """
    words = pack_flags(obs.adjacency != 0) if words is None else words
    num_slots = len(obs.action_mask)
    slots = jnp.arange(num_slots, dtype=jnp.int32) if slots is None else slots
    edges = Edges.of(words, num_slots, slots)
    matrix, mask = edges.between.astype(jnp.float32), _rows(obs.action_mask, slots)
    legal = mask.astype(jnp.float32)[None]
    degrees = _legal_degrees(edges, obs.action_mask, mask, slots)
    counts = _rows(obs.features, slots).T, degrees, matrix, edges.existing_pairs()
    # Without the barriers the compiler counts again for every reader of the features.
    features, degrees, matrix, existing = jax.lax.optimization_barrier(counts)
    base = jnp.concatenate([features, _extra_features(features, degrees, existing)]) * legal
    scale = jax.lax.rsqrt(jnp.maximum(degrees, 1.0)) * legal
    level = jax.lax.optimization_barrier(base)
    nodes = [level]
    for _ in range(num_hops):
        over_in, over_out = _sums(matrix, level)
        level = jnp.concatenate([over_in * scale[:1], over_out * scale[1:]])
        nodes.append(level)
    return GraphInputs(jnp.concatenate(nodes).T, mask)


def _rows(x: Array, slots: Int[Array, " K"]) -> Array:
    """Rows [K, ...] of an array [A, ...], 0 for slots that are none."""
    return x.at[slots].get(mode="fill", fill_value=0)


@dataclasses.dataclass(frozen=True)
class Edges:
    """Edges of the slots that are read, as bits and as flags.

    Attributes:
      leaving: of the inputs' rows, then of the slots', uint32 [R, W]; zeros before them.
      entering: whether there is an edge to a slot from those rows, bool [K, R].
      width: rows of a block, of which R is a multiple.
    """

    leaving: UInt[Array, "rows W"]
    entering: Bool[Array, "K rows"]
    width: int

    @classmethod
    def of(cls, words: UInt[Array, "R W"], num_slots: int, slots: Int[Array, " K"]) -> Edges:
        """The edges of a graph of so many slots.

        Args:
          words: its rows as bits, uint32 [R, ceil(C / 32)].
          num_slots: A.
          slots: those to read; A or more stands for none.
        """
        first = len(words) - num_slots
        leaving = jnp.concatenate([words[:first], _rows(words[first:], slots)])
        rows, num_words = leaving.shape
        blocks = min(-(-rows // LANES), max(1, MOST_TERMS // num_words))
        width = -(-rows // (blocks * LANES)) * LANES
        leaving = jnp.pad(leaving, ((-rows % width, 0), (0, 0)))
        # Whole words of all rows side by side, shifted by as much: nothing is looked up bit by bit.
        columns = leaving.T.at[slots // 32].get(mode="clip")
        shifts = jnp.where(slots < num_slots, slots % 32, 0).astype(jnp.uint32)[:, None]
        bits = (columns >> shifts) & (slots < num_slots).astype(jnp.uint32)[:, None]
        leaving, entering = jax.lax.optimization_barrier((leaving, bits != 0))
        return cls(leaving, entering, width)

    @property
    def from_slots(self) -> UInt[Array, "K W"]:
        """Edges that leave the slots."""
        return self.leaving[-len(self.entering) :]

    @property
    def between(self) -> Bool[Array, "K K"]:
        """Row v, column u: whether there is an edge from slot u to slot v."""
        return self.entering[:, -len(self.entering) :]

    def existing_pairs(self) -> Int[Array, " K"]:
        """Counts, for every slot, the (predecessor, successor) pairs that already have an edge.

        Blocks of rows are added side by side, as vectors: a sum along the last axis is one of
        single numbers.
        """
        pairs = jnp.zeros((), jnp.uint32)
        for start in range(0, len(self.leaving), self.width):
            block = slice(start, start + self.width)
            common = sum(
                jax.lax.population_count(to[:, None] & word[None, block])
                for word, to in zip(self.leaving.T, self.from_slots.T, strict=True)
            )
            pairs += jnp.where(self.entering[:, block], common, jnp.uint32(0))
        return jax.lax.optimization_barrier(pairs).sum(-1, dtype=jnp.int32)


def _sums(
    matrix: Float[Array, "K K"], x: Float[Array, "F K"]
) -> tuple[Float[Array, "F K"], Float[Array, "F K"]]:
    """Sums of `x` over the predecessors and over the successors of every slot.

    Row v of the matrix is 1 at its predecessors. A number of all slots is a row of `x`: the other
    way round the products take several times longer on a CPU, whose vectors are then too short.
    """
    return jax.lax.dot_general(x, matrix, (((1,), (1,)), ((), ()))), x @ matrix


def _legal_degrees(
    edges: Edges, legal: Bool[Array, " A"], mask: Bool[Array, " K"], slots: Int[Array, " K"]
) -> Float[Array, "2 K"]:
    """The legal predecessors and the legal successors of every slot, counted."""
    leaving = edges.from_slots
    among = jnp.pad(pack_flags(legal), (0, leaving.shape[1] - num_words(len(legal))))
    sources = jnp.where(mask[:, None], leaving, jnp.uint32(0))
    before = _rows(count_in_sets(sources.T, len(legal)), slots)
    return jnp.stack([before, count_bits(leaving & among[None])]).astype(jnp.float32)


def _extra_features(
    features: Float[Array, "F K"], degrees: Float[Array, "2 K"], existing: Int[Array, " K"]
) -> Float[Array, "3 K"]:
    """Computes what the environment's features leave out, log1p of the counts."""
    total = jnp.round(jnp.exp(features[:2]) - 1.0)
    fill_in = total[:1] * total[1:] - existing.astype(total.dtype)[None]
    counts = jnp.concatenate([total - degrees, fill_in])
    # As exact as log1p for whole numbers, and computed once, not once for small and for large.
    return jnp.log(jnp.maximum(counts, 0.0) + 1.0)
