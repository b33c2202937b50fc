"""Stoa's wrappers and spaces on the environment."""

from __future__ import annotations

import jax
import numpy as np
import pytest

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("promotion")]
pytest.importorskip("stoa")

from stoa.core_wrappers.auto_reset import AutoResetWrapper, CachedAutoResetWrapper
from stoa.core_wrappers.episode_metrics import RecordEpisodeMetrics
from stoa.core_wrappers.vmap import VmapWrapper
from stoa.utility_wrappers.flatten_obs import FlattenObservationWrapper

import veenv
from veenv.env import random_action
from veenv.env.adapters import to_stoa
from veenv.env.observe import mask_of

NAME, STEPS = "Robertson", 6


def test_spaces_hold_what_is_seen():
    for kind in ("adjacency", "flat", "graph"):
        env = to_stoa(veenv.make(NAME, observation=kind))
        state, timestep = env.reset(jax.random.PRNGKey(0))
        assert bool(env.observation_space().contains(timestep.observation)), kind
        assert bool(timestep.first())
    assert env.render(state).shape == (600, 960, 3)
    assert env.action_space().num_values == STEPS
    assert env.state_space() is not None
    assert bool(env.reward_space().contains(timestep.reward))
    space = env.environment_space()
    assert bool(space.contains(timestep, env.action_space().sample(jax.random.key(0))))


@pytest.mark.parametrize("reset", [AutoResetWrapper, CachedAutoResetWrapper])
def test_episodes_of_wrapped_environments(reset):
    env = to_stoa(veenv.make(NAME, observation="flat"))
    inner = RecordEpisodeMetrics(FlattenObservationWrapper(env))
    wrapped = VmapWrapper(reset(inner, next_obs_in_extras=True), num_envs=3)

    @jax.jit
    def play(key):
        def step(carry, key):
            state, timestep = carry
            action = random_action(key, mask_of(timestep.observation, STEPS) > 0)
            state, timestep = wrapped.step(state, action)
            return (state, timestep), (timestep.terminated(), timestep.extras)

        return jax.lax.scan(step, wrapped.reset(key), jax.random.split(key, 2 * STEPS))[1]

    ended, extras = jax.device_get(play(jax.random.key(0)))
    assert ended[[STEPS - 1, 2 * STEPS - 1]].all()
    assert ended.sum() == 6
    graph = env.episodes.env.graph
    for t, i in zip(*np.nonzero(ended), strict=True):
        returned = extras["episode_metrics"]["episode_return"][t, i]
        assert graph.cost(extras["order"][t, i].tolist()) == -returned
