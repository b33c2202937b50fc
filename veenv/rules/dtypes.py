"""What a dtype means for derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


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


def real_shape(aval: Any, *, realify: bool) -> tuple[int, ...]:
    """Shape of a variable seen as real numbers."""
    return (*aval.shape, 2) if realify and is_complex(aval) else tuple(aval.shape)


def to_real(x: Array) -> Array:
    """A complex array as real numbers with a last axis of two; real arrays pass."""
    return jnp.stack([x.real, x.imag], axis=-1) if jnp.iscomplexobj(x) else x


def from_real(x: Array, aval: Any) -> Array:
    """The inverse of `to_real`, in the dtype of a variable."""
    if is_complex(aval) and not jnp.iscomplexobj(x):
        x = jax.lax.complex(x[..., 0], x[..., 1])
    return x.astype(aval.dtype)
