"""Masked categorical distribution over vertices: the one place that knows distrax."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

with warnings.catch_warnings():  # of what its tensorflow-probability reads of JAX
    warnings.filterwarnings("ignore", "jax.core.* is deprecated", DeprecationWarning)
    import distrax

# Finite, so that a probability of zero makes no NaN in a gradient.
MASKED_LOGIT = -1e9


def masked_categorical(
    logits: Float[Array, "*n A"], mask: Bool[Array, "*n A"]
) -> distrax.Categorical:
    """Categorical distribution that gives illegal actions probability zero.

    A row without any legal action (an episode that is over) is uniform.

    Args:
      logits: unnormalised log-probabilities, float32 [..., A].
      mask: True where an action is legal, bool [..., A].

    Returns:
      The distribution, of batch shape [...].

    Examples:
      >>> masked_categorical(jnp.zeros(3), jnp.array([True, True, False])).probs.tolist()
      [0.5, 0.5, 0.0]
    """
    return distrax.Categorical(logits=jnp.where(mask, logits, MASKED_LOGIT))


def sample(
    logits: Float[Array, "*n A"], mask: Bool[Array, "*n A"], key: PRNGKeyArray
) -> tuple[Int[Array, " *n"], Float[Array, " *n"]]:
    """Draws legal actions.

    Args:
      logits: unnormalised log-probabilities, float32 [..., A].
      mask: True where an action is legal, bool [..., A].
      key: typed PRNG key.

    Returns:
      The actions, int32 [...], and their log-probabilities, float32 [...].

    Examples:
      >>> import jax
      >>> mask = jnp.array([False, True, False])
      >>> action, log_prob = sample(jnp.zeros(3), mask, jax.random.key(0))
      >>> int(action), float(log_prob)
      (1, 0.0)
    """
    return choose(logits, mask, jax.random.gumbel(key, logits.shape, logits.dtype))


def choose(
    logits: Float[Array, "*n A"], mask: Bool[Array, "*n A"], noise: Float[Array, "*n A"]
) -> tuple[Int[Array, " *n"], Float[Array, " *n"]]:
    """Draws legal actions with noise that has been drawn before: `sample` without its key.

    Args:
      logits: unnormalised log-probabilities, float32 [..., A].
      mask: True where an action is legal, bool [..., A].
      noise: of Gumbel's distribution, float32 [..., A].

    Returns:
      The actions, int32 [...], and their log-probabilities, float32 [...].

    Examples:
      >>> action, log_prob = choose(jnp.zeros(2), jnp.array([True, True]), jnp.array([0.0, 1.0]))
      >>> int(action), round(float(log_prob), 4)
      (1, -0.6931)
    """
    masked = jnp.where(mask, logits, MASKED_LOGIT)
    action = jnp.argmax(masked + noise, axis=-1).astype(jnp.int32)
    chosen = jnp.take_along_axis(masked, action[..., None], -1)[..., 0]
    return action, chosen - jax.nn.logsumexp(masked, axis=-1)


def log_prob_and_entropy(
    logits: Float[Array, "*n A"], mask: Bool[Array, "*n A"], action: Int[Array, " *n"]
) -> tuple[Float[Array, " *n"], Float[Array, " *n"]]:
    """Log-probabilities of given actions, and the entropies, float32 [...] both.

    Args:
      logits: unnormalised log-probabilities, float32 [..., A].
      mask: True where an action is legal, bool [..., A].
      action: legal actions, int32 [...].

    Examples:
      >>> mask = jnp.array([True, True, False])
      >>> log_prob, entropy = log_prob_and_entropy(jnp.zeros(3), mask, jnp.array(1))
      >>> round(float(log_prob), 4), round(float(entropy), 4)  # -log 2 and log 2
      (-0.6931, 0.6931)
    """
    distribution = masked_categorical(logits, mask)
    return jnp.asarray(distribution.log_prob(action)), jnp.asarray(distribution.entropy())
