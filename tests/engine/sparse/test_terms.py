"""Sparse Jacobians against dense ones of JAX."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import quick_jit
from tests.sampling import thinned


def banded(x):
    left, middle, right = x[:-2], x[1:-1], x[2:]
    inner = jnp.sin(left) * middle + middle * middle * right - jnp.exp(-right * right) * left
    return jnp.concatenate([x[:1] ** 2, inner, x[-1:] * x[-2:-1]])


def lorenz96(x):
    def slope(x):
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8

    k1 = slope(x)
    return x + 0.05 * slope(x + 0.02 * k1)


VECTOR = np.array([0.3, -1.2, 0.7, 2.1, -0.4, 1.3])
MATRIX = np.arange(12.0).reshape(3, 4) / 7 + 0.2
CASES = {
    "elementwise": (lambda x: jnp.sin(x) * x, VECTOR),
    "banded": (banded, VECTOR),
    "lorenz96": (lorenz96, VECTOR),
    "identity": (lambda x: x, VECTOR),
    "constant": (lambda x: jnp.ones(3), VECTOR),
    "broadcast": (lambda x: jnp.outer(x, jnp.ones(3)) * 2.0, VECTOR),
    "sum": (lambda x: x.sum() * x, VECTOR),
    "matmul": (lambda a: jnp.sin(a) @ a.T, MATRIX),
    "batched": (jax.vmap(lambda r: jnp.stack([r[0] * r[1], jnp.sin(r[2])])), MATRIX),
    "reversed": (lambda x: x[::-1] * x[::2].sum(), VECTOR),
    "sorted": (lambda x: jnp.sort(x * x) * x, VECTOR),
    "cumsum": (lambda x: jnp.cumsum(x * x), VECTOR),
    "scan": (lambda x: jax.lax.scan(lambda c, a: (c * a, c + a), 1.0, x)[1], VECTOR),
    "reshape": (lambda a: (a.reshape(2, 6) * 2).reshape(4, 3) ** 2, MATRIX),
    "pad": (lambda x: jnp.pad(x * x, (1, 2)) * 3, VECTOR),
}


@pytest.mark.parametrize(
    ("name", "order"), thinned(itertools.product(CASES, ["forward", "reverse"]), 3)
)
def test_sparse_equals_dense(name, order, x64):
    fun, x = CASES[name]
    v = np.random.default_rng(0).normal(size=(*x.shape, 2))

    @jax.jit
    def everything(x, v):
        sparse = veenv.jacve(fun, order, sparse_representation=True)(x)
        views = sparse.todense(), sparse.to_bcoo().todense(), sparse.T.todense()
        return jax.jacrev(fun)(x), sparse, views, (sparse @ v, sparse @ v[..., 0])

    expected, sparse, (dense, bcoo, transposed), products = everything(x, v)
    assert sparse.shape == expected.shape
    assert sparse.dtype == expected.dtype
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(dense, expected, **close)
    np.testing.assert_allclose(bcoo, expected, **close)
    ins, outs = x.ndim, expected.ndim - x.ndim
    swapped = expected.transpose([*range(outs, outs + ins), *range(outs)])
    np.testing.assert_allclose(transposed, swapped, **close)
    for product, columns in zip(products, (v, v[..., 0]), strict=True):
        np.testing.assert_allclose(product, np.tensordot(expected, columns, axes=ins), **close)


def test_a_banded_jacobian_stores_its_bands(x64):
    for n in (100, 10_000):
        x = jax.ShapeDtypeStruct((n,), "float64")
        jacobian = jax.eval_shape(veenv.jacve(banded, sparse_representation=True), x)
        assert sum(t.values.size for t in jacobian.terms) <= 4 * n
        assert jacobian.nse <= 6 * n


def test_the_batch_axis_stays_diagonal():
    f = jax.vmap(lambda r: jnp.stack([r[0] * r[1], jnp.sin(r[2]) * r.sum()]))
    for batch in (8, 64):
        jacobian = jax.eval_shape(veenv.jacve(f, sparse_representation=True), jnp.ones((batch, 3)))
        assert jacobian.nse <= 12 * batch


def test_matmul_refuses_other_shapes():
    jacobian = veenv.jacve(jnp.sin, sparse_representation=True)(jnp.ones(3))
    with pytest.raises(ValueError, match=r"first axes must be \(3,\)"):
        jacobian @ jnp.ones(4)


def test_sparse_tensors_cross_jit():
    jacobian = veenv.jacve(banded, sparse_representation=True)(jnp.ones(5))
    dense = quick_jit(lambda j: j.todense())(jacobian)
    np.testing.assert_allclose(dense, jacobian.todense(), rtol=1e-6)
