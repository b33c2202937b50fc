"""Plays whole episodes of many environments by compiled scans, one for each phase."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.agents.nn.custom import Inputs, Network
from veenv.agents.nn.distributions import choose
from veenv.agents.ppo.phases import phases_of
from veenv.agents.ppo.windows import Windows, next_slots
from veenv.env import EnvParams, State, VertexEnv
from veenv.env.counts import Count, largest_like, select


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Trajectory:
    """Steps of B episodes; T = A, the number of action slots.

    Attributes:
      inputs: what the policy saw, Inputs [steps, B, ...] for each phase.
      action: slot chosen, int32 [T, B].
      place: of the action among the slots of the inputs, int32 [T, B].
      log_prob: of the action, float32 [T, B].
      value: the critic's estimate before the step, 0 after the end, float32 [T, B].
      reward: the environment's, 0 after the end, float32 [T, B].
      active: 1 where the step was part of the episode, 0 after its end (padded graphs),
        float32 [T, B].
      prior: what was added to the logits, float32 [T, B, K]; None without windows.
      ends: 1 at the last step of a stretch, float32 [T, B]; None if there is one episode alone.
    """

    inputs: tuple[Inputs, ...]
    action: Int[Array, "T B"]
    place: Int[Array, "T B"]
    log_prob: Float[Array, "T B"]
    value: Float[Array, "T B"]
    reward: Float[Array, "T B"]
    active: Float[Array, "T B"]
    prior: Float[Array, "T B K"] | None = None
    ends: Float[Array, "T B"] | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Episodes:
    """Results of B episodes.

    Attributes:
      cost: of the whole order, counts [B].
      order: slots in the order of elimination, -1 padded, int32 [B, A].
      complete: every vertex of the graph was eliminated, bool [B].
    """

    cost: Count
    order: Int[Array, "B A"]
    complete: Bool[Array, " B"]


def cheapest(episodes: Episodes, num_graphs: int) -> tuple[Array, Count, Array]:
    """Computes mean cost, least cost and cheapest order of each graph's complete episodes.

    Args:
      episodes: of B environments, sorted by graph, as many for each; or of several for each.
      num_graphs: K.

    Returns:
      float32 [K], counts [K] and int32 [K, A].
    """
    # An episode that broke off has no order to offer; where one is known there is none.
    worst = largest_like(episodes.cost)
    cost = select(episodes.complete, episodes.cost, worst).reshape(num_graphs, -1)
    orders = episodes.order.reshape(*cost.shape, -1)
    index = cost.argmin(1)
    where = episodes.complete.reshape(cost.shape)
    mean = episodes.cost.reshape(num_graphs, -1).astype(jnp.float32).mean(1, where=where)
    rows = jnp.arange(num_graphs)
    return mean, cost[rows, index], orders[rows, index]


def rollout(
    env: VertexEnv, params: EnvParams, network: Network, key: PRNGKeyArray, most_phases: int = 1
) -> tuple[Trajectory, Episodes]:
    """Plays one whole episode in each of B environments, in at most `most_phases` phases."""
    shape = params.vertex_ids.shape
    state = jax.vmap(env.init)(params)
    keys = jax.random.split(key, env.num_actions)
    parts: list[Trajectory] = []
    for phase in phases_of(env.num_actions, most_phases):
        # Drawn at once, since one step's few numbers take longer to draw than to use.
        noise = jax.vmap(lambda k: jax.random.gumbel(k, shape))(keys[phase.steps])
        slots = None
        if phase.start:
            slots = jax.vmap(partial(next_slots, phase.num_slots))(state, params)
            noise = jax.vmap(_at, (0, None))(noise, slots)
        state, seen = jax.lax.scan(partial(step, env, params, network, slots), state, noise)
        parts.append(seen)
    inputs = tuple(one for part in parts for one in part.inputs)
    bare = [dataclasses.replace(part, inputs=()) for part in parts]
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *bare)
    episodes = Episodes(state.cost, state.order, ~state.action_mask.any(-1))
    return dataclasses.replace(joined, inputs=inputs), episodes


def _at(x: Array, slots: Int[Array, "B K"]) -> Array:
    """Gathers from each row of [B, A] what stands at its slots, [B, K]."""
    return jnp.take_along_axis(x, slots, 1, mode="clip")


def slots_at(slots: Int[Array, "B K"], place: Int[Array, " B"]) -> Int[Array, " B"]:
    """The slots at places among those that are read."""
    return _at(slots, place[:, None])[:, 0]


def step(
    env: VertexEnv,
    params: EnvParams,
    network: Network,
    read: Windows | Int[Array, "B K"] | None,
    state: State,
    noise: Float[Array, "B K"],
) -> tuple[State, Trajectory]:
    """Plays one step of B environments, of which the network reads some slots, or all of them."""
    slots, prior = read(env, state, params) if isinstance(read, Windows) else (read, None)
    inputs = jax.vmap(partial(network.read, env))(state, params, slots)
    logits, value = jax.vmap(network)(inputs)
    logits = logits if prior is None else logits + prior
    place, log_prob = choose(logits, inputs.mask, noise)
    active = (~state.terminated).astype(jnp.float32)
    action = place if slots is None else slots_at(slots, place)
    state, reward, _ = jax.vmap(env.transition)(state, action, params)
    reward, value = reward * active, value * active
    seen = Trajectory((inputs,), action, place, log_prob, value, reward, active, prior)
    return state, seen
