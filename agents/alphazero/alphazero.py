"""Gumbel AlphaZero: the network learns what a search found and how the episodes ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from veenv.agents.alphazero.planning import Searches, self_play
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.config.search import SearchConfig
from veenv.agents.nn.custom import Inputs, Network
from veenv.agents.nn.distributions import MASKED_LOGIT
from veenv.agents.ppo import losses
from veenv.agents.ppo.best_orders import BestSoFar
from veenv.agents.ppo.gae import generalized_advantages
from veenv.agents.ppo.rollouts import Episodes
from veenv.agents.ppo.trainer import Agent, Trainer
from veenv.agents.ppo.updates import Loss, Stats, TrainState
from veenv.env import EnvParams, TaskDistribution, VertexEnv

PPO_ONLY = "ent_coef final_ent_coef clip_eps target_kl".split()
"""Settings without a meaning here."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lessons:
    """Steps to learn from: of whole episodes [T, B], or of a minibatch [M].

    Attributes:
      inputs: Inputs [T, B, ...].
      prior: what is added to the logits, float32 [T, B, K]; None without a window.
      action_weights: the policy to learn, 0 for illegal slots, float32 [T, B, K].
      value: by the critic before learning, float32 [T, B].
      target: of the value, float32 [T, B].
      weight: 1 for steps that count, 0 for padding, float32 [T, B].
    """

    inputs: Inputs
    prior: Float[Array, "*n K"] | None
    action_weights: Float[Array, "*n K"]
    value: Float[Array, "*n"]
    target: Float[Array, "*n"]
    weight: Float[Array, "*n"]


def make_lessons(searches: Searches, gae_lambda: float = 1.0) -> Lessons:
    """Targets of whole episodes, steps [T, B]; λ below 1 mixes in the searches' own estimates."""
    _, target = generalized_advantages(searches.reward, searches.search_value, 1.0, gae_lambda)
    return Lessons(
        searches.inputs,
        searches.prior,
        searches.action_weights,
        searches.value,
        target,
        searches.active,
    )


def loss_fn(
    network: Network, parts: Sequence[Lessons], vf_coef: float
) -> tuple[Float[Array, ""], Stats]:
    """Cross-entropy to the searches' policy plus the squared error of the value, on [M] steps.

    The episodes have one phase, so there is one part.

    Returns:
      The loss, and `policy_loss` (KL divergence of the network's policy from the searches'),
      `value_loss` (half the squared error) and `entropy` (of the network's policy).
    """
    [lessons] = parts
    logits, value = jax.vmap(network)(lessons.inputs)
    logits = logits if lessons.prior is None else logits + lessons.prior
    logits = jnp.where(lessons.inputs.mask, logits, MASKED_LOGIT)
    log_policy = jax.nn.log_softmax(logits)
    entropies = -(jnp.exp(log_policy) * log_policy).sum(-1)
    policy_loss = losses.weighted_mean(
        cross_entropy_excess(lessons.action_weights, log_policy), lessons.weight
    )
    value_loss = 0.5 * losses.weighted_mean(jnp.square(value - lessons.target), lessons.weight)
    entropy = losses.weighted_mean(entropies, lessons.weight)
    return policy_loss + vf_coef * value_loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
    }


def cross_entropy_excess(
    target: Float[Array, "*n K"], log_policy: Float[Array, "*n K"]
) -> Float[Array, "*n"]:
    """KL(target ‖ policy), the cross-entropy less what no policy can do without; of [..., K]."""
    log_target = jnp.log(jnp.where(target > 0, target, 1.0))
    return (target * (log_target - log_policy)).sum(-1)


def search_batch(
    env: VertexEnv,
    params: EnvParams,
    state: TrainState,
    key: PRNGKeyArray,
    config: PPOConfig,
    *,
    search: SearchConfig,
) -> tuple[tuple[Lessons], Episodes, BestSoFar | None]:
    """Episodes with a search before every move: AlphaZero's part of an `Agent`."""
    searches, episodes = self_play(env, params, state.network, key, search, config.window or 0)
    return (make_lessons(searches, config.gae_lambda),), episodes, state.best


def make_loss(config: PPOConfig, progress: Float[Array, ""]) -> Loss:
    """AlphaZero's loss, which is the same all the time."""
    del progress
    return partial(loss_fn, vf_coef=config.vf_coef)


def make_trainer(
    config: PPOConfig,
    search: SearchConfig,
    tasks: TaskDistribution,
    devices: int | None = None,
    network: Network | None = None,
) -> Trainer:
    """A trainer of AlphaZero on tasks with normalised rewards.

    Raises:
      ValueError: as `Trainer`, or the settings ask for what only PPO does.
    """
    for name in PPO_ONLY:
        if getattr(config, name) != getattr(PPOConfig, name):
            raise ValueError(f"{name} is a setting of PPO's loss, which AlphaZero does not have")
    agent = Agent(partial(search_batch, search=search), make_loss)
    return Trainer(config, tasks, devices, agent, network, known=())
