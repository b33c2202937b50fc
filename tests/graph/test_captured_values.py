"""Derivative rules that close over values which the function computes, in any depth."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.ode import odeint

import veenv
from tests.oracles.jacobians import assert_compiled_same, quick_jit
from tests.sampling import spared

X = jnp.array([0.3, 0.7, 1.1])


def vjp_with(c):
    """The sine with a cotangent rule that closes over c."""

    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x) * c,))
    return sine


def jvp_with(c):
    """The sine with a tangent rule that closes over c."""

    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvp(lambda p, t: (sine(*p), t[0] * jnp.cos(p[0]) * c))
    return sine


def made():
    return jnp.arange(3.0) * 2


def nested(rule, x):
    inner, c = rule(made()), made()

    @jax.custom_vjp
    def outer(x):
        return inner(x)

    outer.defvjp(lambda x: (inner(x), x), lambda x, g: (g * inner(x) * c,))
    return outer(x) * x


def in_scan(rule, x):
    sine = rule(made())
    return lax.scan(lambda y, a: (sine(y) * a, y), x, jnp.arange(1.0, 4.0))[0]


def in_loss_of_scan(x):
    return jax.grad(lambda x: in_scan(vjp_with, x).sum())(x)


def in_cond(rule, x):
    return lax.cond(x.sum() > 0, rule(made()), jnp.cos, x)


def in_jit(rule, x):
    sine = rule(made())
    return jax.jit(lambda y: sine(y) * y)(x)


def in_vmap(rule, x):
    return jax.vmap(rule(made()[1]))(x)


def solved(x):
    def decay(y, t, p):
        return -p[0] * y**2

    return odeint(decay, jnp.array([1.0, 0.5]), jnp.array([0.0, 0.5, 1.0]), x)


def keyed(x):
    @partial(jax.custom_jvp, nondiff_argnums=(0,))
    def noise(key, x):
        return x * jax.random.normal(key, x.shape)

    noise.defjvp(lambda key, p, t: (noise(key, *p), t[0] * jax.random.normal(key, t[0].shape)))
    return jnp.sin(noise(jax.random.key(3), x))


SHAPES = (nested, in_scan, in_cond, in_jit, in_vmap)
FUNCTIONS = {
    f"{f.__name__}-{r.__name__}": partial(f, r) for f in SHAPES for r in (vjp_with, jvp_with)
}
FUNCTIONS |= {"ode": solved, "key": keyed, "second": in_loss_of_scan}


@pytest.mark.parametrize(
    "name",
    spared(FUNCTIONS, "nested-vjp_with", "in_scan-vjp_with", "in_scan-jvp_with", "in_cond-jvp_with",
        "in_jit-jvp_with", "in_vmap-vjp_with", "ode", "key", "second"),
)  # fmt: skip
def test_values_that_the_function_computes(name):
    f = FUNCTIONS[name]
    expected = jax.jacrev(f)(X)  # which JAX cannot compile for all of them
    orders = ("auto", "forward", "reverse", "markowitz")[: 1 if name == "ode" else None]
    ours = [veenv.jacve(f, order) for order in orders]
    compiled = quick_jit(lambda x: [jacobian(x) for jacobian in ours])(X)
    for found in (*compiled, *(jacobian(X) for jacobian in ours[1:3])):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [vjp_with, jvp_with])
def test_value_of_an_outer_trace(rule):
    """Under jit a value of its other arguments is no more than a tracer."""

    def f(x, w):
        return rule(2 * w)(x) * x

    pairs = [(veenv.jacve(f, order), jax.jacrev(f)) for order in ("forward", "auto")]
    assert_compiled_same(pairs, X, X, tol=1e-5)


def test_second_derivatives_and_the_rest():
    def loss(x):
        return jnp.sum(jvp_with(made())(x) * x)

    expected = quick_jit(jax.hessian(loss))(X)
    np.testing.assert_allclose(veenv.hessian(loss)(X), expected, rtol=1e-5)
    twice = veenv.jacve(veenv.jacve(loss))
    np.testing.assert_allclose(jax.jit(twice)(X), expected, rtol=1e-5)
    np.testing.assert_allclose(veenv.laplacian(loss)(X), jnp.trace(expected), rtol=1e-5)
    assert veenv.make_graph(loss)(X).num_inputs == 1


STOPPED = {
    "stopped": lambda x: 2 * lax.stop_gradient(jnp.sin(x)),
    "compared": lambda x: jnp.where(x > 0.5, 2.0, 1.0),
    "rounded": lambda x: jnp.floor(3 * x),
    "chosen": lambda x: jnp.arange(3.0)[jnp.argmax(x)],
}


@pytest.mark.parametrize(
    ("name", "rule"),
    spared(product(STOPPED, (vjp_with, jvp_with)), *[("stopped", jvp_with), ("compared", vjp_with),
        ("chosen", jvp_with)]),
)  # fmt: skip
def test_values_without_derivatives_of_the_input(name, rule):
    def f(x):
        return jax.checkpoint(rule(STOPPED[name](x)))(x) * x

    def loss(x):
        return jnp.sum(f(x))

    ours = [veenv.jacve(f, order) for order in ("reverse", "markowitz", "auto")]
    pairs = [(jacobian, jax.jacrev(f)) for jacobian in ours]
    twice = veenv.jacve(veenv.jacve(loss))
    pairs += [(second, jax.hessian(loss)) for second in (veenv.hessian(loss), twice)]
    assert_compiled_same(pairs, X, tol=1e-5)
    for found, expected in ((ours[0], jax.jacrev(f)), (twice, jax.hessian(loss))):
        np.testing.assert_allclose(found(X), quick_jit(expected)(X), rtol=1e-5, atol=1e-6)


def test_values_of_the_body_of_a_vmap():
    def f(x):
        return jax.vmap(lambda a, b: jvp_with(b * lax.stop_gradient(a))(a))(x, jnp.arange(3.0))

    ours = [veenv.jacve(f, order) for order in ("forward", "reverse", "auto")]
    assert_compiled_same([(jacobian, jax.jacfwd(f)) for jacobian in ours], X, tol=1e-5)
    np.testing.assert_allclose(ours[0](X), quick_jit(jax.jacfwd(f))(X), rtol=1e-5)
    assert veenv.make_graph(f)(X).num_vertices == 1


def test_what_depends_on_the_input_is_refused_by_name():
    def f(x):
        return vjp_with(jnp.cos(x))(x)

    with pytest.raises(jax.errors.UnexpectedTracerError, match=r"sine at .*test_captured_values"):
        veenv.jacve(f)(X)
