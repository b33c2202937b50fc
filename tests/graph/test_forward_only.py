"""Tangent rules that JAX cannot transpose: forward mode's values, in orders that allow them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.graph.test_random_rules import CUTS
from tests.oracles.jacobians import quick_jit

X = jnp.array([0.3, -0.7, 1.1])
RULES = {name: CUTS[name] for name in ("nan_to_num", "where", "square", "norm")}


def sine_with(rule):
    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvp(lambda p, t: (sine(*p), rule(jnp.cos(p[0]) * t[0])))
    return sine


def at_input(sine, x):
    return sine(x) * x


def between(sine, x):
    return jnp.cumsum(sine(jnp.exp(x) * x[0])) * x


def twice(sine, x):
    return sine(sine(2 * x) * x)


def in_scan(sine, x):
    return lax.scan(lambda c, a: (sine(c) * a, None), x * 2, jnp.arange(1.0, 4.0))[0]


@pytest.mark.parametrize("f", [at_input, between, twice, in_scan])
def test_values_are_those_of_forward_mode(f):
    def jacobians(rule, x):
        fun = partial(f, sine_with(RULES[rule]))
        found = [veenv.jacve(fun, order)(x) for order in ("forward", "markowitz", "auto")]
        sparse = veenv.jacve(fun, sparse_representation=True)(x)
        return jax.jacfwd(fun)(x), *found, sparse.todense()

    rules = RULES if f is at_input else ("square", "norm")
    every = quick_jit(lambda x: {rule: jacobians(rule, x) for rule in rules})(X)
    every["outside of jit"] = jacobians("square", X)
    for rule, (expected, *found) in every.items():
        for jacobian in found:
            np.testing.assert_allclose(jacobian, expected, rtol=1e-5, atol=1e-6, err_msg=rule)


def test_orders_are_refused_by_name_and_line():
    sine = sine_with(RULES["square"])

    def f(x):
        return jnp.cos(sine(jnp.exp(2 * x)))

    graph = veenv.make_graph(f)(X)
    assert graph.legal(graph.reverse()) == graph.forward()
    with pytest.raises(ValueError, match=r"sine at .*test_forward_only.* cannot be transposed"):
        veenv.jacve(f, graph.reverse())(X)


@pytest.mark.parametrize("rule", ["square", "norm"])
def test_hessians_are_those_of_forward_mode_twice(rule):
    sine = sine_with(RULES[rule])

    def loss(x):
        return jnp.sum(sine(x) * x)

    expected = jax.jacfwd(jax.jacfwd(loss))(X)
    hessian = veenv.hessian(loss, order="auto")
    for run in (hessian, jax.jit(hessian)):
        np.testing.assert_allclose(run(X), expected, rtol=1e-5, atol=1e-6)


def test_no_order_for_rules_of_both_kinds():
    sine = sine_with(RULES["square"])

    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))
    with pytest.raises(
        ValueError, match=r"no order can apply the .* rules of (?=.*clipped)(?=.*sine)"
    ):
        veenv.jacve(lambda x: jnp.cos(sine(clipped(jnp.exp(x)) * 2) * x))(X)
