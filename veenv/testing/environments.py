"""Plays an environment and checks the promises of its interface."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from veenv.env.encode import EnvParams
from veenv.env.env import VertexEnv
from veenv.env.observe import as_fields, mask_of
from veenv.env.state import State
from veenv.testing.promises import require

ILLEGAL_EVERY = 8
"""Steps between two tries of illegal actions."""


def check_env(
    env: VertexEnv, *, params: EnvParams | None = None, episodes: int = 2, seed: int = 0
) -> None:
    """Plays an environment at random and checks everything its interface promises.

    Checked are: shapes and dtypes against the spaces, the mask, the reward against
    the info and (for the environment's own graph) against the graph's cost of the order; that
    batched and single steps agree; that states are not changed by a step; and illegal
    actions and steps after the end.

    Args:
      env: the environment.
      params: the graph; the environment's own by default.
      episodes: number of random episodes.
      seed: seeds the random actions.

    Raises:
      AssertionError: saying what is wrong.

    Examples:
      >>> import veenv
      >>> check_env(veenv.make(lambda x: jnp.sin(jnp.exp(x)) * x, 1.0), episodes=1)  # no complaint
    """
    checked = env.default_params if params is None else params
    rng = np.random.default_rng(seed)
    step, reset = jax.jit(env.step), jax.jit(env.reset)
    for _ in range(episodes):
        state = _check_episode(env, checked, step, reset, rng)
        order = env.final_order(state, checked)
        require(order is not None, "a finished episode has an order")
        if params is None and order is not None:
            cost = env.graph.cost(order, env.cost)
            require(int(state.cost) == cost, f"episode cost {state.cost}, graph's cost {cost}")
    _check_batch(env, checked, step, reset, rng)


def _check_episode(
    env: VertexEnv, params: EnvParams, step: Any, reset: Any, rng: np.random.Generator
) -> State:
    obs, state = reset(jax.random.key(0), params)
    _check_observation(env, obs, state)
    left = np.asarray(params.vertex_ids) >= 0
    before = None if params.before is None else np.asarray(params.before)
    reference, scale = _reward_data(params)
    total = 0
    while not state.terminated:
        legal = left if before is None else left & ~(before & left).any(1)
        require(np.array_equal(env.action_mask(state), legal), "the mask is what may go")
        if int(state.num_steps) % ILLEGAL_EVERY == 0:
            _check_illegal(env, params, step, state, left)
        slot = int(rng.choice(np.flatnonzero(legal)))
        old = jax.tree.map(np.array, state)
        obs, after, reward, terminated, truncated, info = step(None, state, slot, params)
        require(_same(old, state), "a step leaves the old state as it is")
        _check_observation(env, obs, after)
        left[slot] = False
        total += int(info["cost"])
        gain = int(reference[slot]) - int(info["cost"])
        require(
            np.isclose(float(reward), gain / scale, rtol=1e-6, atol=0.0),
            "the reward is minus the cost of the step (plus the reference's, over the scale)",
        )
        require(int(info["total"]) == int(after.cost) == total, "costs add up")
        require(bool(terminated) == (not left.any()), "the end comes with the last vertex")
        require(not truncated and not info["illegal"], "a legal step is not truncated or illegal")
        require(int(after.order[int(state.num_steps)]) == slot, "the slot is put on record")
        state = after
    _, after_end, reward, terminated, _, _ = step(None, state, 0, params)
    require(_same(after_end, state) and float(reward) == 0.0, "a step after the end does nothing")
    require(bool(terminated), "a step after the end is still the end")
    return state


def _check_illegal(
    env: VertexEnv, params: EnvParams, step: Any, state: State, left: np.ndarray
) -> None:
    slots = [-1, env.num_actions, *np.flatnonzero(~np.asarray(state.action_mask))[:1]]
    reference, scale = _reward_data(params)
    for slot in slots:
        _, after, reward, terminated, truncated, info = step(None, state, int(slot), params)
        require(bool(terminated) and not truncated, f"illegal action {slot} ends the episode")
        require(bool(info["illegal"]), f"illegal action {slot} is reported")
        require(_same(after.core, state.core), f"illegal action {slot} changes no edge")
        owed = (float(params.worst_total) - reference[left].sum()) / scale
        require(float(reward) <= 1e-6 * abs(owed) - owed, f"illegal action {slot} pays too little")


def _reward_data(params: EnvParams) -> tuple[np.ndarray, float]:
    """Returns the reference's cost of each vertex (0 without shaping) and the scale of rewards."""
    if params.reference is None:
        reference = np.zeros(params.vertex_ids.shape, np.int64)
    else:
        reference = np.asarray(params.reference, np.int64)
    return reference, 1.0 if params.scale is None else float(params.scale)


def _check_observation(env: VertexEnv, obs: Any, state: State) -> None:
    whole: Any = env.observation_space
    spaces = {"observation": whole} if env.observation == "flat" else whole.spaces
    shown = {"observation": obs} if env.observation == "flat" else as_fields(obs)
    for name, space in spaces.items():
        value = np.asarray(shown[name])
        value = value.astype(np.int8) if value.dtype == bool else value
        require(space.contains(value), f"{name} lies in its space {space}")
    mask = mask_of(obs, env.num_actions)
    require(np.array_equal(mask, env.action_mask(state)), "both masks agree")


def _check_batch(
    env: VertexEnv, params: EnvParams, step: Any, reset: Any, rng: np.random.Generator
) -> None:
    """Checks that batched steps from different states equal single steps."""
    used = np.flatnonzero(np.asarray(params.vertex_ids) >= 0)
    if not len(used):
        return
    states = [reset(jax.random.key(0), params)[1]]
    for _ in range(min(2, len(used))):
        slot = rng.choice(np.flatnonzero(states[-1].action_mask))
        states.append(step(None, states[-1], slot, params)[1])
    actions = jnp.asarray(rng.choice(used, len(states)), jnp.int32)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    batched_step = jax.jit(jax.vmap(env.step, in_axes=(None, 0, 0, None)))
    batched = batched_step(None, stacked, actions, params)
    for i, state in enumerate(states):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], batched)
        compiled = step(None, state, actions[i], params)
        require(_same(one, compiled, rtol=1e-6), "batched and single steps agree")


def _same(a: Any, b: Any, rtol: float = 0.0) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(x.dtype == y.dtype and np.allclose(x, y, rtol=rtol, atol=0.0) for x, y in pairs)
