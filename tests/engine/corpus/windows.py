"""Convolutions and pooling windows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import signal

from tests.engine.corpus.case import case, distinct, normal

IMAGE = normal(1, 2, 4, 5)
KERNEL = normal(3, 2, 2, 2)
WIDE = distinct(2, 6)


def _conv(x, k, strides=(1, 1), padding="VALID", **kwargs):
    return lax.conv_general_dilated(x, k, strides, padding, **kwargs)


def _pool(x, start, reducer, window=(1, 3), strides=(1, 2), padding="VALID", **kwargs):
    return lax.reduce_window(x, start, reducer, window, strides, padding, **kwargs)


def _max_pool(x):
    return _pool(x, -jnp.inf, lax.max)


def _of_products(_, argnums):
    """JAX's Jacobian of windows of products; it cannot batch its own rule for the primitive."""
    return jax.jacrev(lambda x: jnp.stack([x[:, i : i + 3].prod(1) for i in (0, 2)], 1), argnums)


CONVOLUTIONS = [
    case("both_operands", _conv, IMAGE, KERNEL, argnums=(0, 1)),
    case("same_padding_strides", lambda x, k: jnp.sin(_conv(x * x, k, (2, 1), "SAME")), IMAGE,
        KERNEL, argnums=(0, 1)),
    case("dilations", lambda x, k: _conv(x, k, padding=((1, 1), (0, 1)), lhs_dilation=(2, 1),
        rhs_dilation=(1, 2)), IMAGE, KERNEL, argnums=(0, 1)),
    case("groups", lambda x, k: _conv(x, k, feature_group_count=2) ** 2, IMAGE, normal(4, 1, 2, 2),
        argnums=(0, 1)),
    case("batch_groups", lambda x, k: _conv(x, k, batch_group_count=2), normal(2, 2, 3, 3),
        normal(2, 2, 2, 2), argnums=(0, 1)),
    case("channels_last", lambda x, k: _conv(x, k, dimension_numbers=("NHWC", "HWIO", "NHWC")),
        normal(1, 4, 3, 2), normal(2, 2, 2, 3), argnums=(0, 1)),
    case("constant_kernel", lambda x: jnp.tanh(_conv(x, KERNEL)), IMAGE),
    case("transposed", lambda x: lax.conv_transpose(x, normal(2, 2, 2, 3), (2, 2), "SAME") ** 2,
        normal(1, 2, 2, 2)),
    case("patches", lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "VALID") ** 2,
        normal(1, 2, 3, 3)),
    case("local", lambda x, k: lax.conv_general_dilated_local(x, k, (1, 1), "VALID", (2, 2)),
        normal(1, 1, 3, 3), normal(2, 4, 2, 2), argnums=(0, 1)),
    case("one_dimension", lambda v: jnp.convolve(v, v[:3] ** 2, "same"), normal(5)),
    case("correlate", lambda v, k: jnp.correlate(jnp.exp(v), k, "full"), normal(4), normal(2),
        argnums=(0, 1)),
    case("convolve2d", lambda x, k: signal.convolve2d(x, k, "same") * x, normal(3, 3),
        normal(2, 2), argnums=(0, 1)),
]  # fmt: skip

POOLING = [
    case("average", lambda x: _pool(x * x, 0.0, lax.add) / 3 * x[:, :2], WIDE),
    case("maximum", lambda x: _max_pool(x * 1.2) ** 2, WIDE),
    case("minimum", lambda x: _pool(x, jnp.inf, lax.min, padding="SAME") * 2, WIDE),
    case("maximum_ties", _max_pool, np.array([[1.0, 1.0, 0.5, 2.0, 2.0]])),
    case("dilated_sum", lambda x: _pool(x * x, 0.0, lax.add, window_dilation=(1, 2)), WIDE),
    case("product", lambda x: _pool(x, 1.0, lax.mul), WIDE, oracle=_of_products),
    case("gradient_of_max_pool", jax.grad(lambda x: jnp.sum(_max_pool(x) ** 3)), WIDE),
    case("derivative_of_max_pool", lambda x: jax.jvp(_max_pool, (x,), (x * x,))[1], WIDE),
    case(
        "gradient_of_average_pool", jax.grad(lambda x: jnp.sum(_pool(x, 0.0, lax.add) ** 3)), WIDE
    ),
    case("global_average", lambda x: x.mean((2, 3)) @ x.mean((2, 3)).T, IMAGE),
]
