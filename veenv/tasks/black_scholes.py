"""Price of a European call option.

Source: F. Black, M. Scholes, "The pricing of options and corporate liabilities", J. Political
Economy 81 (1973) 637; in the form on the forward price (Black 1976); arXiv 2406.05027.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from veenv.tasks.task import Scalar, Task


def _normal_cdf(z: Scalar) -> Scalar:
    return (1.0 + lax.erf(z / math.sqrt(2.0))) / 2.0


def black_scholes(S: Scalar, K: Scalar, r: Scalar, sigma: Scalar, T: Scalar) -> Scalar:
    """Price of a European call.

    Args:
        S: Price of the asset.
        K: Strike price.
        r: Interest rate, per year.
        sigma: Volatility, per square root of a year.
        T: Time to maturity in years.

    Returns:
        The price of the option.
    """
    F = jnp.exp(r * T) * S
    d1 = (jnp.log(F / K) + sigma**2 / 2.0 * T) / (sigma * jnp.sqrt(T))
    d2 = d1 - sigma * jnp.sqrt(T)
    return jnp.exp(-r * T) * (F * _normal_cdf(d1) - K * _normal_cdf(d2))


TASKS = (
    Task(
        name="BlackScholes",
        fun=black_scholes,
        example_args=lambda: tuple(np.array(x) for x in (1.1, 1.0, 0.05, 0.3, 1.4)),
        argnums=(0, 1, 2, 3, 4),
        description="Price of a European call, 5 scalars to 1.",
        source="Black and Scholes 1973; Black 1976; arXiv 2406.05027",
    ),
)
