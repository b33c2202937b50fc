"""Functions that Mosaic lacks: their errors, and kernels made of them."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from veenv.kernel import expansions
from veenv.kernel.fusing import trace_point
from veenv.kernel.tpu.pallas import PallasKernel

WIDE, UNIT = np.r_[-80:80:331j, -2:2:331j, 1e-8, -1e-8], np.r_[-1:1:333j, 1 - 1e-6, 1e-8]
SIGNED = np.r_[-20:20:333j, np.logspace(-12, 12, 99), -np.logspace(-12, 12, 99)]
# what it is, where it is compared, and its units in the last place
CASES = {
    "expm1": (np.expm1, WIDE, 4),
    "sinh": (np.sinh, WIDE, 8),
    "cosh": (np.cosh, WIDE, 8),
    "asin": (np.arcsin, UNIT, 4),
    "acos": (np.arccos, UNIT, 4),
    "atan": (np.arctan, SIGNED, 4),
    "asinh": (np.arcsinh, SIGNED, 6),
    "acosh": (np.arccosh, np.r_[1:3:333j, np.logspace(0, 30, 99)], 6),
    "atanh": (np.arctanh, UNIT[np.abs(UNIT) < 1], 6),
    "cbrt": (np.cbrt, SIGNED, 4),
    "erfc": (np.vectorize(math.erfc, otypes=[float]), np.r_[-6:9:555j], 4),
}


def test_every_expansion_is_compared():
    assert expansions.TPU.keys() == {*CASES, "lgamma"}


@pytest.mark.parametrize("name", CASES)
def test_errors_are_those_that_are_said(name):
    true, points, units = CASES[name]
    x = points.astype("f4")
    expected = true(x.astype("f8"))
    found = np.asarray(jax.jit(expansions.TPU[name])(x), "f8")
    error = np.abs(found - expected) / np.spacing(np.abs(expected).astype("f4")).astype("f8")
    assert error.max() <= units


def test_lgamma():
    x = np.r_[-7.9:10:777j, np.logspace(-6, 20, 99)].astype("f4")
    x = x[np.abs(x - np.round(x)) + (x > 0) > 1e-3]  # not beside poles
    expected = special.gammaln(x.astype("f8"))
    found = jax.jit(expansions.TPU["lgamma"])(x)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_special_values():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], np.float32)
    for name, (true, *_) in CASES.items():
        with np.errstate(all="ignore"):
            expected = true(x)
        found = np.asarray(jax.jit(expansions.TPU[name])(x))
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
        if not np.isnan(found[0]):
            np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(expected[:2]))
    np.testing.assert_array_equal(
        jax.jit(expansions.TPU["lgamma"])(x), [np.inf, np.inf, np.inf, np.inf, np.nan, 0, np.inf]
    )


def test_kernels_are_made_of_them():
    """Interpreted; integers of few bits wrap, as they are computed in 32 on a TPU."""

    def fun(x, n):
        y = jnp.arcsin(x) + jnp.cosh(x) * jnp.cbrt(x) - jax.scipy.special.erfc(x)
        m = jnp.maximum(n * n, n + 100) // 3
        return y + jax.lax.lgamma(x + 1), m, jnp.minimum(n.astype("u4"), 3), (m > 7) & (x > 0)

    rng = np.random.default_rng(0)
    x = rng.uniform(-0.9, 0.9, 300).astype("f4")
    n = rng.integers(-128, 128, 300).astype("i1")
    kernel = PallasKernel(trace_point(fun, (x[0], n[0]), {}, (0,)).program(), True)
    for got, expected in zip(jax.jit(kernel)(x, n), jax.vmap(fun)(x, n), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
