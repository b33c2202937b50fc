"""Every step on scalar graphs agrees with an eliminator made of sets."""

import itertools

import jax
import numpy as np
import pytest

from tests.env.games import kept_outputs, play, small_graph, with_units
from tests.sampling import spared
from veenv.env import VertexEnv
from veenv.graph.graph import COST_MODELS
from veenv.graph.linearisation import make_graph


@pytest.mark.parametrize(
    ("fun", "cost"),
    spared(
        itertools.product((kept_outputs, with_units), COST_MODELS),
        (kept_outputs, "multiplications"),
        (with_units, "operations"),
    ),
)
def test_every_order_of_small_functions(fun, cost):
    graph = small_graph(fun)
    env = VertexEnv(graph, cost)
    step = jax.jit(env.step)
    rng = np.random.default_rng(1)
    for _ in range(10):
        play(env, graph, env.default_params, rng, step=step)


def test_a_graph_without_moves_ends_at_once():
    env = VertexEnv(make_graph(lambda x: 2.0 * x)(1.0))
    _, state = jax.jit(env.reset)()
    assert env.num_actions == 1
    assert env.max_steps == 0
    assert state.terminated
    assert not state.action_mask.any()
    state, reward, info = jax.jit(env.transition)(state, 0)
    assert float(reward) == 0.0
    assert not info["illegal"]
