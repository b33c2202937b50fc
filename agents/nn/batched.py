"""The graph network on many steps at once, with its gradient written out.

What `jax.vmap` of the network computes, to rounding.  The gradient that JAX derives recomputes the
error of the hidden layer for each of its four readers and copies it transposed; here it is
computed once, and every product of matrices is one over the vertices of all steps.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from veenv.agents.nn.networks import TYPICAL_SIZE
from veenv.agents.nn.own import Network, OwnNetwork

Weights = tuple[Array, Array, Array, Array, Array, Array]
"""Embedding: weight and bias; first layer of the policy: weight for a vertex, bias and weight for
the context (`Head.in_context`); the weight of its second layer."""


def read_steps(network: Network, inputs: Any) -> tuple[Float[Array, "M A"], Float[Array, " M"]]:
    """Logits and values of M steps, as `jax.vmap(network)`, float32.

    Args:
      network: the network; one with rounds of messages, or of the user's own, is read as
        `jax.vmap` reads it.
      inputs: of M steps, [M, ...], as `network.read`.

    Examples:
      >>> from veenv.agents.nn.encoding import GraphInputs
      >>> from veenv.agents.nn.networks import GraphNetwork
      >>> network = GraphNetwork(hidden=4, key=jax.random.key(0))
      >>> mask = jnp.array([[True, False, True]])
      >>> inputs = GraphInputs(jnp.ones((1, 3, 33)), jnp.zeros((1, 3, 0), bool), mask)
      >>> pairs = zip(read_steps(network, inputs), jax.vmap(network)(inputs))
      >>> all(bool(jnp.allclose(a, b, atol=1e-5)) for a, b in pairs)
      True
    """
    if isinstance(network, OwnNetwork) or network.rounds:
        return jax.vmap(network)(inputs)
    dtype = jnp.dtype(network.compute_dtype)
    inner, outer = network.policy.inner, network.policy.outer
    own, shared = jnp.split(inner.weight, 2)
    arrays = network.embed.weight, network.embed.bias, own, inner.bias, shared, outer.weight[:, 0]
    embed, embed_bias, own, bias, shared, last = (x.astype(dtype) for x in arrays)
    weights = embed, embed_bias, own, bias, shared, last
    scores, total = _over_vertices(weights, inputs.nodes.astype(dtype), inputs.mask)
    mean = total / _counts(inputs.mask, dtype)
    logits = scores.astype(jnp.float32) + outer.bias.astype(dtype).astype(jnp.float32)[None]
    return logits, network.critic(jnp.concatenate([mean, total / TYPICAL_SIZE], axis=-1))


def _counts(mask: Bool[Array, "M A"], dtype: Any) -> Float[Array, "M 1"]:
    """Legal slots of every step, 1 where there are none."""
    return jnp.maximum(mask.astype(dtype).sum(-1, keepdims=True), 1)


@jax.custom_vjp
def _over_vertices(
    weights: Weights, nodes: Float[Array, "M A F"], mask: Bool[Array, "M A"]
) -> tuple[Float[Array, "M A"], Float[Array, "M H"]]:
    """Logits without their last bias, and the hidden states summed over the legal slots."""
    return _forward(weights, nodes, mask)[0]


def _forward(weights: Weights, nodes: Array, mask: Array) -> tuple[tuple[Array, Array], Any]:
    """The results, and what the gradient reads again."""
    embed, embed_bias, own, bias, shared, last = weights
    steps, slots = mask.shape
    rows = nodes.reshape(steps * slots, -1)
    legal = mask.reshape(-1, 1).astype(nodes.dtype)
    # Without the barriers the compiler computes a layer again for every reader.
    hidden = lax.optimization_barrier(jax.nn.relu(rows @ embed + embed_bias[None]) * legal)
    total = hidden.reshape(steps, slots, -1).sum(1)
    counts = _counts(mask, nodes.dtype)
    mean = total / counts
    context = mean @ shared + bias[None]
    layer = jax.nn.relu((hidden @ own).reshape(steps, slots, -1) + context[:, None])
    layer = lax.optimization_barrier(layer.reshape(steps * slots, -1))
    scores = (layer @ last[:, None]).reshape(steps, slots)
    return (scores, total), (weights, rows, hidden, layer, mean, counts)


def _backward(kept: Any, errors: tuple[Array, Array]) -> tuple[Weights, None, None]:
    """The gradient by the weights; inputs are not differentiated by."""
    weights, rows, hidden, layer, mean, counts = kept
    _, _, own, _, shared, last = weights
    (steps, slots), of_scores = errors[0].shape, errors[0].reshape(-1)
    of_layer = jnp.where(layer > 0, of_scores[:, None] * last[None], jnp.zeros((), last.dtype))
    of_layer = lax.optimization_barrier(of_layer)
    of_context = of_layer.reshape(steps, slots, -1).sum(1)
    of_total = errors[1] + of_context @ shared.T / counts
    of_hidden = (of_layer @ own.T).reshape(steps, slots, -1) + of_total[:, None]
    of_hidden = jnp.where(hidden > 0, of_hidden.reshape(hidden.shape), jnp.zeros((), last.dtype))
    of_hidden = lax.optimization_barrier(of_hidden)
    gradient = (
        _over_rows(rows, of_hidden),
        of_hidden.sum(0),
        _over_rows(hidden, of_layer),
        of_context.sum(0),
        _over_rows(mean, of_context),
        of_scores @ layer,
    )
    return gradient, None, None


def _over_rows(left: Float[Array, "N n"], right: Float[Array, "N m"]) -> Float[Array, "n m"]:
    """Sum of the outer products of rows."""
    return lax.dot_general(left, right, (((0,), (0,)), ((), ())))


_over_vertices.defvjp(_forward, _backward)
