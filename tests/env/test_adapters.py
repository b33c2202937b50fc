"""Adapters, task distributions, the reusable check, and lowering for every platform."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.env.games import kept_outputs, new_game, small_graph, with_units
from tests.sampling import spared
from veenv.env import VertexEnv
from veenv.env.adapters.gymnax import GymnaxEnv
from veenv.env.observe import mask_of
from veenv.env.random_play import random_episode, random_episodes
from veenv.env.task_set import TaskDistribution
from veenv.graph.linearisation import make_graph
from veenv.testing import check_env


@pytest.fixture
def graph():
    return small_graph(kept_outputs)


@pytest.mark.parametrize(("split_done", "flat"), [(False, False), (True, False), (True, True)])
def test_gymnax_episode_resets_itself(graph, split_done, flat):
    """Its last info has the order and the last observation."""
    env = GymnaxEnv(VertexEnv(graph), flat=flat, split_done=split_done)
    step = jax.jit(env.step)
    first, state = env.reset(jax.random.key(0))
    for _ in range(2):
        game = new_game(graph, "multiplications")
        for slot in reversed(range(env.num_actions)):
            obs, state, reward, *done, info = step(None, state, slot)
            end = slot == 0
            assert float(reward) == -game.eliminate(graph.node(graph.eliminable[slot]))
            assert [bool(d) for d in done] == ([end, False] if split_done else [end])
            assert float(info["discount"]) == 1.0 - end
            assert (bool(info["terminated"]), bool(info["truncated"])) == (end, False)
        jax.tree.map(np.testing.assert_array_equal, obs, first)
        assert not mask_of(info["final_observation"], env.num_actions).any()
        assert graph.cost(info["order"].tolist()) == int(info["total"])
        assert int(state.num_steps) == 0
        assert not state.terminated


def test_task_distribution_samples_every_task():
    graphs = [small_graph(kept_outputs), small_graph(with_units)]
    tasks = TaskDistribution.of([*graphs, "PropaneCombustion"], "executed")
    keys = jax.random.split(jax.random.key(0), 300)
    _, states, params = jax.jit(jax.vmap(tasks.reset))(keys)
    lengths = [len(g.eliminable) for g in tasks.graphs]
    drawn = np.asarray(states.action_mask.sum(-1))
    counts = [(drawn == n).sum() for n in lengths]
    assert sum(counts) == 300
    assert min(counts) > 60
    np.testing.assert_array_equal(drawn, (params.vertex_ids >= 0).sum(-1))
    episode = jax.jit(lambda key, params: random_episode(tasks.env, key, params))
    for index, graph in enumerate(tasks.graphs):
        end = episode(jax.random.key(index), tasks.task(index))
        order = tasks.env.final_order(end, tasks.task(index))
        assert graph.cost(order, "executed") == int(end.cost)
    assert tasks.index("propanecombustion") == 2
    assert tasks.names == ("graph 0", "graph 1", "PropaneCombustion")


def arrays(x):
    """A matrix, a vector and a number; diagonal, dense and broadcast edges."""
    y = jnp.sin(x[0] @ x[1]) * x[1]
    return jnp.exp(y.sum()) * y, y


@pytest.fixture
def checked(request, task_graph):
    """The graph of a task, or of the small function of arrays or of numbers."""
    if request.param == "arrays":
        return make_graph(lambda *x: arrays(x), (0, 1))(jnp.ones((3, 3)), jnp.ones(3))
    return small_graph(kept_outputs) if request.param == "numbers" else task_graph(request.param)


CHECKED = ["arrays", "numbers", "mlp", "PropaneCombustion", "LIF"]


@pytest.mark.parametrize("checked", spared(CHECKED), indirect=True)
def test_check_env_accepts_the_environment_and_a_larger_spec(checked):
    env = VertexEnv(checked)
    check_env(env, episodes=1)
    names = "num_inputs num_actions num_outputs".split()
    larger = {name: getattr(env.spec, name) + k for k, name in enumerate(names, 1)}
    padded = VertexEnv(env.graph, spec=env.spec.padded(**larger))
    check_env(padded, params=padded.default_params, episodes=1)


class Generous(VertexEnv):
    def transition(self, state, action, params=None):
        state, reward, info = super().transition(state, action, params)
        return state, jnp.where(info["illegal"], jnp.float32(0), reward), info


class Careless(VertexEnv):
    def transition(self, state, action, params=None):
        after, reward, info = super().transition(state, action, params)
        return dataclasses.replace(after, action_mask=state.action_mask), reward, info


class Wrong(VertexEnv):
    def transition(self, state, action, params=None):
        state, reward, info = super().transition(state, action, params)
        more = (info["cost"] > 0).astype(jnp.int32)
        cost = info["cost"] + more
        state = dataclasses.replace(state, cost=state.cost + more)
        return state, reward - more.astype(jnp.float32), {**info, "cost": cost, "total": state.cost}


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Generous, "pays too little"), (Careless, "mask"), (Wrong, "graph's cost")],
)
def test_check_env_finds_faults(kind, message, graph):
    with pytest.raises(AssertionError, match=message):
        check_env(kind(graph))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PropaneCombustion", {"shaping": "reverse", "normalise": True}),
        pytest.param("mlp", {}, marks=pytest.mark.slow),
        pytest.param("LIF", {"shaping": "classical", "normalise": True}, marks=pytest.mark.slow),
    ],
)
def test_lowers_for_tpu_cuda_and_cpu(name, options, task_graph):
    env = VertexEnv(task_graph(name), **options)
    _, state = env.reset()
    platforms = ["tpu", "cuda", "cpu"]
    step = jax.export.export(jax.jit(env.step), platforms=platforms)
    exported = step(None, state, jnp.int32(0), env.default_params)
    assert exported.platforms == tuple(platforms)
    bits = jax.random.key_data(jax.random.key(0))
    rollout = jax.jit(lambda bits: random_episodes(env, jax.random.wrap_key_data(bits), 3).cost)
    program = jax.export.export(rollout, platforms=platforms)(bits)
    np.testing.assert_array_equal(program.call(bits), rollout(bits))


def test_sampling_from_a_pool_lowers_for_tpu_cuda_and_cpu():
    pool = TaskDistribution.random(0, 3, vertices=(5, 8), inputs=(1, 3), shaping="reverse")

    @jax.jit
    def play(bits, params):
        keys = jax.random.split(jax.random.wrap_key_data(bits))
        obs, _, drawn = pool.reset(keys[0], params)
        return obs, random_episode(pool.env, keys[1], drawn).order

    bits = jax.random.key_data(jax.random.key(0))
    program = jax.export.export(play, platforms=["tpu", "cuda", "cpu"])(bits, pool.params)
    for params in (pool.params, pool.renewed(1).params):
        found, expected = program.call(bits, params), play(bits, params)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_gymnax_flat_observation(graph):
    env = GymnaxEnv(VertexEnv(graph), flat=True)
    obs, state = env.reset()
    assert env.observation_space().contains(np.asarray(obs))
    np.testing.assert_array_equal(obs, env.env.observe(state).features.reshape(-1))
    masks = obs.reshape(env.num_actions, -1)[:, -1]
    np.testing.assert_array_equal(masks, state.action_mask)
    assert env.action_space().n == env.num_actions
