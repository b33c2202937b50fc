"""Functions to which predicted times are fitted that are learned, or that learn: layers, losses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_RNG = np.random.default_rng(41)


def _normal(*shape: int) -> Array:
    return jnp.asarray(0.5 * _RNG.standard_normal(shape), jnp.float32)


def _uniform(low: float, high: float, *shape: int) -> Array:
    return jnp.asarray(_RNG.uniform(low, high, shape), jnp.float32)


_MESSAGES = _RNG.integers(0, 10, (30, 2))
_FEATURES = (0.5 * _RNG.standard_normal((50, 8))).astype(np.float32)
_LABELS = np.where(_RNG.standard_normal(50) > 0, 1.0, -1.0).astype(np.float32)
_DICTIONARY = (0.5 * _RNG.standard_normal((12, 20))).astype(np.float32)


def message_passing(nodes: Array, message: Array, update: Array, bias: Array) -> Array:
    """A layer of a graph network."""
    sender, receiver = _MESSAGES.T
    sent = jnp.tanh(jnp.concatenate([nodes[sender], nodes[receiver]], -1) @ message + bias)
    received = jax.ops.segment_sum(sent, receiver, 10)
    return nodes + jax.nn.silu(jnp.concatenate([nodes, received], -1) @ update)


def residual_block(x: Array, scale: Array, shift: Array, wide: Array, narrow: Array) -> Array:
    """A normalised layer of a transformer, with its residual."""
    apart = x - x.mean()
    normal = scale * apart / jnp.sqrt((apart**2).mean() + 1e-5) + shift
    return x + narrow @ jax.nn.gelu(wide @ normal)


def logistic_gradient(w: Array) -> Array:
    """The gradient of the loss of logistic regression; its Jacobian is the loss's Hessian."""

    def loss(w: Array) -> Array:
        return jnp.mean(jnp.logaddexp(0.0, -_LABELS * (_FEATURES @ w))) + 0.01 * w @ w

    return jax.grad(loss)(w)


def sparse_code(signal: Array, penalty: Array) -> Array:
    """Ten steps of iterative shrinkage."""
    code = jnp.zeros(20)
    for _ in range(10):
        moved = code + 0.05 * _DICTIONARY.T @ (signal - _DICTIONARY @ code)
        code = jnp.sign(moved) * jax.nn.relu(jnp.abs(moved) - 0.05 * penalty)
    return code


def equilibrium(weights: Array) -> Array:
    """A layer's fixed point after five steps of Newton's method."""
    x, coupling = jnp.zeros(4), 0.2 * weights.reshape(4, 4)
    for _ in range(5):
        value = jnp.tanh(coupling @ x + 1.0)
        x = x - jnp.linalg.solve(jnp.eye(4) - (1 - value**2)[:, None] * coupling, x - value)
    return x


def soft_ranks(scores: Array) -> Array:
    """Ranks that can be differentiated."""
    return jnp.sum(jax.nn.sigmoid((scores[:, None] - scores) / 0.3), 1)


def temporal_convolution(x: Array, first: Array, second: Array) -> Array:
    """Two convolutions over time."""

    def over_time(x: Array, kernel: Array) -> Array:
        layout = ("NWC", "WIO", "NWC")
        found = lax.conv_general_dilated(x[None], kernel, (1,), "SAME", dimension_numbers=layout)
        return found[0]

    return over_time(jax.nn.relu(over_time(x, first)), second)[:, 0]


def table_lookup(x: Array, values: Array) -> Array:
    """A table that is interpolated."""
    return jnp.interp(2 * jnp.sin(x), jnp.linspace(-2, 2, 12), values) * jnp.exp(-x)


_GRAPH = (_normal(10, 6), _normal(12, 8), _normal(14, 6), _normal(8))
LEARNING: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "message_state": (message_passing, _GRAPH, 0),
    "message_params": (message_passing, _GRAPH, (1, 2, 3)),
    "residual_params": (
        residual_block,
        (_normal(16), 1 + _normal(16), _normal(16), _normal(32, 16), _normal(16, 32)),
        (1, 2, 3, 4),
    ),
    "logistic_gradient": (logistic_gradient, (_normal(8),), 0),
    "sparse_code": (sparse_code, (_normal(12), _uniform(0.1, 0.3, 20)), (0, 1)),
    "equilibrium": (equilibrium, (_normal(16),), 0),
    "soft_ranks": (soft_ranks, (_normal(24),), 0),
    "table_lookup": (table_lookup, (_normal(20), _normal(12)), (0, 1)),
    "temporal_convolution": (
        temporal_convolution, (_normal(24, 3), _normal(3, 3, 8), _normal(3, 8, 2)), (1, 2),
    ),
}  # fmt: skip
"""Function, point and argnums by name."""
