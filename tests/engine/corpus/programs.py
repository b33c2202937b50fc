"""Whole programs: odd outputs, nested transformations, deep graphs, containers."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from tests.engine.corpus.case import case, distinct, normal, uniform

V = distinct(4)
W = normal(4, seed=2)
S = np.asarray(1.3)
M = normal(2, 2)


def _deep(v, steps):
    for i in range(steps):
        v = jnp.sin(v) * v[::-1] + i % 5 / 4 if i % 3 else v * 0.5 + jnp.cos(v).sum() / 3
    return v


def _diamonds(v):
    for _ in range(4):
        a, b = jnp.sin(v), v * v
        v = a * b + a
    return v


def _wide(v):
    parts = [jnp.tanh(v * (i + 1)) for i in range(8)]
    return sum(p * q for p, q in itertools.pairwise(parts))


def _scalars(a, b):
    c = a * b
    d = jnp.sin(c)
    e = d / a
    return c, d * e, e - b, jnp.exp(d)


def _taken_apart(v):
    """Scalars taken out of a vector, combined, and put back together."""
    a, b, c, d = v
    e = a * b - c
    return jnp.array([e * d, jnp.sin(e), a, 2.0])


def _used_output(v):
    """An output that is used further on, to two others."""
    a = v * v
    b = jnp.sin(a)
    c = b * a
    return {"late": c.sum(), "early": a, "middle": b}


def _tree(p, q):
    return {"x": p["a"] * q[0], "y": (p["b"].sum() * q[1], p["a"] @ p["b"])}


OUTPUTS = [
    case("identity", lambda v: v, V),
    case("identity_twice", lambda v: (v, v), V),
    case("constant", lambda v: (v * v, jnp.ones(2), 3.0), V, zero=True),
    case("only_constants", lambda v: jnp.arange(3.0), V, zero=True),
    case("repeated", lambda v: (lambda a: (a, a, -a, a))(jnp.sin(v)), V),
    case("input_among_outputs", lambda v, w: (w, v * w, v), V, W, argnums=(0, 1), zero=True),
    case("used_further_on", _used_output, V),
    case("unused_input", lambda v, w: jnp.sin(v) * 2, V, W, argnums=(0, 1), zero=True),
    case("unused_results", lambda v: (jnp.exp(v), jnp.sort(v), v * 3)[2], V),
    case("cancelling_terms", lambda v: v * v - v * v + v, V),
    case("cancelled_completely", lambda v: v - v, V, zero=True),
    case("times_zero", lambda v: v * 0.0 + jnp.sin(v), V),
    case("same_operand_everywhere", lambda v: v * v + v / (v * v) - v, V),
    case("not_differentiated_argument", lambda v, w: v * jnp.sin(w), V, W, argnums=1),
]

NESTED = [
    case("gradient", jax.grad(lambda v: jnp.sum(jnp.sin(v) * v**3)), V),
    case("gradient_with_value", lambda v: jax.value_and_grad(lambda u: jnp.prod(u))(v), V),
    case("derivative", lambda v: jax.jvp(jnp.tanh, (v * v,), (v,))[1], V),
    case("pulled_back", lambda v, w: jax.vjp(lambda u: u * jnp.sin(u), v)[1](w)[0], V, W,
        argnums=(0, 1)),
    case("jacobian_forward", jax.jacfwd(lambda v: jnp.exp(v * v[::-1])), V[:3] / 2),
    case("jacobian_reverse", jax.jacrev(lambda v: jnp.exp(v * v[::-1])), V[:3] / 2),
    case("hessian", jax.hessian(lambda v: jnp.prod(jnp.cos(v))), V[:2]),
    case("hessian_vector_product", lambda v: jax.jvp(jax.grad(lambda u: jnp.sum(u**3) * u[0]), (
        v,), (W,))[1], V),
    case("linearized", lambda v: jax.linearize(lambda u: jnp.sin(u) * u, v)[1](W), V),
    case("jacobian_by_elimination", veenv.jacve(lambda v: jnp.sin(v) * v.sum()), V),
    case("nested_jit", lambda v: jax.jit(lambda a: jax.jit(jnp.sin)(a) * a)(v) + v, V),
    case("jit_with_two_results", lambda v: (lambda a, b: a * b)(*jax.jit(lambda x: (jnp.sin(x), x
        * x))(v)), V),
    case("jit_returns_input", lambda v: (lambda a, b: a * b)(*jax.jit(lambda x: (x, 2 * x))(v)), V),
    case("transposed_function", lambda v: jax.linear_transpose(lambda x: jnp.cumsum(x) * 2,
        v)(v * v)[0], V),
]  # fmt: skip

GRAPHS = [
    case("deep", lambda v: _deep(v, 8), uniform(3)),
    case("deeper", lambda v: _deep(v, 24), uniform(3), slow=True),
    case("diamonds", _diamonds, uniform(3)), case("wide", _wide, uniform(3)),
    case("scalars", _scalars, 1.2, -0.7, argnums=(0, 1)),
    case("taken_apart", _taken_apart, V),
    case("scalar_by_vector", lambda s, v: s * v / (s + v.sum()) + s**2, S, V, argnums=(0, 1)),
    case("vector_to_scalar", lambda v: jnp.sum(v * jnp.sin(v)) * v[0], V),
    case("matrix_and_vector", lambda a, v: (a @ v, v @ a, v @ a @ v), M, V[:2], argnums=(0, 1)),
    case("trees", _tree, {"a": M, "b": M.T + 1}, (S, V[0]), argnums=(0, 1), zero=True),
    case("rosenbrock", lambda v: 100 * jnp.sum((v[1:] - v[:-1] ** 2) ** 2) + jnp.sum((1 - v) ** 2),
        V),
    case("heat_stencil", lambda v: v[1:-1] + 0.1 * (v[2:] - 2 * v[1:-1] + v[:-2]) * v[1:-1],
        distinct(6)),
    case("pairwise_distances", lambda x: jnp.sqrt(jnp.sum((x[:, None] - x[None]) ** 2, -1) + 0.1),
        normal(3, 2)),
    case("determinant_by_hand", lambda a: a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0], M),
    case("newton_step", lambda v: v - jnp.linalg.solve(jax.jacfwd(lambda u: u**3 + u[::-1])(v),
        v**3 + v[::-1]), V[:3]),
]  # fmt: skip
