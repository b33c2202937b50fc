"""A loop over chunks that a batch takes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Int

Step = Callable[[Int[Array, ""], Any, Any], Any]


def for_chunks(step: Step, size: int, total: Int[Array, ""], carry: Any, data: Any) -> Any:
    """Runs ``carry = step(start, carry, data)`` for start = 0, size, 2·size, … below `total`.

    Under `jax.vmap` an ordinary `while_loop` selects between the old and the new carry of every
    member in every round.  Here the members go on together until the longest has finished, and
    nothing is selected.

    Args:
      step: one chunk; called beyond a member's own total it must not change the carry. It must
        not close over traced values.
      size: size of a chunk.
      total: int32 [].
      carry: what the steps change.
      data: what they only read.

    Returns:
      The carry in the end.
    """

    @custom_vmap
    def run(total: Array, carry: Any, data: Any) -> Any:
        def body(state: tuple[Array, Any]) -> tuple[Array, Any]:
            return state[0] + size, step(state[0], state[1], data)

        start = jnp.zeros((), jnp.int32)
        return lax.while_loop(lambda state: state[0] < total, body, (start, carry))[1]

    @run.def_vmap
    def batched_run(  # pyright: ignore[reportUnusedFunction]
        axis_size: int, in_batched: Any, total: Array, carry: Any, data: Any
    ) -> Any:
        total_batched, carry_batched, data_batched = in_batched
        carry = jax.tree.map(
            lambda leaf, batched: (
                leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            ),
            carry,
            carry_batched,
        )
        axes = jax.tree.map(lambda batched: 0 if batched else None, data_batched)
        longest = total.max() if total_batched else total
        batch = for_chunks(jax.vmap(step, in_axes=(None, 0, axes)), size, longest, carry, data)
        return batch, jax.tree.map(lambda _: True, carry)

    return run(total, carry, data)
