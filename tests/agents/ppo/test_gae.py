"""Advantages against the definition, written out in loops."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.agents.ppo.gae import generalized_advantages, normalize


def advantages_by_definition(rewards, values, gamma, gae_lambda):
    steps, batch = rewards.shape
    result = np.zeros((steps, batch))
    for b in range(batch):
        for t in range(steps):
            for k in range(t, steps):
                following = values[k + 1, b] if k + 1 < steps else 0.0
                delta = rewards[k, b] + gamma * following - values[k, b]
                result[t, b] += (gamma * gae_lambda) ** (k - t) * delta
    return result


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
@pytest.mark.usefixtures("x64")
def test_definition(gamma, gae_lambda):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 7, 3))
    advantages, targets = jax.jit(generalized_advantages)(rewards, values, gamma, gae_lambda)
    expected = advantages_by_definition(rewards, values, gamma, gae_lambda)
    np.testing.assert_allclose(advantages, expected, rtol=1e-12)
    np.testing.assert_allclose(targets, expected + values, rtol=1e-12)


def test_normalize_looks_at_weighted_entries_only():
    x = jnp.array([1.0, 3.0, 100.0, 5.0])
    weights = jnp.array([1.0, 1.0, 0.0, 1.0])
    kept = np.array([1.0, 3.0, 5.0])
    expected = (kept - kept.mean()) / kept.std()
    result = np.asarray(normalize(x, weights))
    np.testing.assert_allclose(result[[0, 1, 3]], expected, rtol=1e-6)
    assert result[2] == 0.0


def test_episodes_that_end_on_the_way_are_apart():
    rewards, values = np.random.default_rng(1).normal(size=(2, 7, 3)).astype(np.float32)
    ends = np.zeros((7, 3), np.float32)
    ends[3, :2] = 1
    found = generalized_advantages(rewards, values, 0.9, 0.7, ends)
    for k, cuts in enumerate(([0, 4, 7], [0, 4, 7], [0, 7])):
        for start, stop in pairwise(cuts):
            part = slice(start, stop), slice(k, k + 1)
            alone = generalized_advantages(rewards[part], values[part], 0.9, 0.7)
            for x, y in zip(found, alone, strict=True):
                np.testing.assert_allclose(x[part], y, atol=1e-6)
