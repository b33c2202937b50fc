"""Steps of Adam on minibatches of whole episodes, whatever the loss: what both agents share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.devices import Placement, over_devices, own_key
from veenv.agents.nn.custom import Network
from veenv.agents.ppo.best_orders import BestSoFar
from veenv.env.counts import select

Stats = dict[str, Float[Array, ""]]
Loss = Callable[[Network, Any], tuple[Float[Array, ""], Stats]]
Indices = tuple[Int[Array, "..."], ...]
"""Steps of each phase."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """The state that a train step reads and writes.

    Attributes:
      network: the parameters.
      opt_state: the optimiser's moments.
      key: typed PRNG key.
      num_updates: train steps done, int32 [].
      best: the best orders so far, where episodes start from them.
    """

    network: Network
    opt_state: optax.OptState
    key: PRNGKeyArray
    num_updates: Int[Array, ""]
    best: BestSoFar | None = None


def make_optimizer(config: PPOConfig) -> optax.GradientTransformation:
    """Clips the global norm, then Adam; the learning rate is multiplied in by `fit`."""
    inner = optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5)
    )

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        # Adam's bias correction takes a float to the power of an integer count.
        with jax.numpy_dtype_promotion("standard"):
            return inner.update(updates, state, params)

    return optax.GradientTransformation(inner.init, update)


def anneal(start: float, end: float, progress: Float[Array, ""]) -> Float[Array, ""]:
    """Linear from `start` to `end` as `progress` goes from 0 to 1."""
    return start + (end - start) * jnp.clip(progress, 0.0, 1.0)


def fit(
    loss: Loss,
    network: Network,
    opt_state: optax.OptState,
    parts: Sequence[Any],
    config: PPOConfig,
    key: PRNGKeyArray,
    progress: Float[Array, ""],
    placement: Placement,
) -> tuple[Network, optax.OptState, Stats]:
    """Runs all epochs and minibatches of one update on a batch, arrays [T, B, ...] for each phase.

    Every minibatch holds the same share of each phase and of each device's environments: a device
    shuffles its own steps, so that only gradients and losses are exchanged.

    Stops early once a minibatch's statistics show an `approx_kl` above `config.target_kl`; a
    minibatch whose gradient is not finite is skipped.

    Returns:
      Parameters, optimiser state and the means of the minibatches' statistics.
    """
    rate = anneal(config.learning_rate, config.final_learning_rate, progress)
    learn = placement.apart(partial(_learn, loss, config), (None, None, None, None, 1))
    (network, opt_state, _), stats = learn(network, opt_state, key, rate, tuple(parts))
    done = stats.pop("minibatches").sum()
    not_finite = stats.pop("not_finite").sum()
    means = {name: x.sum() / done for name, x in stats.items()}
    return network, opt_state, means | {"minibatches": done, "not_finite": not_finite}


def _learn(
    loss: Loss,
    config: PPOConfig,
    network: Network,
    opt_state: optax.OptState,
    key: PRNGKeyArray,
    rate: Float[Array, ""],
    parts: Sequence[Any],
) -> tuple[Any, Stats]:
    """Runs one device's part of `fit`, with its environments."""
    optimizer = make_optimizer(config)
    gradient = eqx.filter_value_and_grad(loss, has_aux=True)
    num_envs = jax.tree.leaves(parts)[0].shape[1]
    carry = (network, opt_state, jnp.zeros((), bool))

    def pick(part: Any, index: Int[Array, " M"]) -> Any:
        return jax.tree.map(lambda x: x[index // num_envs, index % num_envs], part)

    def descend(carry: Any, index: Indices) -> tuple[Any, Stats]:
        network, opt_state, _ = carry
        rows = tuple(pick(*pair) for pair in zip(parts, index, strict=True))
        (_, stats), grads = over_devices(gradient(network, rows))
        finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)]).all()
        deltas, new_opt_state = optimizer.update(grads, opt_state)
        new_network = eqx.apply_updates(network, jax.tree.map(lambda d: -rate * d, deltas))
        network, opt_state = select(finite, (new_network, new_opt_state), (network, opt_state))
        stop = jnp.asarray(stats.get("approx_kl", 0.0) > config.target_kl)
        counts = {"minibatches": jnp.ones(()), "not_finite": 1.0 - finite.astype(jnp.float32)}
        return (network, opt_state, stop), stats | counts

    def minibatch(carry: Any, index: Indices) -> tuple[Any, Stats]:
        _, shapes = jax.eval_shape(descend, carry, index)
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.cond(carry[2], lambda c, i: (c, nothing), descend, carry, index)

    num_steps = [jax.tree.leaves(part)[0].shape[0] * num_envs for part in parts]
    indices = phase_indices(own_key(key), num_steps, config)
    return jax.lax.scan(minibatch, carry, indices)


def phase_indices(key: PRNGKeyArray, num_steps: Sequence[int], config: PPOConfig) -> Indices:
    """The steps of each phase that each minibatch holds, as `minibatch_indices`."""
    count = min(config.num_minibatches, *num_steps)
    config = dataclasses.replace(config, num_minibatches=count)
    keys = jax.random.split(key, len(num_steps))
    return tuple(minibatch_indices(k, n, config) for k, n in zip(keys, num_steps, strict=True))


def minibatch_indices(key: PRNGKeyArray, num_steps: int, config: PPOConfig) -> Int[Array, "U M"]:
    """Draws the steps of each minibatch: every epoch a new shuffle, of which a share is taken.

    Returns:
      int32 [epochs · minibatches, steps in a minibatch].
    """
    count = min(config.num_minibatches, num_steps)
    share = 1.0 if config.learned_share is None else config.learned_share
    size = max(1, int(num_steps * share) // count)

    # Equal keys are too rare to matter, and `permutation` would sort twice to be rid of them.
    order = jnp.argsort(jax.random.bits(key, (config.update_epochs, num_steps)), axis=-1)
    return order[:, : count * size].reshape(-1, size).astype(jnp.int32)
