"""The one-file PPO of the examples, in the style of purejaxrl, on the gymnax-style adapter."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import veenv

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("promotion")]

FILE = Path(__file__).parents[2] / "docs" / "examples" / "ppo_one_file.py"


@pytest.fixture
def example(monkeypatch):
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("ppo_one_file", FILE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ppo_one_file", module)
    spec.loader.exec_module(module)
    return module


def test_every_return_is_the_cost_of_its_order(example):
    env, updates, num_envs = veenv.make("Robertson", normalise=True), 3, 4
    begin, train = example.make_train("Robertson", num_envs, updates)
    first, rest = jax.random.split(jax.random.key(0))
    _, episodes = jax.device_get(jax.jit(lambda: train(begin(first), rest))())
    assert episodes.total.shape == (updates, num_envs)
    costs = [env.graph.cost(order.tolist()) for order in episodes.order.reshape(-1, 6)]
    assert costs == episodes.total.reshape(-1).tolist()
    scale = float(env.default_params.scale)
    np.testing.assert_allclose(-episodes.earned.reshape(-1) * scale, costs, rtol=1e-6)
    assert len(set(costs)) > 1
