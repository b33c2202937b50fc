"""gymnax 1.0's wrappers and bridges to Gymnasium on the adapter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("promotion")]
pytest.importorskip("gymnax.wrappers.gym")

from gymnax.wrappers.gym import GymnaxToGymWrapper, GymnaxToVectorGymWrapper
from gymnax.wrappers.purerl import FlattenObservationWrapper, LogWrapper

import veenv
from veenv.env import TaskDistribution, random_action
from veenv.env.adapters import GymnaxEnv
from veenv.env.observe import mask_of

NAME, STEPS = "Robertson", 6


def flat_env(played=None):
    return GymnaxEnv(played or veenv.make(NAME), flat=True)


@pytest.mark.parametrize("kind", ["adjacency", "flat", "graph"])
def test_spaces_hold_what_is_seen(kind):
    env = GymnaxEnv(veenv.make(NAME, observation=kind))
    obs, state = env.reset(jax.random.key(0))
    assert bool(env.observation_space().contains(obs))
    assert bool(env.state_space().contains(state))
    assert GymnaxToGymWrapper(env).render().shape == (600, 960, 3)


def test_log_wrapper_returns_the_cost_of_the_order():
    inner = flat_env()
    env = LogWrapper(FlattenObservationWrapper(inner))

    @jax.jit
    def play(key):
        def step(carry, key):
            obs, state = carry
            action = random_action(key, mask_of(obs, STEPS))
            obs, state, _, terminated, _, info = env.step(key, state, action)
            return (obs, state), (terminated, info)

        return jax.lax.scan(step, env.reset(key), jax.random.split(key, 3 * STEPS))[1]

    ended, info = jax.device_get(play(jax.random.key(0)))
    assert np.flatnonzero(ended).tolist() == [5, 11, 17]
    for t in np.flatnonzero(ended):
        cost = inner.env.graph.cost(info["order"][t].tolist())
        assert cost == info["total"][t] == -info["returned_episode_returns"][t]
        assert info["returned_episode_lengths"][t] == STEPS
        assert not mask_of(jnp.asarray(info["final_observation"][t]), STEPS).any()


def test_bridge_to_gymnasium():
    inner = flat_env()
    env = GymnaxToGymWrapper(inner)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(np.asarray(obs))
    total, terminated = 0.0, False
    while not terminated:
        slot = int(np.argmax(mask_of(obs, STEPS)))
        obs, reward, terminated, _, info = env.step(slot)
        total += float(reward)
    assert inner.env.graph.cost(np.asarray(info["order"]).tolist()) == -total


@pytest.mark.parametrize("tasks", [False, True])
def test_bridge_to_vectors(tasks):
    played = TaskDistribution.of([NAME, "LIF"]) if tasks else veenv.make(NAME)
    inner = flat_env(played)
    graphs = played.graphs if tasks else (inner.env.graph,)
    env = GymnaxToVectorGymWrapper(inner, num_envs=3)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(np.asarray(obs))
    totals, checked = np.zeros(3), 0
    for _ in range(25):
        actions = np.asarray(mask_of(obs, inner.num_actions)).argmax(-1)
        obs, reward, terminated, _, info = env.step(jnp.asarray(actions))
        totals += np.asarray(reward)
        for i in np.flatnonzero(terminated):
            ids = [v for v in np.asarray(info["order"][i]).tolist() if v >= 0]
            graph = graphs[int(info["task"][i]) if tasks else 0]
            assert graph.cost(ids) == -totals[i]
            totals[i], checked = 0.0, checked + 1
    assert checked >= 6
