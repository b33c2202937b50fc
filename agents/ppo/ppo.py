"""Proximal policy optimisation: the losses of an update and the episodes they are from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from veenv.agents.config.ppo import PPOConfig
from veenv.agents.nn.batched import read_steps
from veenv.agents.nn.distributions import log_prob_and_entropy
from veenv.agents.nn.own import Network
from veenv.agents.ppo import losses
from veenv.agents.ppo.exploration import BestSoFar, play
from veenv.agents.ppo.gae import generalized_advantages, normalize
from veenv.agents.ppo.phases import in_phases
from veenv.agents.ppo.rollouts import Episodes, Trajectory, prior
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
      weight: 1 for steps that PPO learns from, 0 for padding and for others, float32 [T, B].
      imitate: 1 for steps to imitate, float32 [T, B]; None if there never are any.
    """

    inputs: Any
    action: Int[Array, "*n"]
    log_prob: Float[Array, "*n"]
    value: Float[Array, "*n"]
    advantage: Float[Array, "*n"]
    target: Float[Array, "*n"]
    weight: Float[Array, "*n"]
    imitate: Float[Array, "*n"] | None = None


def loss_fn(
    network: Network, parts: Sequence[Batch], config: PPOConfig, ent_coef: Float[Array, ""]
) -> tuple[Float[Array, ""], Stats]:
    """PPO's loss on a minibatch [M] of steps of each phase, and what is worth logging about it."""
    bias = prior(config.window or 0)
    seen = [_read(network, part, bias) for part in parts]
    log_prob, entropies, value = (jnp.concatenate(x) for x in zip(*seen, strict=True))
    bare = [dataclasses.replace(part, inputs=()) for part in parts]
    batch: Batch = jax.tree.map(lambda *x: jnp.concatenate(x), *bare)
    weight = batch.weight
    entropy = losses.weighted_mean(entropies, weight)
    policy_loss = losses.clipped_policy_loss(
        log_prob, batch.log_prob, batch.advantage, weight, config.clip_eps
    )
    value_loss = losses.clipped_value_loss(
        value, batch.value, batch.target, weight, config.value_clip_eps
    )
    loss = policy_loss + config.vf_coef * value_loss - ent_coef * entropy
    if batch.imitate is not None:
        loss -= config.self_imitation * losses.weighted_mean(log_prob, batch.imitate)
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": losses.approximate_kl(log_prob, batch.log_prob, weight),
        "clip_fraction": losses.clip_fraction(log_prob, batch.log_prob, weight, config.clip_eps),
    }


def _read(network: Network, part: Batch, bias: Array | float) -> tuple[Array, Array, Array]:
    """Log-probabilities of the actions, entropies and values of steps [M], float32 [M] all."""
    logits, value = read_steps(network, part.inputs)
    return *log_prob_and_entropy(logits + bias, part.inputs.mask, part.action), value


def make_batch(trajectory: Trajectory, config: PPOConfig) -> tuple[Batch, ...]:
    """Advantages and targets of whole episodes, a batch for each phase."""
    chex.assert_rank([trajectory.reward, trajectory.value], 2)
    advantage, target = generalized_advantages(
        trajectory.reward, trajectory.value, 1.0, config.gae_lambda
    )
    whole = Batch(
        trajectory.inputs,
        trajectory.place,
        trajectory.log_prob,
        trajectory.value,
        normalize(advantage, trajectory.on_policy),
        target,
        trajectory.on_policy,
        trajectory.replayed,
    )
    return in_phases(whole)


def play_batch(
    env: VertexEnv, params: EnvParams, state: TrainState, key: PRNGKeyArray, config: PPOConfig
) -> tuple[tuple[Batch, ...], Episodes, BestSoFar | None]:
    """An episode in each of B environments: PPO's part of `veenv.agents.ppo.trainer.Agent`."""
    trajectory, episodes, found = play(env, params, state.network, key, state.found, config)
    return make_batch(trajectory, config), episodes, found


def make_loss(config: PPOConfig, progress: Float[Array, ""]) -> Loss:
    """PPO's loss when a share of the training is over."""
    ent_coef = anneal(config.ent_coef, config.final_ent_coef, progress)
    return partial(loss_fn, config=config, ent_coef=ent_coef)
