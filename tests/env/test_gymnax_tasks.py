"""The gymnax adapter's info at the end of an episode, and tasks that are drawn at resets."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import veenv
from veenv.env import TaskDistribution, random_action
from veenv.env.adapters import GymnaxEnv


def test_a_task_set_draws_a_task_at_every_reset():
    tasks = TaskDistribution.of(["Robertson", "KerrMetric"])
    env = GymnaxEnv(tasks)

    @jax.jit
    def play(key, params):
        def body(carry, key):
            state = carry
            act, step = jax.random.split(key)
            action = random_action(act, state.state.action_mask)
            _, state, reward, done, _, info = env.step(step, state, action, params)
            return state, (reward, done, info["task"], info["order"], info["total"])

        first, rest = jax.random.split(key)
        return jax.lax.scan(body, env.reset(first, params)[1], jax.random.split(rest, 120))[1]

    reward, done, task, order, total = jax.device_get(play(jax.random.key(0), env.default_params))
    ends = np.flatnonzero(done)
    begins = np.concatenate([[0], ends[:-1] + 1])
    for begin, end in zip(begins, ends, strict=True):
        assert len(set(task[begin : end + 1])) == 1
        ids = order[end][order[end] >= 0].tolist()
        assert tasks.graphs[task[end]].cost(ids) == total[end] == -reward[begin : end + 1].sum()
    assert set(task) == {0, 1}


@pytest.mark.parametrize("several", [False, True])
def test_states_have_a_space_an_observation_and_a_picture(several):
    played = TaskDistribution.of(["Robertson"] * 2) if several else veenv.make("Robertson")
    env = GymnaxEnv(played)
    shown, state = env.reset(jax.random.key(0))
    inner = state.state if several else state
    jax.tree.map(np.testing.assert_array_equal, env.get_obs(state), shown)
    space = env.state_space()
    space = space.spaces["state"] if several else space
    present, order = np.asarray(inner.core.present), np.asarray(inner.order)
    assert space.spaces["core"].spaces["present"].shape == present.shape
    assert bool(space.spaces["core"].spaces["present"].contains(present))
    assert bool(space.spaces["order"].contains(order))
    after = env.step(jax.random.key(0), state, 3)[1]
    pictures = [env.render(each) for each in (state, after)]
    assert pictures[0].shape == (600, 960, 3)
    assert (pictures[0] != pictures[1]).any()
