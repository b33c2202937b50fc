"""Whole episodes of uniformly random legal actions, as one program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray

from veenv.env.encode import EnvParams
from veenv.env.env import VertexEnv
from veenv.env.state import State


def random_order(key: PRNGKeyArray, state: State) -> Int[Array, " A"]:
    """A uniformly random order of the legal slots of a state, then the illegal ones.

    Args:
      key: a key.
      state: the state.

    Returns:
      int32 [A], the slots.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> slots = random_order(jax.random.key(0), env.reset()[1])
      >>> sorted(slots.tolist())
      [0, 1]
    """
    bits = jax.random.bits(key, state.action_mask.shape, jnp.uint32) >> 1
    last = jnp.uint32(1 << 31)
    return jnp.argsort(jnp.where(state.action_mask, bits, last)).astype(jnp.int32)


def random_episode(env: VertexEnv, key: PRNGKeyArray, params: EnvParams | None = None) -> State:
    """Plays one episode of uniformly random legal actions.

    Padded slots come last, after the end, when a step changes nothing.

    Args:
      env: the environment.
      key: a key.
      params: the graph; the environment's own by default.

    Returns:
      The final state.

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> state = random_episode(env, jax.random.key(0))
      >>> env.graph.cost(env.final_order(state)) == int(state.cost)
      True
    """
    state = env.init(params)

    def step(state: State, action: Int[Array, ""]) -> tuple[State, None]:
        return env.transition(state, action, params)[0], None

    return lax.scan(step, state, random_order(key, state))[0]


def random_episodes(
    env: VertexEnv, key: PRNGKeyArray, num_envs: int, params: EnvParams | None = None
) -> State:
    """Plays `num_envs` random episodes side by side; the final states, stacked.

    Args:
      env: the environment.
      key: a key.
      num_envs: number of episodes, B.
      params: the graph; the environment's own by default.

    Returns:
      The final states, every leaf with a first axis [B].

    Example:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> random_episodes(env, jax.random.key(0), 4).cost.tolist()
      [2, 2, 2, 2]
    """
    keys = jax.random.split(key, num_envs)
    return jax.vmap(lambda k: random_episode(env, k, params))(keys)
