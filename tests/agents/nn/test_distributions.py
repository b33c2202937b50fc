"""The masked categorical against a softmax over the legal actions alone."""

import jax
import jax.numpy as jnp
import numpy as np

from veenv.agents.nn.distributions import log_prob_and_entropy, sample

LOGITS = jnp.array([0.3, -1.0, 2.0, 0.5, 5.0])
MASK = jnp.array([True, False, True, True, False])


def legal_softmax():
    chosen = np.asarray(LOGITS, np.float64)[np.asarray(MASK)]
    return np.exp(chosen) / np.exp(chosen).sum()


def test_log_prob_and_entropy():
    p = legal_softmax()
    for action, probability in zip((0, 2, 3), p, strict=True):
        log_prob, entropy = log_prob_and_entropy(LOGITS, MASK, jnp.int32(action))
        np.testing.assert_allclose(log_prob, np.log(probability), rtol=1e-5)
        np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(), rtol=1e-5)


def test_samples_are_legal_and_distributed_right():
    keys = jax.random.split(jax.random.key(0), 20_000)
    actions, log_probs = jax.vmap(lambda k: sample(LOGITS, MASK, k))(keys)
    counts = np.bincount(np.asarray(actions), minlength=5) / 20_000
    assert counts[1] == counts[4] == 0
    np.testing.assert_allclose(counts[[0, 2, 3]], legal_softmax(), atol=0.015)
    again, _ = jax.vmap(lambda a: log_prob_and_entropy(LOGITS, MASK, a))(actions)
    np.testing.assert_allclose(log_probs, again, rtol=1e-6)


def test_gradients_are_finite_and_miss_illegal_actions():
    def loss(logits):
        log_prob, entropy = log_prob_and_entropy(logits, MASK, jnp.int32(0))
        return log_prob + entropy

    gradient = np.asarray(jax.grad(loss)(LOGITS))
    assert np.isfinite(gradient).all()
    assert gradient[1] == gradient[4] == 0.0
    assert np.all(gradient[[0, 2, 3]] != 0.0)


def test_no_legal_action_is_uniform_and_finite():
    nothing = jnp.zeros(5, bool)
    log_prob, entropy = log_prob_and_entropy(LOGITS, nothing, jnp.int32(4))
    np.testing.assert_allclose(log_prob, -np.log(5), rtol=1e-5)
    np.testing.assert_allclose(entropy, np.log(5), rtol=1e-5)
