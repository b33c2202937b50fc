"""Whole episodes of uniformly random legal actions, as one program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt

from veenv.env.arguments import chosen_params
from veenv.env.bits import count_bits, member, pack_flags, upper_product
from veenv.env.encode import EnvParams
from veenv.env.env import VertexEnv
from veenv.env.state import State


def random_action(key: PRNGKeyArray, mask: Bool[Array, "*batch A"]) -> Int[Array, "*batch"]:
    """Draws a uniformly random legal action, at the price of one random number.

    Uniform: of n legal actions none is likelier than another by more than n parts in 2⁶⁴.

    Args:
      key: a key; one for a whole batch.
      mask: the legal actions, bool [..., A].

    Returns:
      int32 [...]; 0 where nothing is legal.

    Raises:
      TypeError: the mask is no array, but a state for example.

    Examples:
      >>> mask = jnp.array([[False, True, True], [True, False, False]])
      >>> actions = random_action(jax.random.key(0), mask)
      >>> bool(mask[0, actions[0]]), int(actions[1])
      (True, 0)
    """
    if not hasattr(mask, "dtype"):
        raise TypeError(
            f"random_action takes a mask of legal actions, got {type(mask).__name__}: pass "
            "state.action_mask or obs.action_mask"
        )
    words = pack_flags(mask)
    num = count_bits(words)
    high, low = jnp.moveaxis(jax.random.bits(key, (*num.shape, 2), jnp.uint32), -1, 0)
    rank = _scaled(high, low, num.astype(jnp.uint32)).astype(jnp.int32)
    return jnp.where(num > 0, member(words, rank), 0)


def _scaled(
    high: UInt[Array, "*batch"], low: UInt[Array, "*batch"], num: UInt[Array, "*batch"]
) -> UInt[Array, "*batch"]:
    """Computes ⌊num · x / 2⁶⁴⌋ for the 64-bit number x = high · 2³² + low."""
    carry = high * num + upper_product(low, num) < high * num  # the lower word overflows
    return upper_product(high, num) + carry.astype(jnp.uint32)


def random_order(key: PRNGKeyArray, state: State) -> Int[Array, " A"]:
    """Draws a uniformly random order of the legal slots of a state, then the illegal ones.

    Args:
      key: a key.
      state: the state.

    Returns:
      int32 [A], the slots.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> slots = random_order(jax.random.key(0), env.reset()[1])
      >>> sorted(slots.tolist())
      [0, 1]
    """
    return jnp.argsort(_ranks(key, state.action_mask)).astype(jnp.int32)


def _ranks(key: PRNGKeyArray, mask: Bool[Array, " A"]) -> UInt[Array, " A"]:
    """Draws a random number for every slot of a mask, larger for those outside of it."""
    bits = jax.random.bits(key, mask.shape, jnp.uint32) >> 1
    return jnp.where(mask, bits, jnp.uint32(1 << 31))


def random_episode(env: VertexEnv, key: PRNGKeyArray, params: EnvParams | None = None) -> State:
    """Plays one episode of uniformly random legal actions.

    Padded slots come last, after the end, when a step changes nothing.

    Args:
      env: the environment.
      key: a key.
      params: the graph; the environment's own by default.

    Returns:
      The final state.

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> state = random_episode(env, jax.random.key(0))
      >>> env.graph.cost(env.final_order(state)) == int(state.cost)
      True
    """
    state = env.init(params)
    if chosen_params(params, env.default_params).before is not None:
        return _waiting_episode(env, key, state, params)

    def step(state: State, action: Int[Array, ""]) -> tuple[State, None]:
        return env.transition(state, action, params)[0], None

    return lax.scan(step, state, random_order(key, state))[0]


def _waiting_episode(
    env: VertexEnv, key: PRNGKeyArray, state: State, params: EnvParams | None
) -> State:
    """Plays a random episode of a graph with vertices that must wait for others."""

    def step(state: State, key: PRNGKeyArray) -> tuple[State, None]:
        action = jnp.argmin(_ranks(key, state.action_mask)).astype(jnp.int32)
        return env.transition(state, action, params)[0], None

    return lax.scan(step, state, jax.random.split(key, env.num_actions))[0]


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

    Examples:
      >>> import jax.numpy as jnp, veenv
      >>> env = veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0)
      >>> random_episodes(env, jax.random.key(0), 4).cost.tolist()
      [2, 2, 2, 2]
    """
    keys = jax.random.split(key, num_envs)
    return jax.vmap(lambda k: random_episode(env, k, params))(keys)
