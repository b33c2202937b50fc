"""Mistakes that researchers make: each ends in an error that says what to do, or as documented."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv import agents
from veenv.env import TaskDistribution
from veenv.env.adapters import GymnaxEnv, GymVectorEnv, GymVertexEnv

PAGE = Path(__file__).parents[2] / "docs" / "environment.md"


@pytest.fixture(scope="module")
def env():
    return veenv.make("Robertson")


def test_params_of_another_spec(env):
    other = veenv.make("PropaneCombustion")
    with pytest.raises(ValueError, match=r"another Spec: .* encode a graph with this environment"):
        env.reset(None, other.default_params)


def test_stacked_params_of_a_task_set():
    tasks = TaskDistribution.of(["Robertson", "PropaneCombustion"])
    with pytest.raises(ValueError, match=r"pick those of one task"):
        tasks.env.reset(None, tasks.params)


@pytest.mark.parametrize("action", [1.0, float("nan"), True, np.float32(1), jnp.ones(())])
def test_actions_that_are_no_integers(env, action):
    with pytest.raises(TypeError, match="an action is an integer slot"):
        jax.eval_shape(lambda: env.step(None, env.init(), action))


def test_batched_actions_without_vmap(env):
    with pytest.raises(ValueError, match=r"use jax\.vmap for several"):
        jax.eval_shape(lambda a: env.step(None, env.init(), a), jnp.zeros(3, jnp.int32))


@pytest.mark.parametrize(("task", "observation"), [("Robertson", "flat"), ("LIF", "packed")])
def test_what_is_no_state_of_this_environment(task, observation):
    env = veenv.make(task, observation=observation)
    obs, state = env.reset()
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    others = [veenv.make(name).init() for name in ("KerrMetric", "mlp")]
    calls = (env.transition, lambda s, a: env.step(None, s, a), lambda s, a: env.observe(s))
    for call in calls:
        with pytest.raises(TypeError, match="expected the State that reset and step return"):
            call(obs, 1)
        with pytest.raises(ValueError, match=r"one episode, got those of \(2,\); use jax.vmap"):
            call(several, 1)
        for other in others:
            with pytest.raises(ValueError, match=r"of another environment: it has \d+ actions"):
                call(other, 1)
    assert jax.vmap(env.transition, (0, None))(several, 1)[1].shape == (2,)


def test_an_agent_that_ignores_the_mask(env):
    @jax.jit
    def play():
        state = env.transition(env.init(), jnp.int32(2))[0]
        return env.transition(state, jnp.int32(2))

    state, reward, info = play()
    assert bool(state.terminated)
    assert bool(info["illegal"])
    assert float(reward) < -max(env.graph.cost(o) for o in (env.graph.forward(),))


def test_functions_instead_of_graphs():
    with pytest.raises(TypeError, match=r"veenv.make_graph\(sin\)\(\*args\)"):
        TaskDistribution.of([jnp.sin])


def test_rewards_that_are_not_normalised():
    with pytest.raises(ValueError, match="expected tasks with normalise=True"):
        agents.train(TaskDistribution.of(["Robertson"]))


def test_observations_that_the_networks_do_not_read():
    tasks = TaskDistribution.of(["Robertson"], normalise=True).observing("packed")
    with pytest.raises(ValueError, match=r"got 'packed': pass env.observing\('adjacency'\)"):
        agents.train(tasks)


def test_one_key_for_a_batch_draws_one_task():
    tasks = TaskDistribution.of(["Robertson", "PropaneCombustion"])
    same = jnp.broadcast_to(jax.random.key(1), (8,))
    split = jax.random.split(jax.random.key(1), 8)
    drawn = jax.jit(jax.vmap(lambda key: tasks.sample(key).vertex_ids[10]))
    assert len(set(drawn(same).tolist())) == 1
    assert len(set(drawn(split).tolist())) == 2


def test_the_order_of_several_episodes(env):
    states = jax.vmap(lambda _: env.init())(jnp.arange(3))
    for read in (env.order, env.final_order):
        with pytest.raises(ValueError, match=r"got those of \(3,\); .* pick episode k"):
            read(states)


@pytest.mark.parametrize("wrap", [veenv.make, GymnaxEnv])
def test_neither_a_task_nor_an_environment(wrap):
    with pytest.raises(TypeError, match=r"expected .*, got 3"):
        wrap(3)


def test_specs_that_do_not_fit(env):
    with pytest.raises(ValueError, match="num_actions of at least 51, got 6"):
        veenv.make("PropaneCombustion", spec=env.spec.padded(num_inputs=99, num_outputs=99))


def test_gymnasium_actions(env):
    envs = GymVectorEnv(2, "Robertson")
    envs.reset()
    with pytest.raises(TypeError, match="actions are integer slots, got dtype float64"):
        envs.step(np.zeros(2))
    with pytest.raises(ValueError, match=r"expected actions of shape \(2,\), got \(3,\)"):
        envs.step(np.zeros(3, int))


@pytest.mark.parametrize("num_envs", ["4", 2.5, None, 0])
def test_numbers_of_environments(num_envs):
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1, got"):
        GymVectorEnv(num_envs, "Robertson")


def test_an_action_of_gymnasium_with_axes():
    env = GymVertexEnv("Robertson")
    env.reset()
    for action in (np.array([0]), np.array([0, 1]), [0], jnp.zeros((1, 1), jnp.int32)):
        with pytest.raises(ValueError, match="an action is one slot, got an array of shape"):
            env.step(action)


@pytest.mark.parametrize("call", [veenv.make, veenv.optimize])
def test_a_function_without_its_arguments(call):
    with pytest.raises(ValueError, match="0 positional arguments: give the arguments at which"):
        call(jnp.sin)


@pytest.mark.parametrize(
    ("ranges", "error", "message"),
    [
        ({"vertices": 20}, ValueError, r"vertices must be a range \(low, high\) .*, got 20"),
        ({"windows": (1, 2, 3)}, ValueError, r"windows must be a range .*, got \(1, 2, 3\)"),
        ({"fan_out": "ab"}, ValueError, r"fan_out must be a range .*, got 'ab'"),
        ({"vertex": (3, 3)}, TypeError, r"have vertices, inputs, .* got \['vertex'\]"),
    ],
)
def test_ranges_of_random_functions(ranges, error, message):
    with pytest.raises(error, match=message):
        TaskDistribution.random(0, 2, **ranges)


def test_no_tasks():
    with pytest.raises(ValueError, match="expected at least one graph or task, got none"):
        veenv.evaluate("cost", [])


def test_an_order_measures_rewards():
    order = veenv.best_order("Robertson")
    shaped, by_ids = (veenv.make("Robertson", shaping=s) for s in (order, order.ids))
    np.testing.assert_array_equal(shaped.default_params.reference, by_ids.default_params.reference)
    with pytest.raises(ValueError, match="order 'Robertson' is for another graph"):
        veenv.make("KerrMetric", shaping=order)


def test_the_page_lists_them():
    section = PAGE.read_text(encoding="utf-8").split("## Mistakes, and what they end in")[1]
    rows = [line for line in section.split("##")[0].splitlines() if line.startswith("| ")]
    assert len(rows) >= 12  # with the heading
