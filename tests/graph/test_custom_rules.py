"""Derivative rules that call the function they are of, as linear functions like to."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P

import veenv
from tests.oracles.jacobians import assert_orders, assert_same
from tests.sampling import few, spared

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, -0.7, 1.1])


@jax.custom_jvp
def mirror(x):
    return 2 * x[::-1]


@mirror.defjvp
def _(primals, tangents):
    return mirror(*primals), mirror(*tangents)


@jax.custom_vjp
def flip(x):
    return x[::-1]


flip.defvjp(lambda x: (flip(x), None), lambda _, g: (flip(g),))


@jax.custom_jvp
def product(x, y):
    """A bilinear function whose rule calls it on two lines."""
    return x * y[::-1]


@product.defjvp
def _(primals, tangents):
    (x, y), (s, t) = primals, tangents
    by_x = product(s, y)
    by_y = product(x, t)
    return product(x, y), by_x + by_y


@jax.custom_jvp
def ping(x):
    return jnp.cumsum(x)


@jax.custom_jvp
def pong(x):
    return jnp.cumsum(x)


@ping.defjvp
def _(primals, tangents):
    return ping(*primals), pong(*tangents)


@pong.defjvp
def _(primals, tangents):
    return pong(*primals), ping(*tangents)


@jax.custom_jvp
def looped(x):
    """A rule that calls its function in a loop."""
    return x * 3


@looped.defjvp
def _(primals, tangents):
    step = lambda c, _: (looped(c) / 3, None)  # noqa: E731
    return looped(*primals), 3 * lax.scan(step, *tangents, length=2)[0]


@jax.custom_vjp
def both_ways(x, y):
    return x[::-1] + y, y * 2


both_ways.defvjp(
    lambda x, y: (both_ways(x, y), None),
    lambda _, gs: (both_ways(gs[0], 0 * gs[1])[0], gs[0] + both_ways(gs[0], gs[1])[1]),
)

UNARY = {"mirror": mirror, "flip": flip, "ping": ping, "looped": looped}
BINARY = {"product": product, "both": lambda x, y: sum(both_ways(x, y))}
PLACES = ["alone", "scan", "cond", "vmap"]
PLAIN = [jnp.sin, jnp.tanh, lambda x: x * x.sum(), lambda x: x[::-1]]


@pytest.mark.parametrize(
    ("name", "place"),
    spared(itertools.product([*UNARY, *BINARY], PLACES),
        *[(name, "alone") for name in ("ping", "product")],
        *[("flip", "scan"), ("both", "scan"), ("mirror", "cond"), ("looped", "vmap")]),
)  # fmt: skip
def test_rules_met_inside_themselves(name, place):
    rule = UNARY.get(name) or (lambda x: BINARY[name](x, jnp.cos(x)))

    def fun(x):
        x = jnp.sin(x)
        if place == "scan":
            return lax.scan(lambda c, _: (jnp.sin(rule(c)), c.sum()), x, None, length=2)
        if place == "cond":
            return lax.cond(x[0] > 0, rule, lambda v: v * v, x) * x
        return jax.vmap(rule)(jnp.stack([x, x * x])) if place == "vmap" else rule(x) * x

    # Outside of jit, too, where rules run with concrete values.
    expected = jax.jacrev(fun)(X)
    assert_same(veenv.jacve(fun, "forward")(X), expected)
    assert_orders(fun, (X,), 0, jax.jacrev, num_random=1)


@settings(max_examples=few(3, of=15), deadline=None)
@given(st.lists(st.integers(0, 99), min_size=2, max_size=6))
def test_random_programs_of_rules_that_call_themselves(choices):
    def fun(x, y):
        known = [x, y]
        for c in choices:
            u, v = known[c % len(known)], known[-1]
            every = [*UNARY.values(), *BINARY.values(), *PLAIN]
            chosen = every[c % len(every)]
            known.append(chosen(u, v) if chosen in BINARY.values() else chosen(u))
        return known[-1], known[-2]

    assert_orders(fun, (X, X[::-1] + 2), (0, 1), jax.jacrev, 1)


@jax.custom_jvp
def _constant(x):
    return np.zeros(x.shape, x.dtype)


_constant.defjvp(lambda primals, tangents: (_constant(*primals), 2 * tangents[0]))


@pytest.mark.parametrize("order", ["auto", "reverse", "forward"])
def test_constants_of_a_vmap_whose_tangent_is_none(order):
    """The function has an axis only while JAX differentiates it."""
    fun = lambda x: jax.vmap(_constant)(x) * x + jnp.sin(x)  # noqa: E731
    expected = jax.jacrev(fun)(X)
    assert expected.any()
    for jacobian in (veenv.jacve(fun, order), jax.jit(veenv.jacve(fun, order))):
        np.testing.assert_allclose(jacobian(X), expected, rtol=1e-12)
    with pytest.raises(TypeError, match=r"derivative rule of _constant.*shape \(3,\) where one of"):
        veenv.jacve(jax.jit(fun), order)(X)  # JAX refuses it, too


@jax.custom_jvp
def _fixed(x):
    return 2 * x


def _refuses(primals, tangents):
    if type(tangents[0]) is not jax.custom_derivatives.SymbolicZero:
        raise RuntimeError("not to be differentiated")
    return _fixed(*primals), tangents[0]


_fixed.defjvp(_refuses, symbolic_zeros=True)


def _step(carry):
    t, x = carry
    return jnp.sin(_fixed(t)), jnp.cos(x) * t


BESIDE = {
    "while": lambda x: lax.while_loop(lambda c: c[0] < 0.95, _step, (0.4, x))[1],
    "scan": lambda x: lax.scan(lambda c, _: (_step(c), c[0]), (0.4, x), None, length=3)[0][1],
    "cond": lambda x: lax.cond(x[0] > 0, _step, lambda c: c, (0.4, x))[1],
    "nested": lambda x: lax.scan(lambda c, a: (lax.cond(a > 1, lambda c: _step(_step(c)), _step,
        c), None), (0.4, x), jnp.arange(3.0))[0][1],
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_rules_of_what_does_not_move_in_bodies(name):
    """A rule that refuses every tangent says nothing against a loop that gives it none."""
    fun = lambda x: jnp.sin(BESIDE[name](jnp.exp(x) * x)) ** 2  # noqa: E731
    expected = jax.jacfwd(fun)(X)
    for order in ("forward", "auto") if name == "while" else ("forward", "reverse", "auto"):
        np.testing.assert_allclose(veenv.jacve(fun, order)(X), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(veenv.jacve(fun))(X), expected, rtol=1e-12)


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("fun", [jax.nn.relu, jax.nn.relu6])
def test_devices_that_differ_in_the_operands_of_a_rule(fun, order):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    points = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3)

    def scaled(x):
        return jnp.sum(fun(2 * x)) * x

    jacobian = jax.vmap(veenv.jacve(scaled, order))
    parted = jax.shard_map(jacobian, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    expected = jax.vmap(jax.jacrev(scaled))(points)
    np.testing.assert_allclose(jax.jit(parted)(points), expected, rtol=1e-12)


def test_ones_beside_zeros_in_a_barrier_are_no_zeros():
    """A rule that gives a cotangent where it gets none is refused, not taken for zero."""
    step = jax.custom_vjp(jnp.sin)

    def backward(_, g):
        _, one = lax.optimization_barrier((jnp.clip(g, -1, 1), jnp.ones_like(g)))
        return (one,)

    step.defvjp(lambda x: (jnp.sin(x), None), backward)
    jacobian = veenv.jacve(lambda x: (step(x * x), 2 * x), sparse_representation=True)
    with pytest.raises(ValueError, match="not provably zero where its cotangent is"):
        jacobian(X)
