"""Functions with their own derivative rules; most rules are wrong on purpose, to be told apart."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero, linear_call

from tests.engine.corpus.case import case, normal, uniform

V = uniform(4)
W = normal(4, seed=5)


@jax.custom_jvp
def tripled(x):
    """sin with three times its derivative."""
    return jnp.sin(x)


@tripled.defjvp
def _(primals, tangents):
    return tripled(primals[0]), 3 * jnp.cos(primals[0]) * tangents[0]


@jax.custom_jvp
def by_parts(x, y):
    """Product with rules given operand by operand; none for y."""
    return x * y


by_parts.defjvps(lambda t, ans, x, y: 2 * t * y * ans, None)


@jax.custom_jvp
def two_results(x, y):
    return x * y, jnp.sin(x)


@two_results.defjvp
def _(primals, tangents):
    (x, y), (s, t) = primals, tangents
    return two_results(x, y), (s * y + 5 * t, -2 * s + t * x)


@jax.custom_jvp
def seeing_zeros(x, y):
    return x * jnp.exp(y)


@partial(seeing_zeros.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    (x, y), (s, t) = primals, tangents
    out = seeing_zeros(x, y)
    tangent = jnp.zeros_like(out)
    if type(s) is not SymbolicZero:
        tangent += 2 * s * y
    if type(t) is not SymbolicZero:
        tangent += 7 * t * x
    return out, tangent


@partial(jax.custom_jvp, nondiff_argnums=(0, 2))
def applied(fun, x, power):
    return fun(x) ** power


@applied.defjvp
def _(fun, power, primals, tangents):
    (x,), (t,) = primals, tangents
    return applied(fun, x, power), 0.5 * power * fun(x) * t


@jax.custom_jvp
def nested_rule(x):
    return tripled(x) * x


@nested_rule.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return nested_rule(x), tripled(x) * t * x


@jax.custom_vjp
def doubled(x):
    """sin with twice its derivative."""
    return jnp.sin(x)


doubled.defvjp(lambda x: (doubled(x), x), lambda x, g: (2 * jnp.cos(x) * g,))


@jax.custom_vjp
def gated_gradient(x, low, high):
    return x


gated_gradient.defvjp(
    lambda x, low, high: (x, (x > low) & (x < high)),
    lambda gate, g: (jnp.where(gate, g, 0.25 * g), None, None),
)


@jax.custom_vjp
def two_way(x, y):
    return {"a": x @ y, "b": x * y}


def _two_way_backward(residual, g):
    x, y = residual
    return 3 * g["a"] * y + g["b"], g["b"] * x * y


two_way.defvjp(lambda x, y: (two_way(x, y), (x, y)), _two_way_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def scaled_backward(fun, factor, x):
    return fun(x)


scaled_backward.defvjp(
    lambda fun, factor, x: (fun(x), x),
    lambda fun, factor, x, g: (factor * jax.vjp(fun, x)[1](g)[0],),
)


@jax.custom_vjp
def with_integers(x, n):
    return x * n.astype(x.dtype)


with_integers.defvjp(
    lambda x, n: (x * n.astype(x.dtype), n),
    lambda n, g: (4 * g * n.astype(g.dtype), np.zeros(n.shape, jax.dtypes.float0)),
)


@jax.custom_vjp
def vjp_seeing_zeros(x, y):
    return x * y, x + y


def _zeros_forward(x, y):
    out = vjp_seeing_zeros(x.value, y.value)
    return out, (x.value, y.value)


def _zeros_backward(residual, cotangents):
    x, y = residual
    g, h = (jnp.zeros_like(x) if type(c) is SymbolicZero else c for c in cotangents)
    return 2 * g * y + h, g * x + 3 * h


vjp_seeing_zeros.defvjp(_zeros_forward, _zeros_backward, symbolic_zeros=True)


@jax.custom_gradient
def with_gradient(x):
    return x**2, lambda g: (g * 3 * x,)


@jax.custom_gradient
def with_gradient_of_two(x, y):
    return jnp.sin(x) * y, lambda g: (g * y, g * 2 * x)


def _closure(v):
    """A closure over an active value made explicit, with a rule of its own."""
    shift = v[0] * v[1]
    fun, consts = jax.closure_convert(lambda x: jnp.sin(x) * shift, v)

    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def apply(fun, x, *consts):
        return fun(x, *consts)

    def forward(fun, x, *consts):
        return apply(fun, x, *consts), (x, consts)

    def backward(fun, residual, g):
        x, consts = residual
        by = jax.vjp(fun, x, *consts)[1](g)
        return (2 * by[0], *by[1:])

    apply.defvjp(forward, backward)
    return apply(fun, v * v, *consts) * v


def _linear(v):
    """A linear call with its transpose stated; JAX has no batching rule for it."""
    return linear_call(lambda r, x: x / r, lambda r, g: g / r, jnp.asarray(W), v * v) * v


def _row_by_row(fun, argnums):
    """Reverse mode without vmap, for a function of one vector."""

    def jacobian(v):
        pull = jax.vjp(fun, v)[1]
        return jnp.stack([pull(e)[argnums] for e in jnp.eye(v.size)])

    return jacobian


def _twice(x):
    return jnp.sin(jnp.cos(x) * x) * x


JVP = [
    case("simple", lambda v: tripled(v * v) * v, V),
    case("defjvps", lambda v, w: by_parts(v * 2, w) * w, V, W, argnums=(0, 1)),
    case("two_results", lambda v, w: [p * v for p in two_results(v * w, w)], V, W, argnums=(0, 1)),
    case("symbolic_zeros", lambda v, w: seeing_zeros(v * v, w), V, W, argnums=(0, 1)),
    case("symbolic_zeros_one_active", lambda v: seeing_zeros(W, v) * v, V),
    case("nondiff_argnums", lambda v: applied(jnp.cos, v * v, 3) * v, V),
    case("nested_rules", lambda v: nested_rule(v * v), V),
    case("in_jit", lambda v: jax.jit(lambda x: tripled(x) * x)(v * v), V),
    case("in_vmap", lambda v: jax.vmap(lambda x, y: by_parts(tripled(x), y).sum())(v, v * v), V),
    case("in_scan", lambda v: lax.scan(lambda c, x: (tripled(c) * x, c), 0.5, v)[1] * v, V),
    case("in_cond", lambda v: lax.cond(v[0] > 0, tripled, jnp.cos, v * v), V),
    case("in_grad", jax.grad(lambda v: jnp.sum(tripled(v) ** 2)), V),
    case("library_functions", lambda v: jax.nn.relu(v - 0.5) + jax.nn.silu(v) + jnp.sinc(v), V),
]

VJP = [
    case("simple", lambda v: doubled(v * v) * v, V), case("result_is_output", doubled, V),
    case("gated_gradient", lambda v: gated_gradient(v * v, 0.1, 0.5) * 3, V),
    case("several_results", lambda v, w: jax.tree.map(lambda x: x * v[0], two_way(v * w, w)), V, W,
        argnums=(0, 1)),
    case("nondiff_argnums", lambda v: scaled_backward(jnp.cos, 0.5, v * v) * v, V),
    case("integer_operand", lambda v: with_integers(v * v, np.arange(1, 5)), V),
    case("symbolic_zeros", lambda v, w: vjp_seeing_zeros(v * v, w)[0] * v, V, W, argnums=(0, 1)),
    case("in_jit", lambda v: jax.jit(lambda x: doubled(x) * x)(v * v), V),
    case("in_vmap", lambda v: jax.vmap(lambda x: doubled(x) * x)(v * v), V),
    case("in_scan", lambda v: lax.scan(lambda c, x: (doubled(c) * x, c), 0.5, v)[1] * v, V),
    case("closure_convert", _closure, V),
    case("custom_gradient", lambda v: with_gradient(v * 2) * v, V),
    case("custom_gradient_of_two", lambda v, w: with_gradient_of_two(v * w, w), V, W,
        argnums=(0, 1)),
    case("linear_call", _linear, V, oracle=_row_by_row),
    case("all_kinds_together", lambda v: doubled(tripled(v) * with_gradient(v)) + nested_rule(v),
        V),
]  # fmt: skip

REMAT = [
    case("checkpoint", lambda v: jax.checkpoint(_twice)(v * v) * v, V),
    case("checkpoint_policy", lambda v: jax.checkpoint(_twice,
        policy=jax.checkpoint_policies.dots_saveable)(v * v), V),
    case("checkpoint_names", lambda v: (jax.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.cos(
        x), "kept")) * x, policy=jax.checkpoint_policies.save_only_these_names("kept"))(v) * v), V),
    case("checkpoint_in_scan", lambda v: lax.scan(jax.checkpoint(lambda c, x: (jnp.sin(c) * x, c
        * c)), 0.5, v)[1], V),
    case("checkpoint_nested", lambda v: jax.checkpoint(lambda x: jax.checkpoint(jnp.sin)(x) * x)(v
        * v), V),
    case("checkpoint_of_custom_rule", lambda v: jax.checkpoint(lambda x: doubled(x) * x)(v * v), V),
    case("nested_jit", lambda v: jax.jit(jax.jit(_twice))(v) * jax.jit(jnp.sin)(v * v), V),
    case("named_scope", lambda v: jax.named_call(_twice, name="twice")(v) * v, V),
]  # fmt: skip
