"""Whole episodes of many environments in one compiled scan."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from agents.distributions import sample
from agents.encoding import GraphInputs
from agents.networks import GraphNetwork
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
      reward: as the environment gives it, float32 [T, B].
      active: 1 where the step was part of the episode, 0 after its end (padded graphs),
        float32 [T, B].
    """

    inputs: GraphInputs
    action: Int[Array, "T B"]
    log_prob: Float[Array, "T B"]
    value: Float[Array, "T B"]
    reward: Float[Array, "T B"]
    active: Float[Array, "T B"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Episodes:
    """Results of B episodes.

    Attributes:
      cost: multiplications of the whole order, int32 [B].
      order: slots in the order of elimination, -1 padded, int32 [B, A].
      complete: every vertex of the graph was eliminated, bool [B].
    """

    cost: Int[Array, " B"]
    order: Int[Array, "B A"]
    complete: Bool[Array, " B"]


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


def rollout(
    env: VertexEnv,
    params: EnvParams,
    network: GraphNetwork,
    key: PRNGKeyArray,
    temperature: Float[Array, " B"] | float = 1.0,
) -> tuple[Trajectory, Episodes]:
    """Plays one whole episode in each of B environments.

    Args:
      env: the environment.
      params: the graph of each environment, arrays with a leading axis [B].
      network: the policy and the critic.
      key: typed PRNG key.
      temperature: the logits are divided by it before sampling, one for all or float32 [B]; only
        1 gives steps that PPO may learn from.
    """
    scale = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), params.vertex_ids.shape[:1])
    obs, state = jax.vmap(lambda p: env.reset(None, p))(params)

    def step(carry: tuple[Any, Any], key: PRNGKeyArray) -> tuple[Any, Trajectory]:
        obs, state = carry
        inputs = jax.vmap(network.encode)(obs)
        logits, value = jax.vmap(network)(inputs)
        action, log_prob = sample(logits / scale[:, None], inputs.mask, key)
        active = (~state.terminated).astype(jnp.float32)
        obs, state, reward, *_ = jax.vmap(lambda s, a, p: env.step(None, s, a, p))(
            state, action, params
        )
        row = Trajectory(inputs, action, log_prob, value * active, reward * active, active)
        return (obs, state), row

    keys = jax.random.split(key, env.num_actions)
    (_, state), trajectory = jax.lax.scan(step, (obs, state), keys)
    return trajectory, Episodes(state.cost, state.order, ~state.action_mask.any(-1))
