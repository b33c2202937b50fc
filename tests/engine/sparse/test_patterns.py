"""Sparse Jacobians of products with sparse matrices, of images, time steps and sorted arrays."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import sparse as jax_sparse
from jax.scipy.ndimage import map_coordinates

import veenv
from tests.oracles.jacobians import assert_same, check_sparse, quick_jit
from tests.sampling import spared

pytestmark = pytest.mark.usefixtures("x64")

N = 12


def there(fun, x, mode=jax.jacfwd) -> np.ndarray:
    """Where a Jacobian is not zero at one of three points."""
    points = [x, 0.7 * x + 0.1, x[::-1] + 0.3]
    return np.any([np.asarray(quick_jit(mode(fun))(p)) != 0 for p in points], axis=0)


def check(fun, x, stored: int | None = None):
    check_sparse(fun, x, oracle=jax.jacfwd, stored=stored or there(fun, x).sum())


def matrix() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, N)) * (rng.uniform(size=(N, N)) < 0.2)


def coo():
    return jax_sparse.BCOO.fromdense(jnp.asarray(matrix()))


def csr():
    return jax_sparse.BCSR.fromdense(jnp.asarray(matrix()))


def of_data(kind, *places):
    ones = jnp.arange(1.0, N + 1)
    return lambda d: kind((d * d, *places), shape=(N, N)) @ ones


def dense(a):
    return lambda d: jax_sparse.BCOO((jnp.sin(d), a.indices), shape=(N, N)).todense()


NSE = int(np.count_nonzero(matrix()))
PRODUCTS = {
    "vector": (lambda a, b: lambda x: a @ jnp.sin(x), N),
    "matrix of rows": (lambda a, b: lambda x: b @ jnp.sin(x.reshape(N, 2)), 2 * N),
    "by the data": (lambda a, b: of_data(jax_sparse.BCOO, a.indices), NSE),
    "by the data of rows": (lambda a, b: of_data(jax_sparse.BCSR, b.indices, b.indptr), NSE),
    "dense": (lambda a, b: dense(a), NSE),
}


@pytest.mark.parametrize("name", spared(PRODUCTS, "vector", "by the data of rows", "dense"))
def test_products_with_sparse_matrices(name: str):
    make, size = PRODUCTS[name]
    check(make(coo(), csr()), jnp.arange(1.0, size + 1) / size)


def test_a_product_with_a_sparse_matrix_in_a_loop():
    a = coo()
    fun = lambda x: lax.scan(lambda c, _: (jnp.sin(a @ c), None), x, None, length=1)[0]  # noqa: E731
    check(fun, jnp.arange(1.0, N + 1) / N)


def test_a_batch_of_sparse_matrices():
    several = jax_sparse.BCOO.fromdense(jnp.asarray([matrix(), matrix().T]), n_batch=1)
    fun = lambda x: jax.vmap(lambda a: a @ jnp.sin(x))(several)  # noqa: E731
    x = jnp.arange(1.0, N + 1)
    assert_same(veenv.jacve(fun)(x), quick_jit(jax.jacfwd(fun))(x), 1e-7, atol=1e-12)


@pytest.mark.parametrize("method", spared(["linear", "cubic", "lanczos3"], "cubic"))
def test_resized_images(method: str):
    def fun(x):
        return jax.image.resize(jnp.sin(x.reshape(7, 7)), (10, 10), method)

    check(fun, jnp.arange(1.0, 50) / 20)


def test_weights_that_are_zero_are_left_out():
    """Of four neighbours an image that is read at its own points takes one or two."""
    at = [jnp.asarray(k) for k in np.indices((4, 4)) * 0.9 + 0.3]
    x = jnp.arange(1.0, 17) / 20
    check(lambda x: map_coordinates(jnp.sin(x.reshape(4, 4)), at, order=1), x, 7 * 7)


def test_sorts_behind_each_other():
    """Each takes one of two elements that the other took."""

    def fun(x):
        y = jnp.sort(x.reshape(3, 4), axis=1)
        return jnp.sort(y * jnp.roll(y, 1, axis=1), axis=1)

    check(fun, jnp.asarray(np.random.default_rng(0).normal(size=12)), 3 * 4 * 2)


@pytest.mark.parametrize(
    ("steps", "reverse"),
    spared(itertools.product([9, 300], [False, True]), (9, False), (300, True)),
)
def test_residuals_of_time_steps(steps: int, reverse: bool):
    """Few are followed turn by turn; of many, what one turn does is repeated."""

    def fun(z):
        x, u = z[: 2 * steps].reshape(steps, 2), z[2 * steps :]

        def step(before, now):
            x, u = now
            slope = jnp.stack([before[1], jnp.sin(before[0]) + u])
            return x, x - before - 0.1 * slope

        return lax.scan(step, jnp.ones(2), (x, u), reverse=reverse)[1]

    x = jnp.sin(jnp.arange(3.0 * steps))
    check(fun, x, 3 * steps + 4 * (steps - 1))


def test_a_long_loop_that_counts():
    """What is read where a counter says may be anything that is not followed turn by turn."""

    def fun(x):
        def step(k, now):
            return k + 1, x[k] * now

        return lax.scan(step, 0, x)[1]

    x = jnp.arange(1.0, 1200) / 1000
    found = quick_jit(veenv.jacve(fun, sparse_representation=True))(x)
    np.testing.assert_allclose(found @ jnp.ones(1199), 2 * x, rtol=1e-12)


def test_sorted_arrays_do_not_spoil_each_other():
    x = jnp.asarray(np.random.default_rng(0).normal(size=9))
    fun = lambda x: (jnp.sort(x), jnp.median(x), lax.top_k(x * x, 3)[0])  # noqa: E731
    found = quick_jit(veenv.jacve(fun, sparse_representation=True))(x)
    for one, dense in zip(found, quick_jit(jax.jacfwd(fun))(x), strict=True):
        np.testing.assert_allclose(np.asarray(one), dense, atol=1e-12)
    assert [one.nse for one in found] == [9, 1, 3]
