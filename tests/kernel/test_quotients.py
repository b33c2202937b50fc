"""Divisions in kernels: the nearest floats, with XLA's signs, infinities and NaN."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.kernel.fusing import fuse


def divide(x, y):
    return jax.jit(jax.vmap(fuse(quotients)))(x, y)


def quotients(x, y):
    return x / y, 1 / y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signs_infinities_and_nan_are_those_of_xla(dtype):
    limits = np.finfo(dtype)
    with jax.enable_x64(dtype == np.float64):
        values = [0.0, 1.0, 3.0, 49.0, 1e-30, 1e30, limits.max, limits.max / 2, limits.max / 4]
        values += [limits.tiny, 2 * limits.tiny, limits.tiny / 2, np.inf, np.nan]
        values = [*values, *(-x for x in values)]
        x, y = np.array(list(itertools.product(values, values)), dtype).T
        found = divide(jnp.asarray(x), jnp.asarray(y))
        wanted = jax.jit(quotients)(jnp.asarray(x), jnp.asarray(y))
    for ours, theirs in zip(found, wanted, strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        np.testing.assert_array_max_ulp(
            ours[np.isfinite(theirs)], theirs[np.isfinite(theirs)], 1, dtype
        )
        np.testing.assert_array_equal(
            ours[~np.isfinite(theirs)], theirs[~np.isfinite(theirs)], strict=True
        )
        known = ~np.isnan(theirs)
        np.testing.assert_array_equal(np.signbit(ours[known]), np.signbit(theirs[known]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_are_the_nearest_floats(dtype):
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.uniform(-20, 20, (2, 1 << 17))).astype(dtype)
    n, d = np.indices((301, 301), dtype).reshape(2, -1) + 1
    with jax.enable_x64(dtype == np.float64):
        found, inverse = divide(jnp.asarray(x), jnp.asarray(y))
        exact, _ = divide(jnp.asarray(n * d), jnp.asarray(d))
    np.testing.assert_array_equal(found, x / y)
    np.testing.assert_array_max_ulp(np.asarray(inverse), 1 / y, 1)
    np.testing.assert_array_equal(exact, n)  # so that floor(x / y) is right


def test_quotients_of_both_precisions_in_one_kernel():
    def fun(x, y):
        return x / y, jnp.float64(x) / jnp.float64(y), jnp.float64(x / y)

    with jax.enable_x64(True):
        x, y = (jnp.asarray(v, jnp.float32) for v in ([1.0, 2.0, 7.0], [3.0, 0.0, -9.0]))
        found = jax.jit(jax.vmap(fuse(fun)))(x, y)
        for ours, theirs in zip(found, fun(x, y), strict=True):
            np.testing.assert_array_equal(ours, theirs)
