"""Divisions in kernels: the nearest floats, with XLA's signs, infinities and NaN."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from tests.oracles.jacobians import assert_same
from veenv.kernel.fusing import fuse


def quotients(x, y):
    return x / y, 1 / y


divide = jax.jit(jax.vmap(fuse(quotients)))


def test_signs_infinities_and_nan_are_those_of_xla(precision):
    limits = np.finfo(precision)
    values = [0.0, 1.0, 3.0, 49.0, 1e-30, 1e30, limits.max, limits.max / 2, limits.max / 4]
    values += [limits.tiny, 2 * limits.tiny, limits.tiny / 2, np.inf, np.nan]
    values = [*values, *(-x for x in values)]
    x, y = np.array(list(itertools.product(values, values)), precision).T
    found = divide(jnp.asarray(x), jnp.asarray(y))
    wanted = jax.jit(quotients)(jnp.asarray(x), jnp.asarray(y))
    for ours, theirs in zip(found, wanted, strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        finite, known = np.isfinite(theirs), ~np.isnan(theirs)
        np.testing.assert_array_max_ulp(ours[finite], theirs[finite], 1, precision)
        np.testing.assert_array_equal(ours[~finite], theirs[~finite], strict=True)
        np.testing.assert_array_equal(np.signbit(ours[known]), np.signbit(theirs[known]))


def test_quotients_are_the_nearest_floats(precision):
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.uniform(-20, 20, (2, 1 << 17))).astype(precision)
    n, d = np.indices((301, 301), precision).reshape(2, -1) + 1
    found, inverse = divide(jnp.asarray(x), jnp.asarray(y))
    exact, _ = divide(jnp.asarray(n * d), jnp.asarray(d))
    np.testing.assert_array_equal(found, x / y)
    np.testing.assert_array_max_ulp(np.asarray(inverse), 1 / y, 1)
    np.testing.assert_array_equal(exact, n)  # so that floor(x / y) is right


def test_quotients_of_both_precisions_in_one_kernel(x64):
    def fun(x, y):
        return x / y, jnp.float64(x) / jnp.float64(y), jnp.float64(x / y)

    x, y = (jnp.asarray(v, jnp.float32) for v in ([1.0, 2.0, 7.0], [3.0, 0.0, -9.0]))
    assert_same(jax.jit(jax.vmap(fuse(fun)))(x, y), fun(x, y), 0)
