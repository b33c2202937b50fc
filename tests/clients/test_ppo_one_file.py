"""The one-file PPO of the examples, in the style of purejaxrl, on the gymnax-style adapter."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import veenv
from tests.docs.pages import example

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("promotion")]


def test_every_return_is_the_cost_of_its_order():
    env, updates, num_envs = veenv.make("Robertson", normalise=True), 3, 4
    begin, train = example("ppo_one_file").make_train("Robertson", num_envs, updates)
    first, rest = jax.random.split(jax.random.key(0))
    _, episodes = jax.device_get(jax.jit(lambda: train(begin(first), rest))())
    assert episodes.total.shape == (updates, num_envs)
    costs = [env.graph.cost(order.tolist()) for order in episodes.order.reshape(-1, 6)]
    assert costs == episodes.total.reshape(-1).tolist()
    scale = float(env.default_params.scale)
    np.testing.assert_allclose(-episodes.earned.reshape(-1) * scale, costs, rtol=1e-6)
    assert len(set(costs)) > 1
