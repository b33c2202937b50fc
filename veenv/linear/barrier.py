"""Keeping the compiler from computing an expensive value more than once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from veenv import _compat

EXPENSIVE = frozenset(
    "acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh digamma div erf "
    "erf_inv erfc exp exp2 expm1 igamma igammac lgamma log log1p logistic pow rsqrt sin sinh sqrt "
    "tan tanh".split()
)
"""Primitives whose results cost far more to compute than to move through memory."""


def pin(value: Any) -> Any:
    """Keeps the compiler from computing a value again in each place that uses it.

    A Jacobian's many outputs become many fused loops, and the compiler would rather repeat a sine
    in each of them than store it.  Outside a trace there is nothing to keep.

    Args:
      value: an array of any shape and dtype.

    Returns:
      The same array.
    """
    if _compat.is_traced(value) and jnp.issubdtype(value.dtype, jnp.inexact):
        return jax.lax.optimization_barrier(value)
    return value
