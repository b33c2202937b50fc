"""Feed-forward neural networks with their losses, small enough to search.

Source: the two-layer perceptron of Lohoff and Neftci, arXiv 2406.05027; layer normalisation:
Ba, Kiros, Hinton, arXiv 1607.06450.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from veenv.tasks.task import Scalar, Task

EPSILON = 1e-6


def layer_norm(
    x: Float[Array, "*batch n"], gamma: Scalar, beta: Scalar, *, keepdims: bool = False
) -> Float[Array, "*batch n"]:
    """Normalises by mean and variance over the last axis, then scales and shifts.

    Args:
      x: activations, float.
      gamma: scale.
      beta: shift.
      keepdims: normalise each row by its own statistics. The published tasks drop the reduced
        axis instead: the statistics of row ``i`` then act on column ``i``, also inside the
        variance. For vectors there is no difference.

    Returns:
      An array like ``x``.
    """
    centred = x - on_last_axes(jnp.mean(x, axis=-1, keepdims=keepdims), x)
    variance = jnp.mean(centred**2, axis=-1, keepdims=keepdims)
    return centred / on_last_axes(jnp.sqrt(variance + EPSILON), x) * gamma + beta


def on_last_axes(s: Array, x: Array) -> Array:
    """Adds leading axes of size one up to the rank of an operand; numbers stay numbers.

    Args:
        s: The array, of the last axes of ``x`` or a number.
        x: What it acts on.
    """
    return s if s.ndim in (0, x.ndim) else lax.expand_dims(s, range(x.ndim - s.ndim))


def softmax_cross_entropy(
    logits: Float[Array, "*batch n"], labels: Float[Array, "*batch n"]
) -> Float[Array, "*batch"]:
    """Cross entropy of a softmax over the last axis.

    Args:
      logits: unnormalised log probabilities, float.
      labels: target weights, float, of the same shape.

    Returns:
      The loss, without the last axis.
    """
    shift = lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    shifted = logits - shift
    log_sum = jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))
    return -jnp.sum(labels * (shifted - log_sum), axis=-1)


def mlp(
    x: Float[Array, "4"],
    y: Float[Array, "4"],
    W1: Float[Array, "8 4"],
    b1: Float[Array, "8"],
    W2: Float[Array, "4 8"],
    b2: Float[Array, "4"],
    gamma: Scalar,
    beta: Scalar,
) -> Scalar:
    """Loss of a perceptron with two layers, a layer norm between them.

    Args:
      x: input.
      y: target weights of the cross entropy.
      W1: weights of the first layer.
      b1: bias of the first layer.
      W2: weights of the second layer.
      b2: bias of the second layer.
      gamma: scale of the layer norm.
      beta: shift of the layer norm.

    Returns:
      The loss, a scalar.
    """
    hidden = layer_norm(jnp.tanh(W1 @ x + b1), gamma, beta)
    logits = jnp.tanh(W2 @ hidden + b2)
    return softmax_cross_entropy(logits, y)


def _mlp_point() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    weights = [rng.uniform(-1.0, 1.0, shape) for shape in ((8, 4), (8,), (4, 8), (4,))]
    x, y = rng.uniform(-1.0, 1.0, 4), rng.uniform(0.1, 0.9, 4)
    return (x, y, *weights, 0.9, 0.2)


TASKS = (
    Task.at(
        "mlp",
        mlp,
        _mlp_point(),
        "Loss of a two-layer perceptron with layer norm, 4 features, 8 hidden units.",
        "arXiv 2406.05027 (MLP)",
    ),
)
