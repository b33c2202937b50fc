"""Plays stretches: on a large graph an episode frees a few steps of the best order so far.

An episode begins where a prefix of that order ends, follows the policy for `STRETCH` steps, and
ends as the order does.  What follows the order is not read by the network, so that an episode takes
a small part of the time; and what one choice saves is not lost among hundreds of others.  An update
plays the stretches of the order one after the other, each on top of what those before have found.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from veenv.agents.nn.custom import Network
from veenv.agents.ppo.best_orders import BestSoFar
from veenv.agents.ppo.rollouts import Episodes, Trajectory, cheapest, step
from veenv.agents.ppo.windows import Windows, next_slots
from veenv.env import EnvParams, State, VertexEnv

STRETCH = 64
"""Steps in which an episode follows the policy; with 32 or 128 a minute found less."""

BY_COST = 3
"""In one of so many stretches the policy chooses among the vertices that cost least, wherever they
are in the order: without such ones, or in every other one, less was found."""

Carry = tuple[BestSoFar, State, State]
"""The best orders, the states where a stretch begins, and those where the last one ended."""


def steps_of(num_actions: int) -> tuple[int, int]:
    """Returns how many stretches there are in an update, and of how many steps each.

    >>> steps_of(376), steps_of(10)
    ((6, 64), (1, 10))
    """
    length = min(STRETCH, num_actions)
    return -(-num_actions // length), length


def sweep(
    env: VertexEnv,
    params: EnvParams,
    network: Network,
    key: PRNGKeyArray,
    best: BestSoFar,
    size: int,
) -> tuple[Trajectory, Episodes, BestSoFar]:
    """Plays an update's stretches in each of B environments.

    A step's reward is less what the same vertex earns in the best order; the last step of a stretch
    has what is saved behind it, too.  Where no order is known yet, all of an episode is free.

    Args:
      env: the environment.
      params: of B environments, sorted by graph, as many for each.
      network: the policy.
      key: of all that is drawn.
      best: the best orders so far, of G graphs.
      size: slots that are read in each step.

    Returns:
      The free steps, the episodes of all stretches, side by side for each environment, and the best
      orders with theirs taken in.
    """
    count, length = steps_of(env.num_actions)
    num_envs, num_graphs = len(params.vertex_ids), len(best.order)
    each = num_envs // num_graphs
    of_graphs = jax.tree.map(lambda x: x[::each], params)
    unknown = (best.order[:, 0] < 0).repeat(each)
    start_key, kind_key, key = jax.random.split(key, 3)

    def stretch(carry: Carry, x: tuple[Array, ...]) -> tuple[Carry, tuple[Trajectory, Episodes]]:
        (best, here, state), (skipped, by_cost, key) = carry, x
        here, _ = follow(env, of_graphs, here, best.order, skipped)
        _, base = follow(env, of_graphs, here, best.order, env.num_actions)
        windows = Windows.of(best.order, each, by_cost, size)
        start = jax.tree.map(lambda x: x.repeat(each, axis=0), here)
        state = jax.tree.map(partial(_where, unknown), state, start)
        noise = jax.random.gumbel(key, (length, num_envs, size))
        state, seen = jax.lax.scan(partial(step, env, params, network, windows), state, noise)
        end, rest = follow(env, params, state, windows.ahead, env.num_actions)
        episodes = Episodes(end.cost, end.order, ~end.action_mask.any(-1))
        best = best.updated(*cheapest(episodes, num_graphs)[1:])
        base = base.repeat(each, axis=0)
        known = jnp.take_along_axis(base, seen.action.T, axis=1, mode="clip").T * seen.active
        behind = rest.sum(-1) - base.sum(-1) + known.sum(0)
        last = jnp.zeros_like(known).at[-1].set(jnp.where(unknown, 0.0, 1.0))
        reward = seen.reward - known + behind[None] * last
        return (best, here, state), (dataclasses.replace(seen, reward=reward, ends=last), episodes)

    # Stretches begin elsewhere in each update, and every second time with the first step.
    first = jnp.maximum(jax.random.randint(start_key, (), -length, length), 0)
    skipped = jnp.full(count, length).at[0].set(first)
    kind = jnp.arange(count) + jax.random.randint(kind_key, (), 0, BY_COST)
    by_cost = (kind % BY_COST == 0) | unknown.any()
    begin = best, jax.vmap(env.init)(of_graphs), jax.vmap(env.init)(params)
    keys = jax.random.split(key, count)
    carry, (seen, episodes) = jax.lax.scan(stretch, begin, (skipped, by_cost, keys))
    episodes = jax.tree.map(lambda x: _flat(jnp.moveaxis(x, 0, 1)), episodes)
    return jax.tree.map(_flat, seen), episodes, carry[0]


def follow(
    env: VertexEnv,
    params: EnvParams,
    state: State,
    order: Int[Array, "B A"],
    most: int | Int[Array, ""],
) -> tuple[State, Float[Array, "B A"]]:
    """Eliminates what is left, but at most so many vertices, as B orders say.

    Returns:
      The states, and what each slot has earned by that.
    """
    slots = jax.vmap(partial(next_slots, env.num_actions))(state, params, order)
    steps = jnp.minimum((slots < env.num_actions).sum(-1).max(), most)
    rows = jnp.arange(len(slots))

    def one(k: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
        state, earned = carry
        state, reward, _ = jax.vmap(env.transition)(state, slots[:, k], params)
        return state, earned.at[rows, slots[:, k]].set(reward, mode="drop")

    return jax.lax.fori_loop(0, steps, one, (state, jnp.zeros(slots.shape)))


def _where(condition: Bool[Array, " B"], yes: Array, no: Array) -> Array:
    """Selects each environment's own array."""
    return jnp.where(condition.reshape(-1, *(1 for _ in yes.shape[1:])), yes, no)


def _flat(x: Array) -> Array:
    """Joins the first two axes."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
