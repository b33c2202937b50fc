"""The PPO losses: clipped policy loss, clipped value loss, entropy, approximate KL.

Schulman et al. (2017), "Proximal policy optimization algorithms", equations 7 and 9; the clipped
value loss is the one of the reference implementation.  Every function takes per-step arrays and
weights (1: the step counts, 0: padding) and returns a weighted mean.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from veenv.agents.devices import over_devices


def weighted_mean(x: Float[Array, " *n"], weights: Float[Array, " *n"]) -> Float[Array, ""]:
    """Mean over the entries with weight 1; zero if there are none.

    Where devices have shares of the entries (`Placement.apart`), a device's share of the mean.

    Args:
      x: values, float32.
      weights: 1 for entries that count, 0 for the rest; the shape of `x`.

    Examples:
      >>> float(weighted_mean(jnp.array([1.0, 3.0, 100.0]), jnp.array([1.0, 1.0, 0.0])))
      2.0
    """
    return (x * weights).sum() / jnp.maximum(over_devices(weights.sum()), 1.0)


def clipped_policy_loss(
    log_prob: Float[Array, " N"],
    old_log_prob: Float[Array, " N"],
    advantage: Float[Array, " N"],
    weights: Float[Array, " N"],
    clip_eps: float,
) -> Float[Array, ""]:
    """Negative clipped surrogate: -min(r A, clip(r, 1 - ε, 1 + ε) A), r = π / π_old.

    Args:
      log_prob: of the action taken, under the policy being trained, float32 [N].
      old_log_prob: the same under the policy that acted, float32 [N].
      advantage: float32 [N].
      weights: float32 [N].
      clip_eps: ε.

    Examples:
      >>> one = jnp.ones(1)
      >>> float(clipped_policy_loss(jnp.log(2 * one), 0 * one, one, one, clip_eps=0.25))
      -1.25
    """
    ratio = jnp.exp(log_prob - old_log_prob)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -weighted_mean(jnp.minimum(ratio * advantage, clipped * advantage), weights)


def clipped_value_loss(
    value: Float[Array, " N"],
    old_value: Float[Array, " N"],
    target: Float[Array, " N"],
    weights: Float[Array, " N"],
    clip_eps: float,
) -> Float[Array, ""]:
    """Half the larger of the squared errors of V and of V clipped to within ε of the old value.

    Args:
      value: the critic being trained, float32 [N].
      old_value: the critic when the steps were taken, float32 [N].
      target: float32 [N].
      weights: float32 [N].
      clip_eps: ε, in units of value.

    Examples:
      >>> one = jnp.ones(1)
      >>> float(clipped_value_loss(one, 0 * one, target=one, weights=one, clip_eps=0.5))
      0.125
    """
    clipped = old_value + jnp.clip(value - old_value, -clip_eps, clip_eps)
    error = jnp.maximum(jnp.square(value - target), jnp.square(clipped - target))
    return 0.5 * weighted_mean(error, weights)


def approximate_kl(
    log_prob: Float[Array, " N"], old_log_prob: Float[Array, " N"], weights: Float[Array, " N"]
) -> Float[Array, ""]:
    """Estimate of KL(π_old ‖ π) that is never negative: mean of (r - 1) - log r.

    Schulman (2020), "Approximating KL divergence", estimator k3.

    Args:
      log_prob: of the action taken, under the policy being trained, float32 [N].
      old_log_prob: the same under the policy that acted, float32 [N].
      weights: float32 [N].

    Examples:
      >>> one = jnp.ones(1)
      >>> round(float(approximate_kl(jnp.log(2 * one), 0 * one, one)), 4)  # 2 - 1 - log 2
      0.3069
    """
    log_ratio = log_prob - old_log_prob
    return weighted_mean(jnp.expm1(log_ratio) - log_ratio, weights)


def clip_fraction(
    log_prob: Float[Array, " N"],
    old_log_prob: Float[Array, " N"],
    weights: Float[Array, " N"],
    clip_eps: float,
) -> Float[Array, ""]:
    """Share of the steps whose ratio lies outside 1 ± ε.

    Args:
      log_prob: of the action taken, under the policy being trained, float32 [N].
      old_log_prob: the same under the policy that acted, float32 [N].
      weights: float32 [N].
      clip_eps: ε.

    Examples:
      >>> log_prob = jnp.log(jnp.array([1.0, 1.1, 0.5, 2.0]))
      >>> float(clip_fraction(log_prob, jnp.zeros(4), jnp.ones(4), clip_eps=0.25))
      0.5
    """
    outside = jnp.abs(jnp.exp(log_prob - old_log_prob) - 1.0) > clip_eps
    return weighted_mean(outside.astype(weights.dtype), weights)


def explained_variance(
    value: Float[Array, " N"], target: Float[Array, " N"], weights: Float[Array, " N"]
) -> Float[Array, ""]:
    """1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 a constant one.

    Args:
      value: the critic, float32 [N].
      target: float32 [N].
      weights: float32 [N].

    Examples:
      >>> target = jnp.array([1.0, 2.0, 3.0])
      >>> [float(explained_variance(value, target, jnp.ones(3))) for value in (target, jnp.ones(3))]
      [1.0, 0.0]
    """

    def variance(x: Array) -> Array:
        return weighted_mean(jnp.square(x - weighted_mean(x, weights)), weights)

    return 1.0 - variance(target - value) / jnp.maximum(variance(target), 1e-12)
