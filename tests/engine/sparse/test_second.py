"""Hessians and Laplacians against JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same, assert_same, quick_jit, together
from tests.sampling import spared

FIRST, SECOND = np.triu_indices(4, 1)
WEIGHTS = np.random.default_rng(0).normal(size=(12, 5)), np.random.default_rng(1).normal(size=5)


def pairs(x):
    p = x.reshape(4, 3)
    squares = jnp.sum((p[FIRST] - p[SECOND]) ** 2, axis=1)
    return jnp.sum(jnp.exp(-squares) + 1 / jnp.sqrt(squares))


def network(x):
    return jnp.tanh(x @ WEIGHTS[0]) @ WEIGHTS[1]


def chain(x):
    return jnp.sum(jnp.cos(x[1:] - x[:-1]) * x[1:]) / x[0] + jax.nn.softplus(x).sum()


def several(x):
    product = jnp.einsum("i,i,i->", x[:4], x[4:8] ** 2, x[8:])
    return {
        "a": jnp.stack([product, jnp.max(x) ** 3]),
        "b": jnp.cumsum(x) * x.sum(),
        "c": jnp.ones(2),
    }


def mixed(x):
    """Every way in which few numbers stay few: moves, sums, joins, and those that end it."""
    a, b = jnp.split(x, [4])
    u = jnp.pad(b[::-1].reshape(2, 4).T, ((1, 0), (0, 1))) * x[3]
    v = jnp.concatenate([a * a, jnp.ones(2), u[:, 1] / a[0], b[np.array([0, 7, 7])]])
    w = jnp.where(v > 0.9, v**2, jnp.maximum(v[::-1], jnp.roll(v, 1)))
    some = jnp.sum(u * jnp.tile(a[None, :3], (5, 1)), axis=0)
    return jnp.sum(w) * jnp.tanh(w[2]) + some @ some + jnp.arctan2(w, v).sum()


def segments(x, at):
    return jnp.sin(jax.ops.segment_sum(x[at] * x[at[::-1]], at, 4)).sum() + x[at[1]] ** 3


X = np.random.default_rng(2).uniform(0.5, 1.5, size=12)


@pytest.mark.parametrize("fun", [pairs, network, chain])
def test_hessians(fun, x64):
    sparse = veenv.hessian(fun, sparse_representation=True)
    ours = veenv.hessian(fun), lambda x: sparse(x).todense()
    assert_compiled_same([(hessian, jax.hessian(fun)) for hessian in ours], X, tol=1e-10)


@pytest.mark.parametrize(("argnums", "transform"), [(1, lambda g: g), ((1, 0), jax.jit)])
def test_hessians_of_arrays_and_trees(argnums, transform, x64):
    def fun(p, q):
        return {"a": jnp.outer(p["u"], q) * p["v"], "b": jnp.sin(q).sum(), "c": [p["v"] ** 2]}

    args = {"u": X[:2], "v": X[3]}, X[4:7]
    found = transform(veenv.hessian(fun, argnums=argnums))(*args)
    assert_same(found, quick_jit(jax.hessian(fun, argnums))(*args), tol=1e-12)
    cubes = lambda x: x**3  # noqa: E731
    sparse = transform(veenv.hessian(cubes, sparse_representation=True))(X)
    np.testing.assert_allclose(sparse.todense(), quick_jit(jax.hessian(cubes))(X), rtol=1e-12)


def test_the_hessian_of_a_long_loop_takes_no_more_than_jax_s(x64):
    def loss(x):
        def step(state, _):
            return jnp.tanh(jnp.roll(state, 1) * state + x), state.sum()

        state, sums = jax.lax.scan(step, x, None, length=65)
        return jnp.sum(state**2) + jnp.sum(sums**2)

    def flops(hessian):
        return jax.jit(hessian).lower(X).compile().cost_analysis()["flops"]

    assert flops(veenv.hessian(loss)) <= 1.05 * flops(jax.hessian(loss))


def test_a_rule_of_ones_own_need_not_be_symmetric(x64):
    @jax.custom_jvp
    def odd(x):
        return x[0] * x[1] + x[2] ** 2

    @odd.defjvp
    def odd_jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        return odd(x), x[1] * t[0] * x[2] + t[2]

    def fun(x):
        return odd(x[np.array([1, 0, 2])]) + jnp.sum(x**3)

    found, expected = together([veenv.hessian(fun), jax.hessian(fun)], X[:3])
    assert (expected != expected.T).any()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_derivatives_that_assume_symmetry_need_not_be_symmetric(x64):
    """JAX differentiates these as if the matrix were symmetric, which it is not here."""

    def fun(a, b, c, d):
        matrix = jnp.stack([jnp.stack([a, b]), jnp.stack([c, d])])
        vectors, _ = jax.lax.linalg.eigh(matrix, symmetrize_input=False)
        solved = jax.scipy.linalg.solve(matrix, jnp.arange(1.0, 3.0), assume_a="pos")
        return jnp.sin(vectors).sum() + solved @ solved

    args = 2.0, 0.3, 0.4, 1.5
    both = [h(fun, argnums=(0, 1, 2, 3)) for h in (veenv.hessian, jax.hessian)]
    found, expected = map(np.array, together(both, *args))
    assert np.abs(expected - expected.T).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("fun", spared([pairs, network, chain, several, mixed], pairs, mixed))
def test_laplacians(fun, x64):
    def of_hessian(x):
        hessian = jax.hessian(fun)(x)
        return jax.tree.map(lambda h: jnp.trace(h, axis1=-2, axis2=-1), hessian)

    assert_compiled_same([(veenv.laplacian(fun), of_hessian)], X, tol=1e-10)


def test_laplacians_through_indices_at_run_time(x64):
    trace = lambda x, at: jnp.trace(jax.hessian(segments)(x, at))  # noqa: E731
    pairs = [(veenv.laplacian(segments), trace)]
    assert_compiled_same(pairs, X, np.array([0, 5, 7, 5]), tol=1e-10, atol=0)


def test_laplacians_of_joined_arrays_carry_few_slopes(x64):
    def joined(x):
        both = jnp.stack([jnp.sin(x), x * x[::-1]], axis=1)  # by one number and by two
        return (jnp.pad(both, ((1, 2), (0, 0)), constant_values=3) ** 3).sum()

    x = jnp.arange(1.0, 13) / 7
    jaxpr = jax.make_jaxpr(jax.jit(veenv.laplacian(joined)))(x)
    eqns = jaxpr.eqns[0].params["jaxpr"].eqns
    assert max(v.aval.size for e in eqns for v in e.outvars) <= 4 * (x.size + 3)
    hessian = jax.hessian(joined)(x)
    np.testing.assert_allclose(veenv.laplacian(joined)(x), jnp.trace(hessian), rtol=1e-12)
