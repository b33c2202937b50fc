"""State of an episode, and the observation of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Int

from veenv.env.counts import Count


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """State of an episode: an immutable pytree of arrays, each with a buffer of its own.

    Attributes:
      core: the edges, as the rules keep them.
      action_mask: bool [A], True where the slot's vertex can be eliminated now.
      order: int32 [A], slots in the order of elimination; -1 where not yet.
      num_steps: int32 [], number of eliminations.
      cost: int32 [], or a `veenv.env.WideCount` where the spec is wide; multiplications so far,
        exact.
      terminated: bool [], the episode is over.
    """

    core: Any = field(repr=False)
    action_mask: Bool[Array, " A"]
    order: Int[Array, " A"]
    num_steps: Int[Array, ""]
    cost: Count
    terminated: Bool[Array, ""]


def owned(tree: Any) -> Any:
    """Copies arrays into buffers of their own, so that a state can be donated to `jax.jit`.

    Free inside of `jax.jit`, whose results never share a buffer.

    Args:
      tree: the arrays.

    Examples:
      >>> ones = jax.numpy.ones(3)
      >>> jax.jit(lambda x: 2 * x, donate_argnums=0)(owned(ones)).tolist(), ones.is_deleted()
      ([2.0, 2.0, 2.0], False)
    """
    return jax.tree.map(jax.numpy.copy, tree)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observation:
    """The default observation: adjacency matrix, features of the slots, and legal actions.

    Attributes:
      adjacency: int32 [R, C], edge from row (inputs, then slots) to column (slots, then terminal
        outputs): 0 for none, else bit 0 is set, bit 1 says that the edge carries values (products
        with it cost multiplications), the higher bits are its axes (`veenv.structure.packed`).
      features: float32 [A, 8] for each slot log1p(in-degree), log1p(out-degree), log1p(cost of
        eliminating it now), log1p(size), depth / largest depth, slot / number of slots, is an
        output, is legal. Zero where the slot is padding.
      action_mask: bool [A], True where the action is legal.
    """

    adjacency: Int[Array, "R C"]
    features: Float[Array, "A F"]
    action_mask: Bool[Array, " A"]
