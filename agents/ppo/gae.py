"""Generalised advantage estimation for whole episodes of fixed length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def generalized_advantages(
    rewards: Float[Array, "T B"],
    values: Float[Array, "T B"],
    gamma: float = 1.0,
    gae_lambda: float = 1.0,
    ends: Float[Array, "T B"] | None = None,
) -> tuple[Float[Array, "T B"], Float[Array, "T B"]]:
    """Advantages and value targets of episodes, of which the last ones end with step T.

    Schulman et al. (2016), "High-dimensional continuous control using generalized advantage
    estimation", equation 16: A_t = sum_k (γλ)^k δ_{t+k} with δ_t = r_t + γ V_{t+1} - V_t.
    An episode is all eliminations of a graph, so the value after the last step is exactly zero
    and nothing is bootstrapped.

    Args:
      rewards: float32 [T, B].
      values: the critic's estimate before each step, float32 [T, B].
      gamma: discount; 1 because the sum of costs is what is minimised.
      gae_lambda: λ in [0, 1]; 1 gives Monte-Carlo returns minus the baseline.
      ends: 1 where an episode ends before the last step, too, float32 [T, B].

    Returns:
      Advantages and value targets (advantages + values), both float32 [T, B].

    Examples:
      >>> rewards = jnp.array([[-1.0], [-2.0]])
      >>> advantages, targets = generalized_advantages(rewards, jnp.full((2, 1), -2.5))
      >>> advantages.ravel().tolist(), targets.ravel().tolist()
      ([-0.5, 0.5], [-3.0, -2.0])
    """
    following = jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])
    goes_on = jnp.ones_like(values) if ends is None else 1.0 - ends
    deltas = rewards + gamma * goes_on * following - values

    def backward(carry: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, goes_on = x
        carry = delta + gamma * gae_lambda * goes_on * carry
        return carry, carry

    steps = deltas, goes_on
    _, advantages = jax.lax.scan(backward, jnp.zeros_like(deltas[0]), steps, reverse=True)
    return advantages, advantages + values


def normalize(
    x: Float[Array, " *n"], weights: Float[Array, " *n"], eps: float = 1e-8
) -> Float[Array, " *n"]:
    """Shifts and scales to mean 0 and standard deviation 1 over the weighted entries.

    Args:
      x: values, float32.
      weights: 1 for entries that count, 0 for the rest; the shape of `x`.
      eps: added to the standard deviation.

    Returns:
      float32, the shape of `x`; 0 where the weight is 0.

    Examples:
      >>> normalize(jnp.array([1.0, 3.0, 100.0]), jnp.array([1.0, 1.0, 0.0])).tolist()
      [-1.0, 1.0, 0.0]
    """
    total = jnp.maximum(weights.sum(), 1.0)
    mean = (x * weights).sum() / total
    variance = (jnp.square(x - mean) * weights).sum() / total
    return (x - mean) / (jnp.sqrt(variance) + eps) * weights
