"""Under `jax.vmap`: one loop over chunks for all members, one call for all batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd
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
        carry = jax.tree.map(partial(_as_batch, axis_size), carry, carry_batched)
        axes = jax.tree.map(lambda batched: 0 if batched else None, data_batched)
        longest = total.max() if total_batched else total
        batch = for_chunks(jax.vmap(step, in_axes=(None, 0, axes)), size, longest, carry, data)
        return batch, jax.tree.map(lambda _: True, carry)

    return run(total, carry, data)


def _as_batch(size: int, x: Array, batched: bool) -> Array:
    """Returns an array for each member of a batch: its own, or the one that all share."""
    return x if batched else jnp.broadcast_to(x, (size, *x.shape))


def as_one_batch(
    run: Callable[..., tuple[Any, ...]], num_devices: int, axes: Array, *batch: Array
) -> tuple[Any, ...]:
    """Runs `run(axes, *batch)`; under `jax.vmap` once, on all batches joined.

    Args:
      run: (axes, *batch) → a tuple of arrays [B, …] or trees of them; axes are [M, rank], or one
        such array for each member.
      num_devices: devices that share the batch: each has a group, which needs nothing of others.
      axes: the first argument.
      *batch: arrays [B, …].

    Returns:
      What the function returns.
    """

    @custom_vmap
    def together(axes: Array, *batch: Array) -> tuple[Any, ...]:
        return _in_groups(run, num_devices, axes, *batch)

    @together.def_vmap
    def run_as_one(  # pyright: ignore[reportUnusedFunction]
        axis_size: int, in_batched: list[bool], axes: Array, *batch: Array
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        size = batch[0].shape[1 if in_batched[1] else 0]

        def flat(x: Array, batched: bool) -> Array:
            x = _as_batch(axis_size, x, batched)
            return x.reshape(axis_size * size, *x.shape[2:])

        if in_batched[0] and axes.ndim == 3:  # shared by the members of each batch
            axes = jnp.repeat(axes, size, axis=0)
        elif in_batched[0] or axes.ndim == 3:
            axes = flat(axes, in_batched[0])
        flattened = (flat(x, b) for x, b in zip(batch, in_batched[1:], strict=True))
        results = as_one_batch(run, num_devices, axes, *flattened)
        split = jax.tree.map(lambda x: x.reshape(axis_size, size, *x.shape[1:]), results)
        return split, jax.tree.map(lambda _: True, results)

    return together(axes, *batch)


def _in_groups(
    run: Callable[..., tuple[Any, ...]], num_devices: int, axes: Array, *batch: Array
) -> tuple[Any, ...]:
    """Runs `run` on one group of the batch per device, where equal groups exist."""
    size = len(batch[0])
    groups = gcd(size, num_devices)
    if groups == 1:
        return run(axes, *batch)

    def split(x: Array) -> Array:
        return x.reshape(groups, size // groups, *x.shape[1:])

    axes_per_member = axes.ndim == 3
    over = (0 if axes_per_member else None, *[0] * len(batch))
    grouped = jax.vmap(run, over)(split(axes) if axes_per_member else axes, *map(split, batch))
    return jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), grouped)
