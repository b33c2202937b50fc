"""Every loss against the formula in numpy, step by step."""

import jax
import numpy as np
import pytest

from veenv.agents.ppo import losses

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    weights = (rng.random(50) < 0.7).astype(float)
    names = ("log_prob", "old_log_prob", "advantage", "value", "old_value", "target")
    return {name: rng.normal(size=50) for name in names} | {"weights": weights}


def mean(x, weights):
    return sum(a for a, w in zip(x, weights, strict=True) if w) / weights.sum()


def test_clipped_policy_loss(data):
    given, terms = [data[name] for name in ("log_prob", "old_log_prob", "advantage")], []
    for new, old, advantage in zip(*given, strict=True):
        ratio = np.exp(new) / np.exp(old)
        terms.append(-min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage))
    found = losses.clipped_policy_loss(*given, data["weights"], 0.2)
    np.testing.assert_allclose(found, mean(terms, data["weights"]), rtol=1e-12)


def test_policy_gradient_vanishes_where_the_ratio_is_clipped():
    def loss(log_prob, advantage):
        one = np.ones(1)
        return losses.clipped_policy_loss(log_prob[None], np.zeros(1), advantage * one, one, 0.2)

    slope = jax.grad(loss)
    assert slope(np.log(1.5), 1.0) == 0.0  # already likelier, and good
    assert slope(np.log(0.5), -1.0) == 0.0  # already less likely, and bad
    np.testing.assert_allclose(slope(np.log(1.5), -1.0), 1.5)
    np.testing.assert_allclose(slope(np.log(0.5), 1.0), -0.5)
    np.testing.assert_allclose(slope(np.log(1.0), 1.0), -1.0)


def test_clipped_value_loss(data):
    given, terms = [data[name] for name in ("value", "old_value", "target")], []
    for value, old, target in zip(*given, strict=True):
        near = min(max(value, old - 0.3), old + 0.3)
        terms.append(0.5 * max((value - target) ** 2, (near - target) ** 2))
    found = losses.clipped_value_loss(*given, data["weights"], 0.3)
    np.testing.assert_allclose(found, mean(terms, data["weights"]), rtol=1e-12)


def test_approximate_kl_is_the_k3_estimator(data):
    ratio = np.exp(data["log_prob"] - data["old_log_prob"])
    found = losses.approximate_kl(data["log_prob"], data["old_log_prob"], data["weights"])
    np.testing.assert_allclose(found, mean(ratio - 1 - np.log(ratio), data["weights"]), rtol=1e-12)
    assert losses.approximate_kl(data["log_prob"], data["log_prob"], data["weights"]) == 0.0


def test_clip_fraction(data):
    ratio = np.exp(data["log_prob"] - data["old_log_prob"])
    outside = [float(r > 1.2 or r < 0.8) for r in ratio]
    found = losses.clip_fraction(data["log_prob"], data["old_log_prob"], data["weights"], 0.2)
    np.testing.assert_allclose(found, mean(outside, data["weights"]), rtol=1e-12)


def test_explained_variance(data):
    kept = data["weights"] == 1
    target, value = data["target"][kept], data["value"][kept]
    expected = 1 - np.var(target - value) / np.var(target)
    found = losses.explained_variance(data["value"], data["target"], data["weights"])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    perfect = losses.explained_variance(data["target"], data["target"], data["weights"])
    np.testing.assert_allclose(perfect, 1.0)
