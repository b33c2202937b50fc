"""What the network reads, against counts by sets of edges."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.by_numpy import evaluated
from veenv.agents.nn.encoding import (
    NUM_BASE_FEATURES,
    encode,
    num_features,
)
from veenv.agents.nn.networks import GraphNetwork
from veenv.env import VertexEnv


def encoded(obs, num_hops):
    return evaluated(partial(encode, num_hops=num_hops))(obs)


@pytest.fixture(scope="module")
def steps(wide_graph):
    """The environment and what it shows along a random episode."""
    env, shown = VertexEnv(wide_graph), []
    rng, step = np.random.default_rng(0), jax.jit(env.step)
    obs, state = jax.jit(env.reset)()
    for _ in range(5):
        shown.append(jax.device_get(obs))
        action = rng.choice(np.flatnonzero(obs.action_mask))
        obs, state, *_ = step(None, state, jnp.int32(action))
    return env, shown


def neighbours(env, obs):
    """Predecessor rows and successor columns of every slot; rows count slots from num_inputs."""
    adjacency = np.asarray(obs.adjacency)
    first = adjacency.shape[0] - env.num_actions
    for slot in range(env.num_actions):
        into = [int(r) for r in np.flatnonzero(adjacency[:, slot])]
        out_of = [int(c) for c in np.flatnonzero(adjacency[first + slot])]
        yield slot, first, into, out_of


def test_extra_features(steps):
    env, shown = steps
    for obs in shown:
        nodes = np.asarray(encoded(obs, 1).nodes)
        for slot, first, into, out_of in neighbours(env, obs):
            if not obs.action_mask[slot]:
                assert np.all(nodes[slot] == 0.0)
                continue
            legal = np.asarray(obs.action_mask)
            inputs = sum(bool(r < first) for r in into)
            outputs = sum(bool(c >= env.num_actions or not legal[c]) for c in out_of)
            fill = sum(bool(obs.adjacency[r, c] == 0) for r in into for c in out_of)
            expected = np.log1p([inputs, outputs, fill])
            np.testing.assert_allclose(nodes[slot, 8:NUM_BASE_FEATURES], expected, rtol=1e-5)
            np.testing.assert_allclose(nodes[slot, :8], obs.features[slot])


@pytest.mark.parametrize("num_hops", [0, 1, 2])
def test_hops(steps, num_hops):
    env, shown = steps
    for obs in shown[:4]:
        nodes = np.asarray(encoded(obs, num_hops).nodes)
        assert nodes.shape == (env.num_actions, num_features(num_hops))
        level = nodes[:, :NUM_BASE_FEATURES]
        legal, done = np.asarray(obs.action_mask), NUM_BASE_FEATURES
        for _ in range(num_hops):
            over_in, over_out = np.zeros_like(level), np.zeros_like(level)
            for slot, first, into, out_of in neighbours(env, obs):
                before = [r - first for r in into if r >= first]
                after = [c for c in out_of if c < env.num_actions and legal[c]]
                if legal[slot]:
                    over_in[slot] = level[before].sum(0) / max(1, len(before)) ** 0.5
                    over_out[slot] = level[after].sum(0) / max(1, len(after)) ** 0.5
            level = np.concatenate([over_in, over_out], axis=1)
            found = nodes[:, done : done + level.shape[1]]
            np.testing.assert_allclose(found, level, rtol=1e-5, atol=1e-6)
            done += level.shape[1]


def test_slots_can_be_picked(steps):
    env, shown = steps
    pick = partial(encode, num_hops=2)
    for obs in shown[1:]:
        everything = evaluated(pick)(obs)
        left = np.flatnonzero(obs.action_mask)[::-1]
        none = [env.num_actions, env.num_actions + 3]
        slots = jnp.asarray([*left, *none], jnp.int32)
        some = evaluated(lambda obs, slots: pick(obs, slots=slots))(obs, slots)
        np.testing.assert_allclose(some.nodes[: len(left)], everything.nodes[left], rtol=1e-5)
        assert some.mask.tolist() == [True] * len(left) + [False] * len(none)
        assert not np.any(some.nodes[len(left) :])


@pytest.mark.parametrize("task", ["RobotArm_6DOF", "DoublePendulum_RK4"])
def test_bits_are_read_as_the_matrix_is(task):
    env, rng = veenv.make(task), np.random.default_rng(0)
    network, step = GraphNetwork(4, key=jax.random.key(0)), jax.jit(env.transition)
    read = jax.jit(lambda state: network.read(env, state, env.default_params).nodes)
    matrix = jax.jit(lambda state: encode(env.observe(state)).nodes)
    state = env.init()
    for left in range(env.num_actions, 0, -1):
        if left % 9 == 0:
            np.testing.assert_array_equal(read(state), matrix(state))
        state, *_ = step(state, jnp.int32(rng.choice(np.flatnonzero(state.action_mask))))
