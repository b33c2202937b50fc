"""Proximal policy optimisation: the losses of an update and the episodes they are from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.custom import Network
from veenv.agents.nn.distributions import log_prob_and_entropy
from veenv.agents.ppo import losses
from veenv.agents.ppo.best_orders import BestSoFar
from veenv.agents.ppo.gae import generalized_advantages, normalize
from veenv.agents.ppo.phases import PHASES, in_phases
from veenv.agents.ppo.rollouts import Episodes, Trajectory, rollout
from veenv.agents.ppo.stretches import sweep
from veenv.agents.ppo.updates import Loss, Stats, TrainState, anneal
from veenv.env import EnvParams, VertexEnv


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Steps to learn from: of a phase of whole episodes [T, B], or of a minibatch [M].

    Attributes:
      inputs: Inputs [T, B, ...]; a tuple of them, one for each phase, before the cut.
      action: place of the action among the slots of the inputs, int32 [T, B].
      log_prob: under the policy that acted, float32 [T, B].
      value: by the critic that acted, float32 [T, B].
      advantage: normalised, float32 [T, B].
      target: of the value, float32 [T, B].
      weight: 1 for steps that PPO learns from, 0 for padding, float32 [T, B].
      prior: what is added to the logits, float32 [T, B, K]; None if nothing is.
    """

    inputs: Any
    action: Int[Array, "*n"]
    log_prob: Float[Array, "*n"]
    value: Float[Array, "*n"]
    advantage: Float[Array, "*n"]
    target: Float[Array, "*n"]
    weight: Float[Array, "*n"]
    prior: Float[Array, "*n K"] | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Outputs:
    """Outputs of the network that is trained for the steps of a minibatch.

    Attributes:
      log_prob: of the action that was taken, float32 [M].
      entropy: of its policy, float32 [M].
      value: by its critic, float32 [M].
    """

    log_prob: Float[Array, " M"]
    entropy: Float[Array, " M"]
    value: Float[Array, " M"]


StepsLoss = Callable[[Outputs, Batch, PPOConfig, Float[Array, ""]], Any]
"""A loss as `ppo_loss`: its number, or that and numbers for the metrics."""


def ppo_loss(
    outputs: Outputs, batch: Batch, config: PPOConfig, progress: Float[Array, ""]
) -> tuple[Float[Array, ""], Stats]:
    """PPO's loss on a minibatch of steps; for others, `train` takes one of this form.

    Args:
      outputs: what the network that is trained says of the steps.
      batch: what was seen when they were played, but for `inputs`. Means are `weighted_mean` of
        `veenv.agents.ppo.losses`, for some steps are padding.
      config: the settings.
      progress: the share of the training that is over, float32 [].

    Returns:
      The loss, and numbers for the metrics by name. Training goes on to the next episodes where
      `approx_kl` is above `config.target_kl`.

    Examples:
      >>> one = jnp.ones(1)
      >>> batch = Batch((), one.astype(int), 0 * one, one, one, one, one)
      >>> loss, stats = ppo_loss(Outputs(0 * one, one, one), batch, PPOConfig(), 1.0)
      >>> float(loss), sorted(stats)[:2]
      (-1.0, ['approx_kl', 'clip_fraction'])
    """
    weight, log_prob = batch.weight, outputs.log_prob
    entropy = losses.weighted_mean(outputs.entropy, weight)
    policy_loss = losses.clipped_policy_loss(
        log_prob, batch.log_prob, batch.advantage, weight, config.clip_eps
    )
    value_loss = losses.clipped_value_loss(
        outputs.value, batch.value, batch.target, weight, config.clip_eps
    )
    ent_coef = anneal(config.ent_coef, config.final_ent_coef, progress)
    loss = policy_loss + config.vf_coef * value_loss - ent_coef * entropy
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": losses.approximate_kl(log_prob, batch.log_prob, weight),
        "clip_fraction": losses.clip_fraction(log_prob, batch.log_prob, weight, config.clip_eps),
    }


def make_batch(trajectory: Trajectory, config: PPOConfig) -> tuple[Batch, ...]:
    """Computes advantages and targets of whole episodes, a batch for each phase."""
    chex.assert_rank([trajectory.reward, trajectory.value], 2)
    advantage, target = generalized_advantages(
        trajectory.reward, trajectory.value, 1.0, config.gae_lambda, trajectory.ends
    )
    whole = Batch(
        trajectory.inputs,
        trajectory.place,
        trajectory.log_prob,
        trajectory.value,
        normalize(advantage, trajectory.active),
        target,
        trajectory.active,
        trajectory.prior,
    )
    return in_phases(whole)


def play_batch(
    env: VertexEnv,
    params: EnvParams,
    state: TrainState,
    key: PRNGKeyArray,
    config: PPOConfig,
) -> tuple[tuple[Batch, ...], Episodes, BestSoFar | None]:
    """Plays episodes of B environments: PPO's part of `veenv.agents.ppo.trainer.Agent`.

    With a window they are the stretches of the best orders, which are returned with theirs.
    """
    played = env, params, state.network, key
    if state.best is None:
        trajectory, episodes = rollout(*played, most_phases=PHASES)
        return make_batch(trajectory, config), episodes, None
    assert config.window
    trajectory, episodes, best = sweep(*played, state.best, config.window)
    return make_batch(trajectory, config), episodes, best


def make_loss(
    config: PPOConfig, progress: Float[Array, ""], of_steps: StepsLoss = ppo_loss
) -> Loss:
    """Returns a loss of steps as one of a network, when a share of the training is over.

    Raises:
      TypeError: what it returns is no number, or none with numbers by name.
    """

    def loss(network: Network, parts: Sequence[Batch]) -> tuple[Array, Stats]:
        result: Any = of_steps(*reread(network, parts), config, progress)
        number, stats = result, {}
        if isinstance(result, tuple) and len(result) == 2:
            number, stats = result
        shapes = [jnp.shape(x) for x in jax.tree.leaves((number, stats))]
        if not isinstance(stats, dict) or not shapes or any(shapes):
            raise TypeError(
                "expected of a loss a number, or that and a dict of numbers; got "
                f"{jax.tree.map(jnp.shape, result)!s:.200}"
            )
        return number, stats

    return loss


def reread(network: Network, parts: Sequence[Batch]) -> tuple[Outputs, Batch]:
    """Returns what a network says of steps, and these, for all phases together."""
    seen = []
    for part in parts:
        logits, value = jax.vmap(network)(part.inputs)
        logits = logits if part.prior is None else logits + part.prior
        log_prob, entropy = log_prob_and_entropy(logits, part.inputs.mask, part.action)
        bare = dataclasses.replace(part, inputs=(), prior=None)
        seen.append((Outputs(log_prob, entropy, value), bare))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *seen)
