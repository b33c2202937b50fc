"""Precisions, integers, booleans, copies and stopped gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.engine.corpus.case import case, distinct, normal, promoted

X = distinct(4)
F32 = X.astype(np.float32)
BF16 = F32.astype(jnp.bfloat16)
HALF = 2e-2
SINGLE = 1e-5


def _jacrev(fun, argnums):
    """`jax.jacrev` itself promotes where outputs have several types."""
    return promoted(jax.jacrev(fun, argnums))


def _mixed(x, y, z):
    return {"a": x * y.astype(x.dtype), "b": jnp.sin(z.astype(jnp.float32)) * y[0], "c": x.sum()}


CASES = [
    case("through_float32", lambda x: jnp.sin(x.astype(jnp.float32)).astype(x.dtype) * x, X,
        tol=SINGLE),
    case("through_bfloat16", lambda x: x.astype(jnp.bfloat16).astype(jnp.float64) * x, X, tol=HALF),
    case("through_float16", lambda x: (x.astype(jnp.float16) * 2).astype(x.dtype) * x, X, tol=HALF),
    case("float32_input", lambda x: jnp.exp(x) * x.sum(), F32, tol=SINGLE),
    case("bfloat16_input", lambda x: x * x + 2 * x, BF16, tol=HALF),
    case("float32_to_float64", lambda x: jnp.cumsum(x.astype(jnp.float64)) ** 2, F32, tol=SINGLE),
    case("several_precisions", _mixed, X, F32, BF16, argnums=(0, 1, 2), oracle=_jacrev, tol=HALF,
        zero=True),
    case("implicit_precisions", promoted(
        lambda x, y, z: {"a": x * y, "b": jnp.sin(z) * y[0], "c": x @ (y * z[1])}), X, F32, BF16,
        argnums=(0, 1, 2), oracle=_jacrev, tol=HALF, zero=True),
    case("implicit_integers_and_booleans", promoted(lambda x: x * jnp.arange(4) + (x > 0) * x**2),
        X),
    case("implicit_complex", promoted(lambda x: jnp.abs(x + 1j * jnp.sin(x))), X),
    case("weak_scalars", lambda x: 2 * x + jnp.float32(1.5) * x - x / 3, F32, tol=SINGLE),
    case("weak_input", lambda s: s * jnp.arange(3.0) + s**2, 1.25),
    case("narrow_output", lambda x: (jnp.sin(x).astype(jnp.float32), x * 2), X, oracle=_jacrev,
        tol=SINGLE),
    case("reduce_in_wider_type", lambda x: jnp.sum(x * x,
        dtype=jnp.float64) * x[0].astype(jnp.float64), F32, tol=SINGLE),
    case("integer_side_values", lambda x: x * jnp.arange(4.0) + jnp.sum(jnp.arange(3) ** 2).astype(
        x.dtype) * x, X),
    case("integers_from_floats", lambda x: (x * x.astype(jnp.int32).astype(x.dtype) + (3
        * x).astype(jnp.int64).astype(x.dtype)), 5 * X),
    case("booleans", lambda x: x * (x > 0).astype(x.dtype)
        + (x < 0).astype(jnp.int8).astype(x.dtype) * x**2, X),
    case("integer_argument", lambda x, n: x[n[0]] ** n[1].astype(x.dtype) * x, X, np.array([1, 3])),
    case("boolean_argument", lambda x, m: jnp.where(m, x * x, jnp.cos(x)), X, X > 0.5),
    case("bitcast", lambda x: x * (lax.bitcast_convert_type(x, jnp.int64) % 7).astype(x.dtype), X),
    case("stop_gradient", lambda x: lax.stop_gradient(jnp.sin(x)) * x**2, X),
    case("stop_gradient_of_tree", lambda x: lax.stop_gradient((x, 2 * x))[1] * jnp.exp(x), X),
    case("copies", lambda x: jnp.copy(x * x) * jnp.array(x, copy=True), X),
    case("optimization_barrier", lambda x: lax.optimization_barrier(x * x) * x, X),
    case("random_bits", lambda x: x * jax.random.normal(jax.random.key(3), (4,)), X),
    case("random_key_argument", lambda x, k: x**2 * jax.random.uniform(jax.random.split(k)[0], (
        4,)), X, np.array([0, 1], np.uint32)),
    case("random_permutation", lambda x: jax.random.permutation(jax.random.key(0), x * x) * x, X),
    case("dropout_mask", lambda x: jnp.where(jax.random.bernoulli(jax.random.key(1), 0.5, (4,)),
        x * 2, x**3), X),
    case("reparametrised_normal", lambda m, s: m + jnp.exp(s) * jax.random.normal(jax.random.key(
        2), (4,)), X, normal(4), argnums=(0, 1)),
]  # fmt: skip
