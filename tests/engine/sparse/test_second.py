"""Hessians and Laplacians against JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv

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


X = np.random.default_rng(2).uniform(0.5, 1.5, size=12)


@pytest.mark.parametrize("fun", [pairs, network, chain])
def test_hessians(fun, x64):
    sparse, dense, expected = jax.jit(
        lambda x: (
            veenv.hessian(fun, sparse_representation=True)(x),
            veenv.hessian(fun)(x),
            jax.hessian(fun)(x),
        )
    )(X)
    np.testing.assert_allclose(dense, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.asarray(sparse), expected, rtol=1e-10, atol=1e-10)


def test_hessians_by_several_arguments(x64):
    def fun(x, y):
        return jnp.sum(jnp.sin(x) * y[1:] * y[:-1])

    args = X[:3], X[:4]
    found, expected = jax.jit(
        lambda *a: (veenv.hessian(fun, argnums=(0, 1))(*a), jax.hessian(fun, (0, 1))(*a))
    )(*args)
    for row, wanted in zip(found, expected, strict=True):
        for block, dense in zip(row, wanted, strict=True):
            np.testing.assert_allclose(block, dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fun", [pairs, network, chain, several])
def test_laplacians(fun, x64):
    def of_hessian(x):
        hessian = jax.hessian(fun)(x)
        return jax.tree.map(lambda h: jnp.trace(h, axis1=-2, axis2=-1), hessian)

    found, expected = jax.jit(lambda x: (veenv.laplacian(fun)(x), of_hessian(x)))(X)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), found, expected
    )


def test_laplacians_in_a_batch_of_trees(x64):
    def fun(parts, scale):
        return jnp.sum(parts["a"] ** 3) * scale * parts["b"]

    parts = {"a": np.stack([X, 2 * X]), "b": np.array([2.0, 3.0])}
    found = jax.jit(jax.vmap(veenv.laplacian(fun), in_axes=(0, None)))(parts, 5.0)
    expected = 5 * 6 * parts["a"].sum(axis=1) * parts["b"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
