"""Functions that do more than compute: callbacks with and without results, checks."""

import itertools
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify, io_callback

import veenv
from tests.sampling import spared

X = jnp.array([0.3, 0.7, 1.1])
seen = []


def note(*values):
    seen.append(values)


def number_of_effects(run):
    """How often callbacks are called, and what is returned."""
    jax.effects_barrier()
    seen.clear()
    found = jax.block_until_ready(run(X))
    jax.effects_barrier()
    return len(seen), found


def of_used(x):
    y = jnp.sin(x)
    jax.debug.callback(note, y)
    return y


def ordered(x):
    y = jnp.sin(x)
    jax.debug.callback(note, y, ordered=True)
    return 2 * y


def of_constants(x):
    jax.debug.callback(note, jnp.arange(3))
    return jnp.sin(x) * x


def without_result(x):
    io_callback(lambda x: note(x), None, lax.stop_gradient(x), ordered=True)
    return jnp.sin(x)


def with_result(x):
    def two():
        note()
        return np.float32(2)

    return jnp.sin(x) * io_callback(two, jax.ShapeDtypeStruct((), jnp.float32))


def of_unused(x):
    jax.debug.callback(note, 2 * x)
    return jnp.sin(x) * x


def in_jit(x):
    return jax.jit(of_used)(x) * x


SIMPLE = (of_used, ordered, of_constants, without_result, with_result, of_unused, in_jit)


@pytest.mark.parametrize(
    ("f", "order"),
    spared(itertools.product(SIMPLE, ["forward", "reverse", "markowitz", "auto"]),
        *((f, "auto") for f in SIMPLE), (of_used, "forward"), (with_result, "reverse"),
        (in_jit, "markowitz"), (of_unused, "forward"), (without_result, "markowitz"),
        (ordered, "reverse")),
)  # fmt: skip
def test_effects_happen_once(f, order):
    expected = jax.jit(jax.jacrev(f))(X)
    jacobian = veenv.jacve(f, order)
    for run in (jacobian, jax.jit(jacobian)):
        count, found = number_of_effects(run)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert count == 1


@pytest.mark.parametrize("f", [of_used, of_unused])
def test_in_other_calls(f):
    def total(x):
        return f(x).sum()

    expected = jax.jit(jax.hessian(total))(X)
    np.testing.assert_allclose(jax.jit(veenv.hessian(total))(X), expected, atol=1e-6)
    np.testing.assert_allclose(jax.jit(veenv.laplacian(total))(X), jnp.trace(expected), rtol=1e-5)
    value, slopes = jax.jit(veenv.value_and_jacve(f))(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-6)
    both = jnp.stack([X, 2 * X])
    batched = jax.jit(jax.vmap(veenv.jacve(f)))(both)
    np.testing.assert_allclose(batched, jax.jit(jax.vmap(jax.jacrev(f)))(both), rtol=1e-6)
    np.testing.assert_allclose(slopes, batched[0], rtol=1e-6)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_checks(transform):
    def f(x):
        checkify.check(jnp.all(x > 0), "not positive")
        return jnp.sin(x)

    jacobian = veenv.jacve(lambda x: checkify.checkify(f)(x)[1])
    np.testing.assert_allclose(transform(jacobian)(X), jnp.diag(jnp.cos(X)), rtol=1e-6)
    around = checkify.checkify(transform(veenv.jacve(f)))
    error, found = around(X)
    error.throw()
    np.testing.assert_allclose(found, jnp.diag(jnp.cos(X)), rtol=1e-6)
    with pytest.raises(Exception, match="not positive"):
        around(-X)[0].throw()


def tapped(x, *, ordered=False):
    jax.debug.callback(note, x, ordered=ordered)
    return jnp.sin(x)


def scaled(x):
    def two(x):
        note(x)
        return np.float32(2)

    shape = jax.ShapeDtypeStruct((), jnp.float32)
    return jnp.sin(x) * io_callback(two, shape, lax.stop_gradient(x))


@jax.custom_jvp
def tangent_rule(x):
    return tapped(x)


@tangent_rule.defjvp
def _(primals, tangents):
    jax.debug.callback(note, primals[0])
    jax.debug.callback(note, tangents[0])
    return tangent_rule(*primals), jnp.cos(primals[0]) * tangents[0]


@jax.custom_vjp
def cotangent_rule(x):
    return tapped(x)


def _back(x, g):
    jax.debug.callback(note, x)
    jax.debug.callback(note, g)
    return (jnp.cos(x) * g,)


cotangent_rule.defvjp(lambda x: (tapped(x), x), _back)


def scan(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]


def scan_of_two(f):
    def run(x):
        a, b = lax.scan(lambda c, _: ((f(c[0]), c[0] * c[1]), None), (x, 2 * x), None, length=3)[0]
        return a * b

    return run


def repeat(f):
    return lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]


def repeat_two(f):
    def run(x):
        def body(s):
            return s[0] + 1, f(s[1]), s[1] * s[2]

        _, a, b = lax.while_loop(lambda s: s[0] < 3, body, (0, x, 2 * x))
        return a * b

    return run


def branch(f):
    return lambda x: lax.cond(x.sum() > 0, f, jnp.cos, x)


def between(f):
    return lambda x: jnp.exp(f(2 * jnp.sin(x))) * x


def complexes(f):
    return lambda x: jnp.abs(scan(f)(lax.complex(x, 2 * x)))


def solve(x):
    a = jnp.diag(x) + 0.1

    def product(v):
        jax.debug.callback(note, v)
        return a @ v

    def inverse(_, b):
        return jnp.linalg.inv(a) @ b

    return lax.custom_linear_solve(product, x, inverse, symmetric=True)


IN_BODIES = {  # every part, every way of holding it, every kind of operator
    "tapped, repeated": repeat_two(tapped),
    "scaled in a scan": scan_of_two(scaled),
    "tangent rule": between(tangent_rule),
    "cotangent rule in a scan": scan_of_two(cotangent_rule),
    "cotangent rule in a branch": branch(cotangent_rule),
    "ordered, repeated": repeat(partial(tapped, ordered=True)),
    "scans side by side": jax.vmap(scan(tapped)),
    "complex": complexes(tapped),
    "solve": solve,
}


@pytest.mark.parametrize(
    "name", spared(IN_BODIES, *(n for n in IN_BODIES if n not in ("complex", "solve")))
)
def test_effects_in_bodies_and_rules_happen_as_often_as_in_jax(name):
    f = IN_BODIES[name]
    most: dict[str, int] = {}
    expected: Any = None
    for order, mode in {"forward": jax.jacfwd, "reverse": jax.jacrev}.items():
        with suppress(TypeError, ValueError):  # JAX has no such mode of it
            most[order], expected = number_of_effects(mode(f))
    runs = {order: veenv.jacve(f, order) for order in most}
    runs["jit"] = jax.jit(veenv.jacve(f))
    for order, run in runs.items():
        count, found = number_of_effects(run)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
        assert count <= most.get(order, max(most.values())), order


@pytest.mark.parametrize("way", [lambda f: f, between, scan])
def test_rules_see_the_cotangents_of_reverse_mode(way):
    f = way(cotangent_rule)
    number_of_effects(jax.jacrev(f))
    expected = sorted(str(np.round(values, 5)) for values in seen)
    number_of_effects(veenv.jacve(f))
    assert sorted(str(np.round(values, 5)) for values in seen) == expected
