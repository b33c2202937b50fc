"""Keys of random numbers, captured or handed over: they are no arrays of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same

pytestmark = pytest.mark.kernels

X = jnp.arange(1.0, 4.0)
KEYS = jax.random.split(jax.random.key(0), 3)


def noisy(x, keys=KEYS):
    """A loop of one kind over keys, and one of the other kind that makes its own."""

    def step(c, key):
        return c + 0.1 * jax.random.normal(key, c.shape) * c, c

    def again(i, carry):
        c, key = carry
        return c * jax.random.uniform(jax.random.fold_in(key, i)), key

    c, _ = jax.lax.scan(step, x, keys)
    c, _ = jax.lax.fori_loop(0, 2, again, (c, keys[0]))
    return jnp.where(jax.random.bernoulli(keys[1], 0.5, c.shape), c * c, c)


@pytest.mark.parametrize("args", [(X,), (X, KEYS)], ids=["captured", "argument"])
@pytest.mark.parametrize("options", [{}, {"kernel": "fused"}], ids=str)
def test_jacobians(args, options):
    assert_same(jax.jit(veenv.jacve(noisy, **options))(*args), jax.jacfwd(noisy)(*args), tol=1e-5)


@pytest.mark.parametrize("args", [(X,), (X, KEYS)], ids=["captured", "argument"])
def test_sparse_jacobians(args):
    sparse = veenv.jacve(noisy, sparse_representation=True)(*args)
    np.testing.assert_allclose(sparse.todense(), jax.jacfwd(noisy)(*args), rtol=1e-5)
