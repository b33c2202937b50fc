"""Proximal policy optimisation: one compiled train step, made of importable parts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from agents.config.ppo import PPOConfig
from agents.devices import Placement, place
from agents.games import Game
from agents.nn.distributions import log_prob_and_entropy
from agents.nn.encoding import GraphInputs
from agents.nn.networks import GraphNetwork
from agents.ppo import losses
from agents.ppo.exploration import Found, Parts, is_finding, play
from agents.ppo.gae import generalized_advantages, normalize
from agents.ppo.memory import check_memory
from agents.ppo.rollout import Episodes, Trajectory, cheapest
from agents.ppo.updates import Stats, anneal, fit, make_optimizer
from veenv.env import EnvParams, VertexEnv


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Steps to learn from: of whole episodes [T, B], or of a minibatch [M].

    Attributes:
      inputs: GraphInputs [T, B, ...].
      action: int32 [T, B].
      log_prob: under the policy that acted, float32 [T, B].
      value: by the critic that acted, float32 [T, B].
      advantage: normalised, float32 [T, B].
      target: of the value, float32 [T, B].
      weight: 1 for steps that PPO learns from, 0 for padding and for others, float32 [T, B].
      imitate: 1 for steps to imitate, float32 [T, B]; None if there never are any.
    """

    inputs: GraphInputs
    action: Int[Array, "*n"]
    log_prob: Float[Array, "*n"]
    value: Float[Array, "*n"]
    advantage: Float[Array, "*n"]
    target: Float[Array, "*n"]
    weight: Float[Array, "*n"]
    imitate: Float[Array, "*n"] | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a train step reads and writes.

    Attributes:
      network: the parameters.
      opt_state: the optimiser's moments.
      key: typed PRNG key.
      num_updates: train steps done, int32 [].
      found: the best orders so far, if they are used for learning.
    """

    network: GraphNetwork
    opt_state: optax.OptState
    key: PRNGKeyArray
    num_updates: Int[Array, ""]
    found: Found | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Update:
    """What one train step saw, for K graphs.

    Attributes:
      mean_cost: over the episodes of each graph that followed the policy, float32 [K].
      min_cost: the cheapest episode of each graph, int32 [K].
      best_order: its order as slots, -1 padded, int32 [K, A].
      stats: float32 [] each: losses, entropy, KL and so on.
    """

    mean_cost: Float[Array, " K"]
    min_cost: Int[Array, " K"]
    best_order: Int[Array, "K A"]
    stats: Stats


def loss_fn(
    network: GraphNetwork, batch: Batch, config: PPOConfig, ent_coef: Float[Array, ""]
) -> tuple[Float[Array, ""], Stats]:
    """PPO's loss on a minibatch [M], and what is worth logging about it."""
    logits, value = jax.vmap(network)(batch.inputs)
    log_prob, entropies = log_prob_and_entropy(logits, batch.inputs.mask, batch.action)
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


def make_batch(trajectory: Trajectory, scales: Float[Array, " B"], config: PPOConfig) -> Batch:
    """Advantages and targets of whole episodes.

    Args:
      trajectory: steps [T, B].
      scales: what each environment's rewards are divided by, float32 [B].
      config: the settings.
    """
    chex.assert_rank([trajectory.reward, trajectory.value, scales], [2, 2, 1])
    advantage, target = generalized_advantages(
        trajectory.reward / scales[None], trajectory.value, 1.0, config.gae_lambda
    )
    return Batch(
        trajectory.inputs,
        trajectory.action,
        trajectory.log_prob,
        trajectory.value,
        normalize(advantage, trajectory.taught),
        target,
        trajectory.taught,
        trajectory.replayed,
    )


Agent = Callable[
    [VertexEnv, EnvParams, Array, TrainState, Array, PPOConfig, Placement],
    tuple[TrainState, Episodes, Stats],
]
"""How to play and learn, for one train step; see `play_and_learn`."""


class Trainer:
    """An agent on a game: fresh parameters, and the compiled train step.

    Attributes:
      config: the settings.
      game: the graphs and their environment.
      num_envs: environments played in every step: `config.num_envs`, rounded up to a multiple of
        the number of graphs.
      steps_per_update: environment steps that one train step plays, padding left out.
      placement: the devices that share the environments.

    Example:
      >>> import veenv
      >>> from agents import make_game
      >>> game = make_game({"f": veenv.make_graph(lambda x: jnp.sin(jnp.exp(x)) * x)(1.0)})
      >>> trainer = Trainer(PPOConfig(num_envs=4), game)
      >>> trainer.steps_per_update  # four episodes of two eliminations
      8
      >>> int(trainer.init().num_updates)
      0
    """

    def __init__(
        self,
        config: PPOConfig,
        game: Game,
        devices: int | None = None,
        agent: Agent | None = None,
    ):
        """Lays out the environments; nothing is compiled yet.

        Args:
          config: the settings.
          game: the graphs.
          devices: number of devices; see `agents.devices.place`.
          agent: how to play and to learn; PPO (`play_and_learn`) by default.

        Raises:
          ValueError: as `agents.devices.place`, `agents.ppo.exploration.Parts.of` and
            `agents.ppo.memory.check_memory`.
        """
        self.config = config
        self._agent = agent or play_and_learn
        self._optimizer = make_optimizer(config)
        self._each = -(-config.num_envs // len(game.graphs))
        self.num_envs = self._each * len(game.graphs)
        Parts.of(config, self._each)
        self.placement = place(self.num_envs, devices)
        check_memory(game, config, self.num_envs, self.placement.mesh.size)
        self._step = jax.jit(self._train_step, out_shardings=self.placement.everywhere)
        self._lay_out(game)

    def _lay_out(self, game: Game) -> None:
        """Gives every graph as many environments."""
        self.game = game
        self.steps_per_update = self._each * sum(len(g.eliminable) for g in game.graphs)
        graph_of_env = jnp.repeat(jnp.arange(len(game.graphs)), self._each)
        self._params, self._scales = self.placement.split(
            jax.tree.map(lambda x: x[graph_of_env], (game.params, game.scales))
        )

    def with_game(self, game: Game) -> Trainer:
        """This trainer on as many other graphs, padded to the same sizes; compiles nothing anew.

        Raises:
          ValueError: the number of graphs or the sizes differ.
        """
        if len(game.graphs) != len(self.game.graphs) or game.env.spec != self.game.env.spec:
            raise ValueError(
                f"expected {len(self.game.graphs)} graphs padded to {self.game.env.spec}, "
                f"got {len(game.graphs)} padded to {game.env.spec}"
            )
        other = copy.copy(self)
        other._lay_out(game)
        return other

    def init(self, network: GraphNetwork | None = None) -> TrainState:
        """The state before the first step: fresh parameters, a function of the seed.

        Args:
          network: parameters to start from instead.
        """
        config = self.config
        net_key, key = jax.random.split(jax.random.key(config.seed))
        network = network or GraphNetwork(
            config.hidden,
            config.num_hops,
            config.num_rounds,
            bfloat16=config.bfloat16,
            key=net_key,
        )
        opt_state = self._optimizer.init(eqx.filter(network, eqx.is_array))
        found = None
        if is_finding(config):
            found = Found.nothing(len(self.game.graphs), self.game.env.num_actions)
        return TrainState(network, opt_state, key, jnp.zeros((), jnp.int32), found)

    def step(self, state: TrainState, progress: float) -> tuple[TrainState, Update]:
        """Plays one episode in every environment and learns from them.

        Args:
          state: the state before.
          progress: share of the training that is over, from 0 to 1; drives the schedules.
        """
        state = self.placement.copy(state)
        return self._step(state, np.float32(progress), self._params, self._scales)

    def _train_step(
        self, state: TrainState, progress: Array, params: Any, scales: Array
    ) -> tuple[TrainState, Update]:
        state, episodes, stats = self._agent(
            self.game.env, params, scales, state, progress, self.config, self.placement
        )
        follows = Parts.of(self.config, self._each).follows
        mean, least, order = cheapest(episodes, len(self.game.graphs), follows)
        return state, Update(mean, least, order, stats)


def play_and_learn(
    env: VertexEnv,
    params: EnvParams,
    scales: Float[Array, " B"],
    state: TrainState,
    progress: Float[Array, ""],
    config: PPOConfig,
    placement: Placement,
) -> tuple[TrainState, Episodes, Stats]:
    """One update of PPO: an episode in each of B environments, then the lessons from them.

    Args:
      env: the environment.
      params: the graph of each environment, arrays with a leading axis [B].
      scales: what each environment's rewards are divided by.
      state: the state before.
      progress: share of the training that is over.
      config: the settings.
      placement: the devices that share the environments.

    Returns:
      The state after, the episodes, and what is worth logging.
    """
    play_key, learn_key, key = jax.random.split(state.key, 3)
    trajectory, episodes, found = play(env, params, state.network, play_key, state.found, config)
    batch = placement.constrain(make_batch(trajectory, scales, config), axis=1)
    network, opt_state, stats = learn(
        state.network, state.opt_state, batch, config, learn_key, progress, placement.constrain
    )
    stats["explained_variance"] = losses.explained_variance(batch.value, batch.target, batch.weight)
    state = TrainState(network, opt_state, key, state.num_updates + 1, found)
    return state, episodes, stats


def learn(
    network: GraphNetwork,
    opt_state: optax.OptState,
    batch: Batch,
    config: PPOConfig,
    key: PRNGKeyArray,
    progress: Float[Array, ""],
    spread: Callable[[Any], Any] = lambda rows: rows,
) -> tuple[GraphNetwork, optax.OptState, Stats]:
    """All epochs and minibatches of one update with PPO's loss; see `agents.ppo.updates.fit`."""
    ent_coef = anneal(config.ent_coef, config.final_ent_coef, progress)
    loss = partial(loss_fn, config=config, ent_coef=ent_coef)
    return fit(loss, network, opt_state, batch, config, key, progress, spread)
