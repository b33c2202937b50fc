"""Windows: of a large graph the policy reads a few slots in each step."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from veenv.env import EnvParams, State, VertexEnv
from veenv.env.bits import member, num_words, pack_flags
from veenv.env.precedence import left_slots

LEAST_SLOPE = 0.1
"""Slope of the boldest environment; with one slope for all, or down to 0.03, less was found."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Windows:
    """Slots that B environments read, next in an order or cheapest now, and priors of their logits.

    Attributes:
      ahead: orders as slots, -1 padded, int32 [B, A].
      slope: what each further place in an order takes from a logit, float32 [B].
      by_cost: whether they read the slots that cost least, bool [].
      size: K, slots that are read in each step.
    """

    ahead: Int[Array, "B A"]
    slope: Float[Array, " B"]
    by_cost: Bool[Array, ""]
    size: int = dataclasses.field(metadata={"static": True})

    @classmethod
    def of(
        cls, order: Int[Array, "G A"], each: int, by_cost: Bool[Array, ""], size: int
    ) -> Windows:
        """Builds the windows of `each` environments per order."""
        slope = jnp.tile(LEAST_SLOPE ** jnp.linspace(0.0, 1.0, each), len(order))
        return cls(order.repeat(each, axis=0), slope, by_cost, size)

    def __call__(
        self, env: VertexEnv, state: State, params: EnvParams
    ) -> tuple[Int[Array, "B K"], Float[Array, "B K"]]:
        """Slots that B states let read, A behind the last one, and what is added to their logits.

        Each further place in an order is less likely, so that episodes cost little more than it and
        yet differ.  One of the cheapest slots is the likelier the less it costs, in inverse
        proportion.
        """

        def ahead() -> tuple[Array, Array]:
            slots = jax.vmap(partial(next_slots, self.size))(state, params, self.ahead)
            return slots, -self.slope[:, None] * jnp.arange(self.size, dtype=jnp.float32)[None]

        def cheapest() -> tuple[Array, Array]:
            return jax.vmap(partial(cheapest_slots, self.size, env))(state, params)

        return jax.lax.cond(self.by_cost, cheapest, ahead)


def next_slots(
    size: int, state: State, params: EnvParams, order: Int[Array, " A"] | None = None
) -> Int[Array, " K"]:
    """The first slots whose vertices are left, ascending or as in an order, int32 [K]; A behind.

    Args:
      size: K.
      state: of one environment.
      params: its graph.
      order: slots, -1 padded.
    """
    left = left_slots(params, state.action_mask, state.order)
    if order is not None:
        left = jnp.where(order >= 0, left.at[order].get(mode="clip"), False)
    ranks = jnp.arange(size, dtype=jnp.int32)
    words = jnp.broadcast_to(pack_flags(left), (size, num_words(len(left))))
    slots = member(words, ranks)
    slots = slots if order is None else order.at[slots].get(mode="clip")
    return jnp.where(ranks < left.sum(dtype=jnp.int32), slots, len(left))


def cheapest_slots(
    size: int, env: VertexEnv, state: State, params: EnvParams
) -> tuple[Int[Array, " K"], Float[Array, " K"]]:
    """The legal slots that cost least now, A behind the last one, and their prior: [K] each."""
    costs = jnp.where(state.action_mask, env.costs(state, params).astype(jnp.float32), jnp.inf)
    negative, slots = jax.lax.top_k(-costs, size)
    here = negative > -jnp.inf
    prior = jnp.where(here, -jnp.log(1 - negative), 0.0)
    return jnp.where(here, slots, len(costs)).astype(jnp.int32), prior
