"""Attention networks with their losses: an encoder and an encoder-decoder.

Source: Vaswani et al., "Attention is all you need", arXiv 1706.03762; the encoder in the small
form of Lohoff and Neftci, arXiv 2406.05027. Columns are positions, rows are features.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from veenv.tasks.networks import layer_norm, softmax_cross_entropy
from veenv.tasks.task import Scalar, Task

Square: TypeAlias = Float[Array, "4 4"]


def _softmax(x: Array, axis: int) -> Array:
    # Not jax.nn.softmax: its custom_jvp would hide the vertices.
    exp = jnp.exp(x - lax.stop_gradient(jnp.max(x, axis=axis, keepdims=True)))
    return exp / jnp.sum(exp, axis=axis, keepdims=True)


def _attention(x: Array, source: Array, WQ: Array, WK: Array, WV: Array) -> Array:
    q, k, v = WQ @ x, WK @ source, WV @ source
    return _softmax(q.T @ k, axis=1) @ v


def _silu(x: Array) -> Array:
    return x * jax.nn.sigmoid(x)


def _block(
    x: Array, WQ: Array, WK: Array, WV: Array, W: Array, b: Array, gamma: Array, beta: Array
) -> Array:
    x = layer_norm(x + _attention(x, x, WQ, WK, WV), gamma, beta)
    return _silu(W @ x + b)


def encoder(
    x: Square,
    y: Float[Array, "2 4"],
    WQ1: Square,
    WQ2: Square,
    WK1: Square,
    WK2: Square,
    WV1: Square,
    WV2: Square,
    W1: Square,
    W2: Float[Array, "2 4"],
    b1: Float[Array, "4"],
    b2: Float[Array, "2 1"],
    gamma0: Scalar,
    beta0: Scalar,
    gamma1: Scalar,
    beta1: Scalar,
) -> Float[Array, "2"]:
    """Loss of two transformer blocks: attention, residual, layer norm, SiLU layer.

    Args:
        x: Input.
        y: Target weights of the cross entropy over the last axis.
        WQ1: Query weights of the first block.
        WQ2: Query weights of the second block.
        WK1: Key weights of the first block.
        WK2: Key weights of the second block.
        WV1: Value weights of the first block.
        WV2: Value weights of the second block.
        W1: Weights of the layer of the first block.
        W2: Weights of the layer of the second block.
        b1: Bias of the first block.
        b2: Bias of the second block.
        gamma0: Scale of the first layer norm.
        beta0: Shift of the first layer norm.
        gamma1: Scale of the second layer norm.
        beta1: Shift of the second layer norm.

    Returns:
        The loss for each of two rows of logits.
    """
    z = _block(x, WQ1, WK1, WV1, W1, b1, gamma0, beta0)
    z = _block(z, WQ2, WK2, WV2, W2, b2, gamma1, beta1)
    return softmax_cross_entropy(z, y)


def _encoder_args() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    shapes = [(4, 4), (2, 4), *[(4, 4)] * 7, (2, 4), (4,), (2, 1), (), (), (), ()]
    return tuple(np.asarray(rng.uniform(0.1, 0.9, shape)) for shape in shapes)


TASKS = (
    Task(
        name="Encoder",
        fun=encoder,
        example_args=_encoder_args,
        argnums=tuple(range(16)),
        description="Loss of two transformer blocks on 4 positions with 4 features.",
        source="Vaswani et al., arXiv 1706.03762; arXiv 2406.05027 (Encoder)",
    ),
)
