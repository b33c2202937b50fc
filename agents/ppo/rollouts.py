"""Whole episodes of many environments in one compiled scan."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from agents.nn.distributions import log_prob_and_entropy, sample
from agents.nn.encoding import GraphInputs
from agents.nn.networks import GraphNetwork
from veenv.env import EnvParams, VertexEnv


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Trajectory:
    """Steps of B episodes; T = A, the number of action slots.

    Attributes:
      inputs: what the policy saw, GraphInputs [T, B, ...].
      action: slot chosen, int32 [T, B].
      log_prob: of the action, float32 [T, B].
      value: the critic's estimate before the step, 0 after the end, float32 [T, B].
      reward: the environment's, 0 after the end, float32 [T, B].
      active: 1 where the step was part of the episode, 0 after its end (padded graphs),
        float32 [T, B].
      on_policy: 1 where PPO may learn from the step: active, and the policy's own choice,
        float32 [T, B].
      replayed: 1 where the step is to be imitated, float32 [T, B]; None if there never are any.
    """

    inputs: GraphInputs
    action: Int[Array, "T B"]
    log_prob: Float[Array, "T B"]
    value: Float[Array, "T B"]
    reward: Float[Array, "T B"]
    active: Float[Array, "T B"]
    on_policy: Float[Array, "T B"]
    replayed: Float[Array, "T B"] | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Episodes:
    """Results of B episodes.

    Attributes:
      cost: of the whole order, int32 [B].
      order: slots in the order of elimination, -1 padded, int32 [B, A].
      complete: every vertex of the graph was eliminated, bool [B].
    """

    cost: Int[Array, " B"]
    order: Int[Array, "B A"]
    complete: Bool[Array, " B"]


def cheapest(
    episodes: Episodes, num_graphs: int, counted: Bool[np.ndarray, " E"] | None = None
) -> tuple[Array, Array, Array]:
    """Mean cost, least cost and cheapest order of each graph's episodes.

    Args:
      episodes: of B environments, sorted by graph, as many for each.
      num_graphs: K.
      counted: which of a graph's episodes the mean is over, bool [E = B / K]; all by default.

    Returns:
      float32 [K], int32 [K] and int32 [K, A].
    """
    # An episode that broke off has no order to offer; with masked actions there is none.
    worst = jnp.iinfo(jnp.int32).max
    cost = jnp.where(episodes.complete, episodes.cost, worst).reshape(num_graphs, -1)
    orders = episodes.order.reshape(*cost.shape, -1)
    index = cost.argmin(1)
    where = None if counted is None else counted[None]
    mean = episodes.cost.reshape(num_graphs, -1).astype(jnp.float32).mean(1, where=where)
    rows = jnp.arange(num_graphs)
    return mean, cost[rows, index], orders[rows, index]


def rollout(
    env: VertexEnv,
    params: EnvParams,
    network: GraphNetwork,
    key: PRNGKeyArray,
    temperature: Float[Array, " B"] | float = 1.0,
    prefix: Int[Array, "B A"] | None = None,
) -> tuple[Trajectory, Episodes]:
    """Plays one whole episode in each of B environments.

    The logits are divided by the temperature, one for all or float32 [B]; only 1 gives steps that
    PPO may learn from.  The actions of `prefix` (-1 where the policy chooses) are taken whatever
    the policy says.
    """
    scale = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), params.vertex_ids.shape[:1])
    obs, state = jax.vmap(lambda p: env.reset(None, p))(params)

    def step(carry: tuple[Any, Any], x: tuple[PRNGKeyArray, Any]) -> tuple[Any, Trajectory]:
        obs, state = carry
        key, prescribed = x
        inputs = jax.vmap(network.encode)(obs)
        logits, value = jax.vmap(network)(inputs)
        logits = logits / scale[:, None]
        action, log_prob = sample(logits, inputs.mask, key)
        on_policy = active = (~state.terminated).astype(jnp.float32)
        if prescribed is not None:
            action = jnp.where(prescribed >= 0, prescribed, action)
            log_prob, _ = log_prob_and_entropy(logits, inputs.mask, action)
            on_policy = active * (prescribed < 0).astype(active.dtype)
        obs, state, reward, *_ = jax.vmap(lambda s, a, p: env.step(None, s, a, p))(
            state, action, params
        )
        row = Trajectory(
            inputs, action, log_prob, value * active, reward * active, active, on_policy
        )
        return (obs, state), row

    keys = jax.random.split(key, env.num_actions)
    (_, state), trajectory = jax.lax.scan(
        step, (obs, state), (keys, None if prefix is None else prefix.T)
    )
    return trajectory, Episodes(state.cost, state.order, ~state.action_mask.any(-1))
