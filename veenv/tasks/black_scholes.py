"""Price of a European call option, and its first-order greeks.

Source: F. Black, M. Scholes, "The pricing of options and corporate liabilities", J. Political
Economy 81 (1973) 637; in the form on the forward price (Black 1976); arXiv 2406.05027.
"""

import math

import jax.numpy as jnp
from jax import lax

from veenv.tasks.task import Scalar, Task


def _normal_cdf(z: Scalar) -> Scalar:
    return (1.0 + lax.erf(z / math.sqrt(2.0))) / 2.0


def call_price(S: Scalar, K: Scalar, r: Scalar, sigma: Scalar, T: Scalar) -> Scalar:
    """Price of a European call.

    Args:
      S: price of the asset.
      K: strike price.
      r: interest rate, per year.
      sigma: volatility, per square root of a year.
      T: time to maturity in years.

    Returns:
      The price of the option.
    """
    F = jnp.exp(r * T) * S
    d1 = (jnp.log(F / K) + sigma**2 / 2.0 * T) / (sigma * jnp.sqrt(T))
    d2 = d1 - sigma * jnp.sqrt(T)
    return jnp.exp(-r * T) * (F * _normal_cdf(d1) - K * _normal_cdf(d2))


def black_scholes_jacobian(
    S: Scalar, K: Scalar, r: Scalar, sigma: Scalar, T: Scalar
) -> tuple[Scalar, ...]:
    """First-order greeks: the price's Jacobian by ``veenv.jacve`` in reverse.

    Args:
      S: price of the asset.
      K: strike price.
      r: interest rate, per year.
      sigma: volatility, per square root of a year.
      T: time to maturity in years.

    Returns:
      The derivatives of the price by each of the five arguments.
    """
    # Imported late: no other task needs the engine.
    from veenv.engine.api import jacve

    # Every value is pinned, so that the graph of the task depends on no thresholds.
    return jacve(call_price, "reverse", (0, 1, 2, 3, 4), pin=True)(S, K, r, sigma, T)


_POINT = (1.1, 1.0, 0.05, 0.3, 1.4)
_SOURCE = "Black and Scholes 1973; Black 1976; arXiv 2406.05027"

TASKS = (
    Task.at(
        "BlackScholes",
        call_price,
        _POINT,
        "Price of a European call, 5 scalars to 1.",
        _SOURCE,
    ),
    Task.at(
        "BlackScholes_Jacobian",
        black_scholes_jacobian,
        _POINT,
        "First-order greeks of a European call by jacve: its Jacobian is second-order.",
        _SOURCE,
    ),
)
