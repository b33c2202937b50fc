"""Masked categorical distribution over vertices: the one place that knows distrax."""

from __future__ import annotations

import distrax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

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
    """
    return distrax.Categorical(logits=jnp.where(mask, logits, MASKED_LOGIT))


def sample(
    logits: Float[Array, "*n A"], mask: Bool[Array, "*n A"], key: PRNGKeyArray
) -> tuple[Int[Array, " *n"], Float[Array, " *n"]]:
    """Draws legal actions.

    Returns:
      The actions, int32 [...], and their log-probabilities, float32 [...].
    """
    action, log_prob = masked_categorical(logits, mask).sample_and_log_prob(seed=key)
    return jnp.asarray(action), jnp.asarray(log_prob)


def log_prob_and_entropy(
    logits: Float[Array, "*n A"], mask: Bool[Array, "*n A"], action: Int[Array, " *n"]
) -> tuple[Float[Array, " *n"], Float[Array, " *n"]]:
    """Log-probabilities of given actions, and the entropies, float32 [...] both."""
    distribution = masked_categorical(logits, mask)
    return jnp.asarray(distribution.log_prob(action)), jnp.asarray(distribution.entropy())
