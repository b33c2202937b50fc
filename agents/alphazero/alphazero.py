"""Gumbel AlphaZero: the network learns what a search found and how the episodes ended."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agents.alphazero.planning import Searches, self_play
from agents.config.ppo import PPOConfig
from agents.config.search import SearchConfig
from agents.devices import Placement
from agents.games import Game
from agents.nn.distributions import MASKED_LOGIT
from agents.nn.encoding import GraphInputs
from agents.nn.networks import GraphNetwork
from agents.ppo import losses
from agents.ppo.exploration import is_finding
from agents.ppo.gae import generalized_advantages
from agents.ppo.ppo import Trainer, TrainState
from agents.ppo.rollout import Episodes
from agents.ppo.updates import Stats, fit
from veenv.env import EnvParams, VertexEnv


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lessons:
    """What to learn from: of whole episodes [T, B], or of a minibatch [M].

    Attributes:
      inputs: GraphInputs [T, B, ...].
      action_weights: the policy to learn, 0 for illegal slots, float32 [T, B, A].
      value: by the critic before learning, float32 [T, B].
      target: of the value, float32 [T, B].
      weight: 1 for steps that count, 0 for padding, float32 [T, B].
    """

    inputs: GraphInputs
    action_weights: Float[Array, "*n A"]
    value: Float[Array, "*n"]
    target: Float[Array, "*n"]
    weight: Float[Array, "*n"]


def make_lessons(searches: Searches, gae_lambda: float = 1.0) -> Lessons:
    """Targets of whole episodes.

    Args:
      searches: steps [T, B].
      gae_lambda: λ of the value targets: 1 for returns, below 1 mixed with the searches' own
        estimates.
    """
    _, target = generalized_advantages(searches.reward, searches.search_value, 1.0, gae_lambda)
    return Lessons(
        searches.inputs, searches.action_weights, searches.value, target, searches.active
    )


def loss_fn(
    network: GraphNetwork, lessons: Lessons, vf_coef: float
) -> tuple[Float[Array, ""], Stats]:
    """Cross-entropy to the searches' policy plus the squared error of the value, on [M] steps.

    Returns:
      The loss, and `policy_loss` (KL divergence of the network's policy from the searches'),
      `value_loss` (half the squared error) and `entropy` (of the network's policy).
    """
    logits, value = jax.vmap(network)(lessons.inputs)
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
    target: Float[Array, "*n A"], log_policy: Float[Array, "*n A"]
) -> Float[Array, "*n"]:
    """KL(target ‖ policy): the cross-entropy less what no policy can do without.

    Args:
      target: probabilities, float32 [..., A].
      log_policy: log-probabilities, float32 [..., A].
    """
    log_target = jnp.log(jnp.where(target > 0, target, 1.0))
    return (target * (log_target - log_policy)).sum(-1)


def search_and_learn(
    env: VertexEnv,
    params: EnvParams,
    scales: Float[Array, " B"],
    state: TrainState,
    progress: Float[Array, ""],
    config: PPOConfig,
    placement: Placement,
    *,
    search: SearchConfig,
) -> tuple[TrainState, Episodes, Stats]:
    """One update of AlphaZero; as `agents.ppo.play_and_learn`, with a search before every move."""
    play_key, learn_key, key = jax.random.split(state.key, 3)
    searches, episodes = self_play(env, params, scales, state.network, play_key, search)
    lessons = placement.constrain(make_lessons(searches, config.gae_lambda), axis=1)
    network, opt_state, stats = fit(
        partial(loss_fn, vf_coef=config.vf_coef),
        state.network,
        state.opt_state,
        lessons,
        config,
        learn_key,
        progress,
        placement.constrain,
    )
    stats["explained_variance"] = losses.explained_variance(
        lessons.value, lessons.target, lessons.weight
    )
    after = dataclasses.replace(
        state, network=network, opt_state=opt_state, key=key, num_updates=state.num_updates + 1
    )
    return after, episodes, stats


def make_trainer(
    config: PPOConfig, search: SearchConfig, game: Game, devices: int | None = None
) -> Trainer:
    """A trainer of AlphaZero on a game.

    Args:
      config: the settings that both agents share; those of PPO's losses and `target_kl` have no
        meaning here.
      search: the search.
      game: the graphs.
      devices: number of devices; see `agents.devices.place`.

    Raises:
      ValueError: as `agents.devices.place`, or the settings ask for what only PPO does.
    """
    if is_finding(config):
        raise ValueError("self_imitation, restarts and temperatures are PPO's; AlphaZero has none")
    return Trainer(config, game, devices, partial(search_and_learn, search=search))
