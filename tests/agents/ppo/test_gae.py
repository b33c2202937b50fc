"""Advantages against the definition, written out in loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.agents.ppo.gae import generalized_advantages, normalize

ENDS = np.zeros((7, 3))
ENDS[3, :2] = 1


def advantages_by_definition(rewards, values, gamma, gae_lambda, ends):
    steps, batch = rewards.shape
    result = np.zeros((steps, batch))
    for b in range(batch):
        for t in range(steps):
            for k in range(t, steps):
                following = values[k + 1, b] if k + 1 < steps and not ends[k, b] else 0.0
                delta = rewards[k, b] + gamma * following - values[k, b]
                result[t, b] += (gamma * gae_lambda) ** (k - t) * delta
                if ends[k, b]:
                    break
    return result


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("ends", [None, ENDS], ids=["whole", "parts"])
@pytest.mark.usefixtures("x64")
def test_definition(gamma, gae_lambda, ends):
    """Of whole episodes, and of some that end on the way."""
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 7, 3))
    options = gamma, gae_lambda
    advantages, targets = jax.jit(generalized_advantages)(rewards, values, *options, ends)
    cuts = np.zeros((7, 3)) if ends is None else ends
    expected = advantages_by_definition(rewards, values, *options, cuts)
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
