"""What is refused, and what the refusal says to pass instead."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv.env import Spec, TaskDistribution, VertexEnv


def f(x):
    return jnp.sin(jnp.exp(x)) * x


@pytest.fixture(scope="module")
def env():
    return veenv.make(f, 1.0)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: veenv.make("RobotArm_6DOF").default_params, r"vertex_ids .*\(108,\).*\(2,\)"),
        (lambda: veenv.make(lambda x: x * jnp.sin(x), jnp.ones(3)).default_params, "vertex_ids"),
        (lambda: veenv.make(lambda x, y: f(x) * y, 1.0, 1.0, argnums=(0, 1)).default_params, ""),
        (lambda: TaskDistribution.of([veenv.make_graph(f)(1.0)] * 2).params, "pick_params"),
    ],
)
def test_params_of_another_spec_say_so(env, other, message):
    params = other()
    for call in (
        lambda: env.reset(None, params),
        lambda: env.step(None, env.init(), 0, params),
        lambda: jax.jit(env.reset)(None, params),
    ):
        with pytest.raises(ValueError, match=f"params are of another Spec: .*{message}"):
            call()


def test_params_with_other_rewards_are_welcome(env):
    shaped = veenv.make(f, 1.0, shaping="reverse", normalise=True)
    _, reward, _ = env.transition(env.init(), 0, shaped.default_params)
    assert float(reward) == float(shaped.transition(shaped.init(), 0)[1])
    with pytest.raises(ValueError, match="these params have no reference"):
        shaped.transition(shaped.init(), 0, env.default_params)  # its rewards would be others
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[env.default_params] * 3)
    assert jax.vmap(env.init)(stacked).cost.shape == (3,)
    padded = VertexEnv(env.graph, spec=Spec.of(env.graph, "multiplications").padded(num_actions=5))
    assert padded.init(padded.encode(env.graph)).action_mask.shape == (5,)


@pytest.mark.parametrize("task", [f, np.sin, lambda x: x])
def test_functions_where_graphs_are_needed(task):
    message = (
        r"expected a task's name or a graph, got the function .*veenv.make_graph\(\w+\)\(\*args"
    )
    with pytest.raises(TypeError, match=message):
        TaskDistribution.of([task])
    with pytest.raises(TypeError, match=message):
        TaskDistribution.of(["RoeFlux_1d", task])
    with pytest.raises(TypeError, match=message):
        gymnasium.make("veenv/RoeFlux_1d-v0", task=task)
    with pytest.raises(TypeError, match=message):
        gymnasium.make_vec("veenv/RoeFlux_1d-v0", num_envs=2, task=task)


def test_other_things_where_graphs_are_needed():
    with pytest.raises(TypeError, match="expected a task's name or a graph, got int: 3"):
        TaskDistribution.of([3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="expected a task's name or a graph, got int: 7"):
        gymnasium.make("veenv/RoeFlux_1d-v0", task=7)
