"""Floats of sixteen bits in kernels: computed in float32, rounded where they are asked for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, quick_jit

DTYPES = [jnp.float16, jnp.bfloat16]
_RNG = np.random.default_rng(0)
SIZES = 10.0 ** _RNG.integers(-9, 9, 3000)
NUMBERS = np.float32(
    [*(_RNG.normal(size=3000) * SIZES), 0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519, 65520,
     -65536, 2**-14, 2**-24, 2**-25, 3 * 2**-25, 3.4e38, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8]
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_that_of_jax(dtype: Any):
    def there(x: jax.Array) -> jax.Array:
        return x.astype(dtype).astype(jnp.float32)

    got = jax.vmap(veenv.fuse(there))(NUMBERS)
    np.testing.assert_array_equal(got, there(jnp.asarray(NUMBERS)))
    results = jax.vmap(veenv.fuse(lambda x: x.astype(dtype)))(NUMBERS)
    assert results.dtype == dtype
    np.testing.assert_array_equal(results.astype(jnp.float32), there(jnp.asarray(NUMBERS)))


def test_precision_of_bfloat16():
    f = lambda x: lax.reduce_precision(x, 8, 7)  # noqa: E731
    np.testing.assert_array_equal(jax.vmap(veenv.fuse(f))(NUMBERS), f(jnp.asarray(NUMBERS)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions(dtype: Any):
    def f(x: jax.Array, y: jax.Array) -> Any:
        slope = veenv.jacve(lambda x: jnp.tanh(x) * y)(x)
        table = jnp.asarray([[1, 2, 3], [4, 5, 6], [7, 8, 9.5]], x.dtype)
        larger = jnp.where(x > y, x, y).sum()
        return slope, table @ x, larger, (4 * x).astype(jnp.int32), jnp.sort(y)

    x, y = (jnp.asarray(_RNG.normal(size=(20, 3)), dtype) for _ in range(2))
    got = jax.vmap(veenv.fuse(f))(x, y)
    wide = jax.jit(jax.vmap(f))(*(v.astype(jnp.float32) for v in (x, y)))
    for a, b in zip(got, wide, strict=True):
        assert a.dtype == (dtype if b.dtype == jnp.float32 else b.dtype)
        np.testing.assert_array_equal(a, jnp.asarray(b, a.dtype))
    loss = lambda f: lambda x, y: sum(v.sum() for v in jax.vmap(f)(x, y)[:3]).astype(jnp.float32)  # noqa: E731
    slopes = (jax.jit(jax.grad(loss(g), (0, 1)))(x, y) for g in (veenv.fuse(f), f))
    assert_same(*slopes, 0.1)


@pytest.mark.parametrize("kernel", ["auto", "fused"])
def test_jacobians(kernel: Any):
    x = jnp.linspace(-1, 1, 8, dtype=jnp.bfloat16)
    f = lambda x: jnp.sin(x) * x[::-1]  # noqa: E731
    got = jax.jit(veenv.jacve(f, kernel=kernel))(x)
    assert got.dtype == jnp.bfloat16
    wide = quick_jit(jax.jacrev(f))(x.astype(jnp.float32))
    np.testing.assert_allclose(np.float32(got), wide, rtol=0.02, atol=0.02)
