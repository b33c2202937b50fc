"""Refs: what is written to them and read again is differentiated as JAX does, or refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, orders
from tests.sampling import thinned
from veenv import jacve

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, -0.7, 1.1])


def plain(x):
    ref = jax.new_ref(x * 2)
    ref[...] = jnp.sin(ref[...]) * x[0]
    return ref[...] * x


def loop(x):
    ref = jax.new_ref(jnp.zeros(3))

    def body(i, carry):
        ref[i] += x[i] ** 2
        return carry + ref[0] * x[2]

    total = lax.fori_loop(0, 3, body, 0.0)
    return jax.freeze(ref) * total


def several(x):
    """Two refs used in turn, with values between them that no ref sees."""
    y = jnp.cos(x)
    a, b = jax.new_ref(x), jax.new_ref(jnp.zeros(3))
    z = jnp.exp(y)
    b[1:] = a[:2] * z[1:]
    w = jnp.tanh(b[...])
    a[...] = w * w
    aside = y * z
    return jnp.sin(a[...]) + b[...] * aside, aside


def one_after_another(x):
    a = jax.new_ref(x * x)
    a[0] = x[1]
    y = jnp.sin(jax.freeze(a))
    b = jax.new_ref(y)
    b[2] = y[0] * x[0]
    return jnp.cos(jax.freeze(b))


def branches(x):
    ref = jax.new_ref(x)

    def yes():
        ref[1] = x[0] * x[2]

    def no():
        ref[0] = x[1]

    lax.cond(x[0] > 0, yes, no)
    return ref[...] ** 2


def inside_a_body(x):
    def step(carry, v):
        ref = jax.new_ref(carry)
        ref[...] = jnp.sin(ref[...] * v)
        return ref[...] + v, ref[...] * 2

    return lax.scan(step, x[0], x)


def inside_jit(x):
    @jax.jit
    def square(ref):
        ref[...] = ref[...] ** 2

    ref = jax.new_ref(jnp.sin(x))
    square(ref)
    return ref[...] * x


def of_constants(x):
    ref = jax.new_ref(jnp.arange(3.0))
    ref[0] = 2.0
    return ref[...] * x


def counted(x):
    number = jax.new_ref(jnp.zeros((), jnp.int32))
    out = jax.new_ref(x)

    def body(i, _):
        number[...] += 1
        out[i] = out[i] * x[0]

    lax.fori_loop(0, 2, body, None)
    return out[...] * number[...].astype(x.dtype)


EVERY = [plain, loop, several, one_after_another, inside_a_body, inside_jit, of_constants, counted]


def _expected(jacobian):
    """What JAX says, where it can: version 0.10 fails on refs made of constants."""
    try:
        return jacobian(X)
    except AttributeError as error:
        pytest.skip(f"this version of JAX cannot differentiate it: {error}")


@pytest.mark.parametrize("fun", EVERY)
def test_refs(fun):
    expected = _expected(jax.jit(jax.jacrev(fun)))
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(expected))
    graph = veenv.make_graph(fun)(X)
    every = [jacve(fun, ids) for ids in orders(graph, 1)]
    for got in jax.jit(lambda x: [jacobian(x) for jacobian in every])(X):
        assert_same(got, expected)


@pytest.mark.parametrize("fun", thinned(EVERY, 8))
def test_refs_outside_of_jit(fun):
    assert_same(jacve(fun, "forward")(X), _expected(jax.jacrev(fun)))


def test_equations_before_the_first_ref_and_after_the_last_keep_their_vertices():
    names = veenv.make_graph(several)(X).primitives
    assert {"refs", "cos", "mul"} <= set(names)
    assert not {"exp", "tanh"} & set(names)


def test_a_batch_and_a_second_derivative():
    batch = np.stack([X, X**2])
    expected = jax.jit(jax.vmap(jax.jacrev(plain)))(batch)
    assert_same(jax.jit(jax.vmap(jacve(plain, "forward")))(batch), expected)
    expected = _expected(jax.jit(jax.jacrev(jax.jacrev(plain))))
    assert_same(jax.jit(jacve(jacve(plain)))(X), expected)
    expected = _expected(jax.jit(jax.jacrev(jax.jacrev(loop))))
    assert_same(jax.jit(jax.jacrev(jacve(loop)))(X), expected)


def test_what_jax_cannot_differentiate_is_refused_with_the_line():
    with pytest.raises(NotImplementedError):
        jax.jacrev(branches)(X)
    with pytest.raises(NotImplementedError, match=r"cond.*test_refs\.py:\d+"):
        jacve(branches)(X)


def test_refs_from_outside_are_refused_with_the_line():
    ref = jax.new_ref(jnp.ones(3))

    def writes(x):
        ref[...] = x * 2
        return ref[...] * x

    with pytest.raises(NotImplementedError, match=r"jax.new_ref.*test_refs\.py:\d+"):
        jacve(writes)(X)
