"""Attention networks with their losses: an encoder and an encoder-decoder.

Source: Vaswani et al., "Attention is all you need", arXiv 1706.03762; the encoder in the small
form of Lohoff and Neftci, arXiv 2406.05027. Columns are positions, rows are features.
"""

import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from veenv.tasks.networks import layer_norm, on_last_axes, softmax_cross_entropy
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
    return _silu(W @ x + on_last_axes(b, x))


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
      x: input.
      y: target weights of the cross entropy over the last axis.
      WQ1: query weights of the first block.
      WQ2: query weights of the second block.
      WK1: key weights of the first block.
      WK2: key weights of the second block.
      WV1: value weights of the first block.
      WV2: value weights of the second block.
      W1: weights of the layer of the first block.
      W2: weights of the layer of the second block.
      b1: bias of the first block.
      b2: bias of the second block.
      gamma0: scale of the first layer norm.
      beta0: shift of the first layer norm.
      gamma1: scale of the second layer norm.
      beta1: shift of the second layer norm.

    Returns:
      The loss for each of two rows of logits.
    """
    z = _block(x, WQ1, WK1, WV1, W1, b1, gamma0, beta0)
    z = _block(z, WQ2, WK2, WV2, W2, b2, gamma1, beta1)
    return softmax_cross_entropy(z, y)


def _encoder_point() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1.0, 1.0, (4, 4)), rng.uniform(0.1, 0.9, (2, 4))
    shapes = [*[(4, 4)] * 7, (2, 4), (4,), (2, 1)]
    weights = [rng.uniform(-1.0, 1.0, shape) for shape in shapes]
    return (x, y, *weights, 0.9, 0.2, 1.1, -0.3)


def _attend(x: Array, source: Array, WQ: Array, WK: Array, WV: Array) -> Array:
    """Scaled dot-product attention of rows ``x`` to rows ``source``."""
    q, k, v = x @ WQ, source @ WK, source @ WV
    return _softmax(q @ k.T / math.sqrt(q.shape[-1]), axis=-1) @ v


def _feed_forward(x: Array, W1: Array, b1: Array, W2: Array, b2: Array) -> Array:
    return _silu(x @ W1 + b1[None]) @ W2 + b2[None]


def encoder_decoder(
    source: Float[Array, "s n"],
    target: Float[Array, "t n"],
    labels: Float[Array, "t o"],
    encoder: dict[str, Array],
    decoder: dict[str, Array],
    head: Float[Array, "n o"],
) -> Float[Array, "t"]:
    """Loss of a transformer with one encoder and one decoder layer; rows are positions.

    Args:
      source: embedded source positions.
      target: embedded target positions.
      labels: target weights of the cross entropy.
      encoder: ``WQ WK WV`` of the self-attention, ``W1 b1 W2 b2`` of the feed-forward layer,
        ``gamma0 beta0 gamma1 beta1`` of the two layer norms.
      decoder: the same, with ``CQ CK CV`` of the attention to the encoder and ``gamma2 beta2``.
      head: weights of the logits.

    Returns:
      The loss of each target position.
    """

    def norm(layer: dict[str, Array], i: int, x: Array) -> Array:
        return layer_norm(x, layer[f"gamma{i}"], layer[f"beta{i}"], keepdims=True)

    def weights(layer: dict[str, Array], names: str) -> list[Array]:
        return [layer[name] for name in names.split()]

    memory = norm(encoder, 0, source + _attend(source, source, *weights(encoder, "WQ WK WV")))
    memory = norm(encoder, 1, memory + _feed_forward(memory, *weights(encoder, "W1 b1 W2 b2")))
    x = norm(decoder, 0, target + _attend(target, target, *weights(decoder, "WQ WK WV")))
    x = norm(decoder, 1, x + _attend(x, memory, *weights(decoder, "CQ CK CV")))
    x = norm(decoder, 2, x + _feed_forward(x, *weights(decoder, "W1 b1 W2 b2")))
    return softmax_cross_entropy(x @ head, labels)


def _encoder_decoder_args(n: int = 4, hidden: int = 6, out: int = 3) -> tuple[Any, ...]:
    rng = np.random.default_rng(6)

    def layer(attentions: str, num_norms: int) -> dict[str, np.ndarray]:
        shapes = dict.fromkeys(attentions.split(), (n, n))
        shapes |= {"W1": (n, hidden), "b1": (hidden,), "W2": (hidden, n), "b2": (n,)}
        shapes |= {f"{name}{i}": () for i in range(num_norms) for name in ("gamma", "beta")}
        return {
            name: np.asarray(rng.uniform(-1.0, 1.0, shape) if shape else rng.uniform(0.5, 1.2))
            for name, shape in shapes.items()
        }

    source, target = rng.uniform(-1.0, 1.0, (5, n)), rng.uniform(-1.0, 1.0, (3, n))
    labels = rng.uniform(0.1, 0.9, (3, out))
    return (
        *(source, target, labels),
        layer("WQ WK WV", 2),
        layer("WQ WK WV CQ CK CV", 3),
        rng.uniform(-1.0, 1.0, (n, out)),
    )


TASKS = (
    Task.at(
        "Encoder",
        encoder,
        _encoder_point(),
        "Loss of two transformer blocks on 4 positions with 4 features.",
        "Vaswani et al., arXiv 1706.03762; arXiv 2406.05027 (Encoder)",
    ),
    Task(
        name="EncoderDecoder",
        fun=encoder_decoder,
        example_args=_encoder_decoder_args,
        argnums=(0, 1, 2, 3, 4, 5),
        description="Loss of a transformer, 5 source and 3 target positions with 4 features.",
        source="Vaswani et al., arXiv 1706.03762",
    ),
)
