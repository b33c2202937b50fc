"""Functions that are vmapped inside, with collectives over the mapped axis."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.engine.corpus.case import case, definite, normal, uniform
from tests.engine.corpus.custom import doubled, tripled

X = uniform(3, 4)
Y = normal(4, 3)
BATCH = partial(jax.vmap, axis_name="batch")


def _row(r):
    return jnp.stack([r[0] * r[1], jnp.sin(r[2]), r.sum()])


def _normalised(r):
    """Batch normalisation over the mapped axis."""
    mean = lax.pmean(r, "batch")
    var = lax.pmean((r - mean) ** 2, "batch")
    return (r - mean) * lax.rsqrt(var + 1e-3)


def _nested_axes(x):
    inner = jax.vmap(lambda s: lax.psum(s * s, "col") * lax.psum(s, "row"), axis_name="col")
    return jax.vmap(inner, axis_name="row")(x)


def _ring(r):
    return lax.ppermute(r * r, "batch", [(0, 1), (1, 2), (2, 0)]) * r


def _while(r):
    return lax.while_loop(lambda s: s[0].sum() < 3, lambda s: (s[0] + r, s[1] * r), (r, r))[1]


CASES = [
    case("rows", jax.vmap(_row), X),
    case("columns_in_and_out", jax.vmap(_row, in_axes=1, out_axes=1), Y),
    case("two_arguments", jax.vmap(lambda a, b: jnp.outer(a, b) @ b, in_axes=(0, 1)), X, Y,
        argnums=(0, 1)),
    case("shared_argument", jax.vmap(lambda a, b: jnp.tanh(b @ a[:3]) * a, in_axes=(0, None)), X,
        Y, argnums=(0, 1)),
    case("nested", jax.vmap(jax.vmap(lambda s, t: s * jnp.sin(t)), in_axes=(0, 1)), X, Y,
        argnums=(0, 1)),
    case("nested_different_axes", jax.vmap(jax.vmap(lambda s, t: s * t, (0, None)), (None, 1),
        out_axes=1), X[:, 0], Y, argnums=(0, 1)),
    case("pytrees", lambda x: jax.vmap(lambda d: {"p": d["a"] * d["b"].sum()})({"a": x[:, 0],
        "b": x[:, 1:]}), X),
    case("psum", BATCH(lambda r: lax.psum(r * r, "batch") * r), X),
    case("psum_of_constant", BATCH(lambda r: r / lax.psum(1, "batch")), X),
    case("pmean", BATCH(lambda r: jnp.exp(r - lax.pmean(r, "batch"))), X),
    case("batch_norm", BATCH(_normalised), X),
    case("pmax_pmin_stopped", BATCH(lambda r: r - lax.pmax(lax.stop_gradient(r), "batch")), X),
    case("ppermute", BATCH(_ring), X),
    case("all_gather", BATCH(lambda r: lax.all_gather(r[:2], "batch").sum(0) * r[0]), X),
    case("all_to_all", BATCH(lambda r: lax.all_to_all(r[:3] * r[1], "batch", 0, 0) * 2), X),
    case("psum_scatter", BATCH(lambda r: lax.psum_scatter(r[:3] ** 2, "batch") * r), X),
    case("axis_index", BATCH(lambda r: r * lax.axis_index("batch").astype(r.dtype) + r**2), X),
    case("two_named_axes", _nested_axes, X),
    case("dynamic_slices", jax.vmap(lambda r, i: lax.dynamic_slice(r * r, (i,), (2,))), X,
        np.array([0, 2, 1])),
    case("dynamic_updates", jax.vmap(lambda r, i: r.at[i].set(r[0] * r[1]) * 2), X,
        np.array([3, 0, 1])),
    case("gather", jax.vmap(lambda r, i: jnp.sin(r)[i] * r[:2]), X,
        np.array([[0, 1], [3, 3], [2, 0]])),
    case("cond_becomes_select", jax.vmap(lambda r: lax.cond(r[0] > 0.5, jnp.sin, lambda t: t * t,
        r) * r), X),
    case("scan", jax.vmap(lambda r: lax.scan(lambda c, a: (c * a + jnp.sin(c), c), 1.0, r)[1]), X),
    case("while", jax.vmap(_while), X, oracle=jax.jacfwd),
    case("cholesky", jax.vmap(lambda r: jnp.linalg.cholesky(definite(3) + jnp.diag(r[:3] ** 2))),
        X),
    case("solve", jax.vmap(lambda r: jnp.linalg.solve(definite(4) + jnp.outer(r, r), r)), X),
    case("sort", jax.vmap(lambda r: jnp.sort(r * 2) * jnp.arange(4.0)), X),
    case("convolution", jax.vmap(lambda r: jnp.convolve(r, r[:2])), X),
    case("custom_rules", jax.vmap(lambda r: doubled(r * r) + tripled(r).sum()), X),
    case("gradients", jax.vmap(jax.grad(lambda r: jnp.prod(jnp.sin(r)) * r[0])), X),
    case("vmapped_scalar_function", jnp.vectorize(lambda s, t: s * t + jnp.sin(s)), X[:1],
        Y[:, :1], argnums=(0, 1)),
]  # fmt: skip
