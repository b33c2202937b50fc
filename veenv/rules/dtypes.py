"""What a dtype means for derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def is_differentiable(aval: Any) -> bool:
    """Whether a variable of this type has a tangent space other than float0."""
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def is_complex(aval: Any) -> bool:
    """Whether a variable is complex."""
    return jnp.issubdtype(aval.dtype, jnp.complexfloating)


def is_key(x: Any) -> bool:
    """Whether an array, or what is known of one, holds keys of random numbers: none of NumPy's."""
    dtype = getattr(x, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
