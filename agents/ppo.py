"""Proximal policy optimisation: one compiled train step, made of importable parts."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from agents import losses
from agents.config import PPOConfig
from agents.distributions import log_prob_and_entropy
from agents.encoding import GraphInputs
from agents.gae import generalized_advantages, normalize
from agents.games import Game
from agents.networks import GraphNetwork
from agents.rollout import Episodes, Trajectory, rollout


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Steps to learn from, N = T B.

    Attributes:
      inputs: GraphInputs [N, ...].
      action: int32 [N].
      log_prob: under the policy that acted, float32 [N].
      value: by the critic that acted, float32 [N].
      advantage: normalised, float32 [N].
      target: of the value, float32 [N].
      weight: 1 for steps that count, 0 for padding, float32 [N].
    """

    inputs: GraphInputs
    action: Int[Array, " N"]
    log_prob: Float[Array, " N"]
    value: Float[Array, " N"]
    advantage: Float[Array, " N"]
    target: Float[Array, " N"]
    weight: Float[Array, " N"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a train step reads and writes.

    Attributes:
      network: the parameters.
      opt_state: the optimiser's moments.
      key: typed PRNG key.
      num_updates: train steps done, int32 [].
    """

    network: GraphNetwork
    opt_state: optax.OptState
    key: PRNGKeyArray
    num_updates: Int[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Update:
    """What one train step saw, for K graphs.

    Attributes:
      mean_cost: over the episodes of each graph, float32 [K].
      min_cost: the cheapest episode of each graph, int32 [K].
      best_order: its order as slots, -1 padded, int32 [K, A].
      stats: float32 [] each: losses, entropy, KL and so on.
    """

    mean_cost: Float[Array, " K"]
    min_cost: Int[Array, " K"]
    best_order: Int[Array, "K A"]
    stats: dict[str, Float[Array, ""]]


def make_optimizer(config: PPOConfig) -> optax.GradientTransformation:
    """Clips the global norm, then Adam; the learning rate is multiplied in by the train step."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm), optax.scale_by_adam(eps=1e-5)
    )


def anneal(start: float, end: float, progress: Float[Array, ""]) -> Float[Array, ""]:
    """Linear from `start` to `end` as `progress` goes from 0 to 1."""
    return start + (end - start) * jnp.clip(progress, 0.0, 1.0)


def loss_fn(
    network: GraphNetwork, batch: Batch, config: PPOConfig, ent_coef: Float[Array, ""]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """PPO's loss on a batch, and what is worth logging about it."""
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
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": losses.approximate_kl(log_prob, batch.log_prob, weight),
        "clip_fraction": losses.clip_fraction(log_prob, batch.log_prob, weight, config.clip_eps),
    }


def make_batch(trajectory: Trajectory, scales: Float[Array, " B"], config: PPOConfig) -> Batch:
    """Advantages and targets of whole episodes, flattened to N = T B steps.

    Args:
      trajectory: steps [T, B].
      scales: what each environment's rewards are divided by, float32 [B].
      config: the settings.
    """
    chex.assert_rank([trajectory.reward, trajectory.value, scales], [2, 2, 1])
    advantage, target = generalized_advantages(
        trajectory.reward / scales, trajectory.value, 1.0, config.gae_lambda
    )
    batch = Batch(
        trajectory.inputs,
        trajectory.action,
        trajectory.log_prob,
        trajectory.value,
        normalize(advantage, trajectory.active),
        target,
        trajectory.active,
    )
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), batch)


def cheapest(episodes: Episodes, num_graphs: int) -> tuple[Array, Array, Array]:
    """Mean cost, least cost and cheapest order of each graph's episodes.

    Args:
      episodes: of B environments, sorted by graph, as many for each.
      num_graphs: K.

    Returns:
      float32 [K], int32 [K] and int32 [K, A].
    """
    # An episode that broke off has no order to offer; with masked actions there is none.
    worst = jnp.iinfo(jnp.int32).max
    cost = jnp.where(episodes.complete, episodes.cost, worst).reshape(num_graphs, -1)
    orders = episodes.order.reshape(*cost.shape, -1)
    index = cost.argmin(1)
    mean = episodes.cost.reshape(num_graphs, -1).astype(jnp.float32).mean(1)
    rows = jnp.arange(num_graphs)
    return mean, cost[rows, index], orders[rows, index]


class Trainer:
    """PPO on a game: fresh parameters, and the compiled train step.

    Attributes:
      config: the settings.
      game: the graphs and their environment.
      num_envs: environments played in every step: `config.num_envs`, rounded up to a multiple of
        the number of graphs.
      steps_per_update: environment steps that one train step plays, padding left out.
    """

    def __init__(self, config: PPOConfig, game: Game):
        """Lays out the environments; nothing is compiled yet.

        Args:
          config: the settings.
          game: the graphs.
        """
        self.config = config
        self._optimizer = make_optimizer(config)
        self._step = jax.jit(self._train_step)
        self._lay_out(game)

    def _lay_out(self, game: Game) -> None:
        """Gives every graph as many environments."""
        self.game = game
        num_graphs = len(game.graphs)
        each = -(-self.config.num_envs // num_graphs)
        self.num_envs = each * num_graphs
        self.steps_per_update = each * sum(len(g.eliminable) for g in game.graphs)
        graph_of_env = jnp.repeat(jnp.arange(num_graphs), each)
        self._params = jax.tree.map(lambda x: x[graph_of_env], game.params)
        self._scales = game.scales[graph_of_env]

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
        return TrainState(network, opt_state, key, jnp.zeros((), jnp.int32))

    def step(self, state: TrainState, progress: float) -> tuple[TrainState, Update]:
        """Plays one episode in every environment and learns from them.

        Args:
          state: the state before.
          progress: share of the training that is over, from 0 to 1; drives the schedules.
        """
        return self._step(state, jnp.asarray(progress, jnp.float32), self._params, self._scales)

    def _train_step(
        self, state: TrainState, progress: Array, params: Any, scales: Array
    ) -> tuple[TrainState, Update]:
        play_key, learn_key, key = jax.random.split(state.key, 3)
        trajectory, episodes = rollout(self.game.env, params, state.network, play_key)
        batch = make_batch(trajectory, scales, self.config)
        network, opt_state, stats = learn(
            state.network, state.opt_state, batch, self.config, learn_key, progress
        )
        mean, least, order = cheapest(episodes, len(self.game.graphs))
        stats["explained_variance"] = losses.explained_variance(
            batch.value, batch.target, batch.weight
        )
        new_state = TrainState(network, opt_state, key, state.num_updates + 1)
        return new_state, Update(mean, least, order, stats)


def learn(
    network: GraphNetwork,
    opt_state: optax.OptState,
    batch: Batch,
    config: PPOConfig,
    key: PRNGKeyArray,
    progress: Float[Array, ""],
) -> tuple[GraphNetwork, optax.OptState, dict[str, Float[Array, ""]]]:
    """All epochs and minibatches of one update.

    Stops early once a minibatch shows a KL divergence above `config.target_kl`; a minibatch whose
    gradient is not finite is passed over.

    Args:
      network: the parameters.
      opt_state: the optimiser's state.
      batch: N steps.
      config: the settings.
      key: for the shuffles.
      progress: share of the training that is over.

    Returns:
      Parameters, optimiser state and the means of the minibatches' statistics.
    """
    optimizer = make_optimizer(config)
    rate = anneal(config.learning_rate, config.final_learning_rate, progress)
    ent_coef = anneal(config.ent_coef, config.final_ent_coef, progress)
    gradient = eqx.filter_value_and_grad(
        partial(loss_fn, config=config, ent_coef=ent_coef), has_aux=True
    )
    carry = (network, opt_state, jnp.zeros((), bool))

    def descend(carry: Any, index: Int[Array, " M"]) -> tuple[Any, dict[str, Array]]:
        network, opt_state, _ = carry
        (_, stats), grads = gradient(network, jax.tree.map(lambda x: x[index], batch))
        finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)]).all()
        deltas, new_opt_state = optimizer.update(grads, opt_state)
        new_network = eqx.apply_updates(network, jax.tree.map(lambda d: -rate * d, deltas))
        network, opt_state = _select(finite, (new_network, new_opt_state), (network, opt_state))
        stop = stats["approx_kl"] > config.target_kl
        counts = {"minibatches": jnp.ones(()), "not_finite": 1.0 - finite.astype(jnp.float32)}
        return (network, opt_state, stop), stats | counts

    def minibatch(carry: Any, index: Int[Array, " M"]) -> tuple[Any, dict[str, Array]]:
        _, shapes = jax.eval_shape(descend, carry, index)
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.cond(carry[2], lambda c, i: (c, nothing), descend, carry, index)

    indices = minibatch_indices(key, batch.action.shape[0], config)
    (network, opt_state, _), stats = jax.lax.scan(minibatch, carry, indices)
    done = stats.pop("minibatches").sum()
    not_finite = stats.pop("not_finite").sum()
    means = {name: x.sum() / done for name, x in stats.items()}
    return network, opt_state, means | {"minibatches": done, "not_finite": not_finite}


def minibatch_indices(key: PRNGKeyArray, num_steps: int, config: PPOConfig) -> Int[Array, "U M"]:
    """Which steps each minibatch holds: every epoch a new shuffle, a remainder left out.

    Returns:
      int32 [epochs · minibatches, steps in a minibatch].
    """
    parts = min(config.num_minibatches, num_steps)
    size = num_steps // parts
    shuffles = [
        jax.random.permutation(k, num_steps)[: parts * size].reshape(parts, size)
        for k in jax.random.split(key, config.update_epochs)
    ]
    return jnp.concatenate(shuffles)


def _select(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
