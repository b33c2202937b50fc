"""Pins by need: a value is stored where it is expensive and would be computed again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv import _compat

X = np.linspace(0.3, 1.2, 6)


def barriers(fun, *args, pin="auto", **options) -> int:
    jaxpr = jax.make_jaxpr(veenv.jacve(fun, pin=pin, **options))(*args)
    return sum(e.primitive.name == "optimization_barrier" for e in _compat.open_jaxpr(jaxpr).eqns)


def stencil(x):
    """Cheap operations only."""
    u, v = x
    ring = jnp.roll(u, 1) - 2.0 * u + jnp.roll(u, -1)
    return jnp.stack([u * u * v + 0.5 * ring, 3.0 * u - u * u * v])


def deep(x):
    """A chain of sines whose derivative scales a whole matrix."""
    y = x
    for _ in range(3):
        y = jnp.sin(y) * y
    return jnp.outer(y, y)


def test_nothing_cheap_is_pinned():
    x = np.stack([X, X + 1.0])
    pinned = barriers(stencil, x, pin=True)
    # What is left is the constant part of the stencil, which a batch shares.
    assert barriers(stencil, x) <= 2 < pinned


def test_what_is_expensive_and_repeated_stays_pinned():
    assert barriers(deep, X) > 0
    assert barriers(deep, X, pin=False) == 0


def test_an_expensive_value_that_is_used_once_is_not_pinned():
    assert barriers(lambda x: jnp.sin(x), 0.5) == 0
    assert barriers(lambda x: jnp.sin(x), 0.5, pin=True) > 0


@pytest.mark.usefixtures("optimised")
def test_a_dense_sum_that_is_an_output_is_written_once():
    x = jnp.asarray(np.stack([X, X + 1.0])[None] * np.ones((50, 1, 1)), jnp.float32)
    compiled = jax.jit(jax.vmap(veenv.jacve(stencil))).lower(x).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 0.1 * memory.output_size_in_bytes


@pytest.mark.parametrize("pin", ["auto", True, False])
@pytest.mark.parametrize("fun", [stencil, deep])
def test_pins_change_no_value(x64, fun, pin):
    x = np.stack([X, X + 1.0]) if fun is stencil else X
    found, expected = jax.jit(lambda z: (veenv.jacve(fun, pin=pin)(z), jax.jacrev(fun)(z)))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_counts_values_auxiliaries_and_sparse_blocks_come_through(x64):
    def f(x):
        return jnp.sin(x) * jnp.roll(x, 1), {"sum": jnp.sum(x)}

    @jax.jit
    def both(x):
        (value, aux), jacobian = veenv.value_and_jacve(f, has_aux=True)(x)
        sparse, _ = veenv.jacve(f, has_aux=True, sparse_representation=True)(x)
        return value, aux["sum"], jacobian, sparse.todense()

    value, total, jacobian, dense = both(X)
    expected = jax.jacrev(lambda x: f(x)[0])(X)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dense, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(value, f(X)[0])
    np.testing.assert_allclose(total, X.sum())
    assert jax.jit(lambda x: veenv.jacve(jnp.sin, count_ops=True)(x)[0])(0.5).shape == ()


def test_closures_over_batches_are_not_shared(x64):
    def rows(x, w):
        return veenv.jacve(lambda z: jnp.sin(w * z) * jnp.roll(z, 1))(x)

    w = np.stack([X, 2.0 * X])
    found = jax.jit(jax.vmap(rows, in_axes=(None, 0)))(X, w)
    for k in range(2):
        one = jax.jacrev(lambda z, k=k: jnp.sin(w[k] * z) * jnp.roll(z, 1))(X)
        np.testing.assert_allclose(found[k], one, rtol=1e-12, atol=1e-12)


def test_values_of_other_arguments_may_decide_inside_of_jit(x64):
    def f(x, n, ends):
        return jnp.sin(x)[: n[0]] * x[ends]

    others = np.array([3]), np.array([0, 2, 4])
    found = jax.jit(lambda x: veenv.jacve(f)(x, *others))(X)
    np.testing.assert_allclose(found, jax.jacrev(f)(X, *others), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"pin": False}, {"kernel": "fused"}], ids=str)
def test_a_jacobian_within_the_function_keeps_its_pins(options):
    """So the function has one graph, whatever becomes of the Jacobian around it."""
    slope = veenv.jacve(lambda x: jnp.sin(x) * jnp.exp(jnp.sin(x)), pin=True)
    graph = veenv.make_graph(slope)(0.5)
    assert "optimization_barrier" in repr(graph)
    order = graph.reverse()
    got = jax.jit(veenv.jacve(slope, order, **options))(0.5)
    np.testing.assert_allclose(got, jax.jacrev(slope)(0.5), rtol=1e-5)
