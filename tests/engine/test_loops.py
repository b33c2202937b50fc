"""Functions that are loops, mostly: one of JAX's modes is taken where it does less."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles import by_numpy
from tests.oracles.jacobians import together

pytestmark = pytest.mark.kernels

X, W = np.array([0.3, -0.2, 0.5]), np.linspace(-0.4, 0.6, 9).reshape(3, 3)


def steps(x, w, length=1000):
    """States of a recurrent network: two operators, into one loop."""
    return jax.lax.scan(lambda c, _: (jnp.tanh(w @ c + x), c), x, None, length=length)[0]


def wide(x):
    return steps(x, jnp.outer(x, x))


def solved(x, length=3):
    """A short loop that no kernel has."""

    def step(c, _):
        return jnp.linalg.eigvalsh(jnp.diag(jnp.arange(3.0) + 4) + jnp.outer(c, x)), None

    return jax.lax.scan(step, jnp.sin(x), None, length=length)[0]


def waist(x):
    """A loop of one number between many."""
    one = jax.lax.scan(lambda c, _: (jnp.sin(c) * c, None), jnp.sum(x * x), None, length=10000)[0]
    return one * jnp.cos(x)


def mapped(x):
    """A loop for each number: its partials are diagonal."""
    one = lambda c: jax.lax.scan(lambda c, _: (c - jnp.sin(c), None), c, None, length=10000)[0]  # noqa: E731
    return jax.vmap(one)(jnp.cos(x)) * x


def beside(x):
    """A short loop, and more of something else."""
    big = jnp.tanh(jnp.outer(jnp.arange(4000.0), x)).sum(0)
    return jax.lax.scan(lambda c, _: (jnp.sin(c) * x, None), big, None, length=4)[0]


def test_a_mode_is_said_to_be_taken():
    """One of few passes, or one that keeps no tape of many steps."""
    for fun in (wide, solved, waist, mapped):
        rows = veenv.explain(fun, X.astype(np.float32)).rows
        assert {row.label.split(",")[0].split(" ")[0] for row in rows if row.taken} == {"jacfwd"}


@pytest.mark.parametrize("fun", [wide, solved, waist, mapped, beside])
def test_values(x64, fun):
    points = np.stack([X, X + 0.1, X - 0.2])
    ways = itertools.product(("reverse", "auto"), ("auto", "xla"))
    every = [jax.jacrev(fun), *(veenv.jacve(fun, order, kernel=kernel) for order, kernel in ways)]
    expected, *found = together(map(jax.vmap, every), points)
    for jacobian in found:
        np.testing.assert_allclose(jacobian, expected, rtol=1e-10, atol=1e-14)


def test_two_sources_of_one_loop_pass_through_it_apart(x64):
    """Its results share their passes, in every order, but not those of different operands."""

    def fun(x, y):
        step = lambda c, a: (jnp.sin(W[:2, :2] @ c) * a, c.sum() * c)  # noqa: E731
        end, seen = jax.lax.scan(step, x * y, jnp.array([1.0, 2.0]))
        return seen * 2, end

    args = np.array([0.3, -0.7]), np.array([1.1, 0.4])
    orders = itertools.permutations(veenv.make_graph(fun, (0, 1))(*args).eliminable)
    every = [jax.jacrev(fun, (0, 1)), *(veenv.jacve(fun, o, (0, 1), kernel="xla") for o in orders)]
    expected, *found = by_numpy.run(lambda *a: [jacobian(*a) for jacobian in every], *args)
    for jacobian in found:
        assert veenv.tree_allclose(jacobian, expected, rtol=1e-9, atol=1e-12)
