"""jumanji's wrappers and its random agent's loop on the environment."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.clients
pytest.importorskip("jumanji")

from jumanji import specs
from jumanji.wrappers import (
    AutoResetWrapper,
    JumanjiToDMEnvWrapper,
    JumanjiToGymWrapper,
    VmapAutoResetWrapper,
)

import veenv
from veenv.env import TaskDistribution, random_action
from veenv.env.adapters import to_jumanji

NAME, STEPS = "Robertson", 6


@pytest.fixture(scope="module")
def env():
    return to_jumanji(veenv.make(NAME))


def cost_of(env, order):
    return env.episodes.env.graph.cost([v for v in np.asarray(order).tolist() if v >= 0])


def policy(key, obs):
    return random_action(key, obs.action_mask)


def test_specs_describe_what_is_observed(env):
    _state, timestep = env.reset(jax.random.PRNGKey(0))
    env.observation_spec.validate(timestep.observation)
    assert env.observation_spec.adjacency.shape == timestep.observation.adjacency.shape
    assert isinstance(env.action_spec, specs.DiscreteArray)
    assert env.action_spec.num_values == STEPS
    env.action_spec.validate(policy(jax.random.key(0), timestep.observation))
    env.reward_spec.validate(timestep.reward)
    env.discount_spec.validate(timestep.discount)
    for kind in ("flat", "graph"):
        other = to_jumanji(veenv.make(NAME, observation=kind))
        other.observation_spec.validate(other.reset(jax.random.PRNGKey(0))[1].observation)
    with pytest.raises(ValueError, match="no spaces for observation='packed'"):
        to_jumanji(veenv.make(NAME, observation="packed"))


def test_a_state_has_a_picture(env):
    state, _ = env.reset(jax.random.PRNGKey(0))
    after, _ = env.step(state, 3)
    pictures = [env.render(each) for each in (state, after)]
    assert pictures[0].shape == (600, 960, 3)
    assert (pictures[0] != pictures[1]).any()
    wrapped = AutoResetWrapper(env)
    assert (wrapped.render(after) == pictures[1]).all()


@pytest.mark.parametrize("wrapper", [AutoResetWrapper, VmapAutoResetWrapper])
def test_wrappers_that_reset_by_themselves(env, wrapper):
    """The loop of jumanji's README: reset, then a scan of policy and step."""
    wrapped, batched = wrapper(env), wrapper is VmapAutoResetWrapper

    @jax.jit
    def play(key):
        keys = jax.random.split(key, 4) if batched else key
        state, timestep = wrapped.reset(keys)

        def step(carry, key):
            state, timestep = carry
            action = policy(key, timestep.observation)
            state, timestep = wrapped.step(state, action)
            return (state, timestep), (timestep.reward, timestep.last(), timestep.extras)

        keys = jax.random.split(key, 3 * STEPS)
        return jax.lax.scan(step, (state, timestep), keys)[1]

    reward, last, extras = jax.device_get(play(jax.random.key(1)))
    if not batched:
        reward, last = reward[:, None], last[:, None]
        extras = {name: value[:, None] for name, value in extras.items()}
    ends = np.arange(1, 3 * STEPS + 1) % STEPS == 0
    np.testing.assert_array_equal(last, np.broadcast_to(ends[:, None], last.shape))
    for env_index in range(last.shape[1]):
        for end in np.flatnonzero(ends):
            earned = reward[end - STEPS + 1 : end + 1, env_index].sum()
            assert cost_of(env, extras["order"][end, env_index]) == -earned


def test_gym_wrapper(env):
    wrapped = JumanjiToGymWrapper(env)
    obs, info = wrapped.reset(seed=1)
    assert wrapped.observation_space.contains(obs)
    total, terminated = 0.0, False
    while not terminated:
        obs, reward, terminated, _, info = wrapped.step(np.argmax(obs["action_mask"]))
        total += reward
    assert cost_of(env, info["order"]) == -total


def test_dm_env_wrapper(env):
    wrapped = JumanjiToDMEnvWrapper(env)
    timestep, total, order = wrapped.reset(), 0.0, []
    wrapped.observation_spec()["features"].validate(np.asarray(timestep.observation.features))
    ids = env.episodes.env.graph.eliminable
    while not timestep.last():
        slot = int(np.argmax(timestep.observation.action_mask))
        order.append(ids[slot])
        timestep = wrapped.step(wrapped.action_spec().validate(np.int32(slot)))
        total += float(timestep.reward)
    assert cost_of(env, order) == -total


@pytest.mark.usefixtures("promotion")  # the agent mixes types as JAX does by default
def test_jumanjis_random_agent_runs_an_epoch(env):
    random_agent = pytest.importorskip("jumanji.training.agents.random.random_agent")
    types = pytest.importorskip("jumanji.training.types")
    agent = random_agent.RandomAgent(
        env=VmapAutoResetWrapper(env),
        n_steps=2 * STEPS,
        total_batch_size=jax.local_device_count(),
        random_policy=lambda obs, key: policy(key, obs),
    )
    keys = jax.random.split(jax.random.key(0), (jax.local_device_count(), 1))
    state, timestep = jax.vmap(VmapAutoResetWrapper(env).reset)(keys)
    acting = types.ActingState(
        state=state,
        timestep=timestep,
        # The agent reshapes its keys as arrays of words.
        key=jax.random.split(jax.random.PRNGKey(1), jax.local_device_count()),
        episode_count=jnp.zeros(jax.local_device_count(), jnp.float32),
        env_step_count=jnp.zeros(jax.local_device_count(), jnp.float32),
    )
    after, metrics = jax.pmap(agent.run_epoch, axis_name="devices")(
        types.TrainingState(params_state=None, acting_state=acting)
    )
    assert float(after.acting_state.episode_count[0]) == 2.0
    assert metrics is not None


def test_tasks_are_drawn_at_resets():
    tasks = TaskDistribution.of([NAME, "LIF"])
    wrapped = AutoResetWrapper(to_jumanji(tasks))

    @jax.jit
    def play(key):
        def step(carry, key):
            state, timestep = wrapped.step(carry[0], policy(key, carry[1].observation))
            return (state, timestep), (timestep.last(), timestep.extras)

        return jax.lax.scan(step, wrapped.reset(key), jax.random.split(key, 60))[1]

    last, extras = jax.device_get(play(jax.random.key(0)))
    for end in np.flatnonzero(last):
        ids = [v for v in extras["order"][end].tolist() if v >= 0]
        assert tasks.graphs[extras["task"][end]].cost(ids) == extras["total"][end]
    assert set(extras["task"][last]) == {0, 1}
