"""Whole episodes of many environments in one compiled scan."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.agents.nn.distributions import choose, log_prob_and_entropy
from veenv.agents.nn.own import Inputs, Network
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
      on_policy: 1 where PPO may learn from the step: active, and the policy's own choice,
        float32 [T, B].
      prior: what was added to the logits, float32 [T, B, K]; None without windows.
      replayed: 1 where the step is to be imitated, float32 [T, B]; None if there never are any.
      ends: 1 at the last step of a stretch, float32 [T, B]; None if there is one episode alone.
    """

    inputs: tuple[Inputs, ...]
    action: Int[Array, "T B"]
    place: Int[Array, "T B"]
    log_prob: Float[Array, "T B"]
    value: Float[Array, "T B"]
    reward: Float[Array, "T B"]
    active: Float[Array, "T B"]
    on_policy: Float[Array, "T B"]
    prior: Float[Array, "T B K"] | None = None
    replayed: Float[Array, "T B"] | None = None
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


def cheapest(
    episodes: Episodes, num_graphs: int, counted: Bool[np.ndarray, " E"] | None = None
) -> tuple[Array, Count, Array]:
    """Mean cost, least cost and cheapest order of each graph's complete episodes.

    Args:
      episodes: of B environments, sorted by graph, as many for each; or of several for each.
      num_graphs: K.
      counted: which of a graph's environments the mean is over, bool [E]; all by default.

    Returns:
      float32 [K], counts [K] and int32 [K, A].
    """
    # An episode that broke off has no order to offer; where one is known there is none.
    worst = largest_like(episodes.cost)
    cost = select(episodes.complete, episodes.cost, worst).reshape(num_graphs, -1)
    orders = episodes.order.reshape(*cost.shape, -1)
    index = cost.argmin(1)
    where = episodes.complete.reshape(cost.shape)
    if counted is not None:
        where &= counted.repeat(cost.shape[1] // len(counted))[None]
    mean = episodes.cost.reshape(num_graphs, -1).astype(jnp.float32).mean(1, where=where)
    rows = jnp.arange(num_graphs)
    return mean, cost[rows, index], orders[rows, index]


def rollout(
    env: VertexEnv,
    params: EnvParams,
    network: Network,
    key: PRNGKeyArray,
    temperature: Float[Array, " B"] | float = 1.0,
    prefix: Int[Array, "B A"] | None = None,
    most_phases: int = 1,
) -> tuple[Trajectory, Episodes]:
    """Plays one whole episode in each of B environments.

    The logits are divided by the temperature, one for all or float32 [B]; only 1 gives steps that
    PPO may learn from.  The actions of `prefix` (-1 where the policy chooses) are taken whatever
    the policy says.  An episode is cut into at most so many phases.
    """
    shape = params.vertex_ids.shape
    scale = jnp.broadcast_to(jnp.asarray(temperature, jnp.float32), shape[:1])
    state = jax.vmap(env.init)(params)
    keys = jax.random.split(key, env.num_actions)
    moves = None if prefix is None else prefix.T
    parts: list[Trajectory] = []
    for phase in phases_of(env.num_actions, most_phases):
        # Drawn at once, since one step's few numbers take longer to draw than to use.
        noise = jax.vmap(lambda k: jax.random.gumbel(k, shape))(keys[phase.steps])
        fixed = None
        if phase.start:
            fixed = jax.vmap(partial(next_slots, phase.num_slots))(state, params)
            noise = jax.vmap(_at, (0, None))(noise, fixed)
        one = partial(step, env, params, network, scale, fixed)
        prescribed = None if moves is None else moves[phase.steps]
        state, seen = jax.lax.scan(one, state, (noise, prescribed))
        parts.append(seen)
    inputs = tuple(one for part in parts for one in part.inputs)
    bare = [dataclasses.replace(part, inputs=()) for part in parts]
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *bare)
    episodes = Episodes(state.cost, state.order, ~state.action_mask.any(-1))
    return dataclasses.replace(joined, inputs=inputs), episodes


def _at(x: Array, slots: Int[Array, "B K"]) -> Array:
    """Of each row of [B, A] what stands at its slots, [B, K]."""
    return jnp.take_along_axis(x, slots, 1, mode="clip")


def step(
    env: VertexEnv,
    params: EnvParams,
    network: Network,
    scale: Float[Array, " B"],
    read: Windows | Int[Array, "B K"] | None,
    state: State,
    x: tuple[Float[Array, "B K"], Int[Array, " B"] | None],
) -> tuple[State, Trajectory]:
    """One step of B environments, of which the network reads some slots, or all of them.

    What is prescribed, -1 where the policy chooses, are places in windows, and slots else.
    """
    noise, prescribed = x
    slots, prior = read(env, state, params) if isinstance(read, Windows) else (read, None)
    inputs = jax.vmap(partial(network.read, env))(state, params, slots)
    logits, value = jax.vmap(network)(inputs)
    logits = (logits if prior is None else logits + prior) / scale[:, None]
    place, log_prob = choose(logits, inputs.mask, noise)
    on_policy = active = (~state.terminated).astype(jnp.float32)
    if prescribed is not None:
        given = prescribed
        if prior is None and slots is not None:
            given = jnp.argmax(slots == prescribed[:, None], axis=-1).astype(jnp.int32)
        place = jnp.where(prescribed >= 0, given, place)
        log_prob, _ = log_prob_and_entropy(logits, inputs.mask, place)
        on_policy = active * (prescribed < 0).astype(active.dtype)
    action = place if slots is None else _at(slots, place[:, None])[:, 0]
    state, reward, _ = jax.vmap(env.transition)(state, action, params)
    reward, value = reward * active, value * active
    seen = Trajectory((inputs,), action, place, log_prob, value, reward, active, on_policy, prior)
    return state, seen
