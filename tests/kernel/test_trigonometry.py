"""Sines and cosines in kernels, computed in the loop, one reduction for both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.jacobians import assert_same
from veenv.kernel.fusing import fuse


def both(x):
    return jnp.sin(x), jnp.cos(x)


def kernel(fun):
    return jax.jit(jax.vmap(fuse(fun)))


BOTH = kernel(both)
WIDER = {"float32": np.float64, "float64": np.longdouble}


def test_errors_are_below_two_units_in_the_last_place(precision):
    rng = np.random.default_rng(0)
    scales = [1e-3, 1.0, 3.0, 100.0, 9000.0]
    x = np.concatenate([rng.uniform(-s, s, 1 << 14) for s in scales])
    x = np.concatenate([x, np.arange(-6000, 6000) * (np.pi / 4)]).astype(precision)
    for ours, exact in zip(BOTH(jnp.asarray(x)), (np.sin, np.cos), strict=True):
        wanted = exact(x.astype(WIDER[precision]))
        ulp = np.spacing(np.abs(wanted).astype(precision)).astype(wanted.dtype)
        assert np.max(np.abs(np.asarray(ours) - wanted) / ulp) < 2


def test_zeros_infinities_nan_and_large_arguments(precision):
    points = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e4, -1.1e4, 3e6, -3e9, 1e30, 0.5]
    x = jnp.asarray(np.array(points, precision))
    found = BOTH(x)
    assert_same(found, jax.jit(both)(x), 1e-6 if precision == "float32" else 1e-14, atol=0)
    np.testing.assert_array_equal(np.signbit(found[0][:2]), [False, True])


def test_an_argument_beyond_the_reduction_leaves_its_neighbours_alone():
    x = np.linspace(-3, 3, 64).astype(np.float32)
    far = x.copy()
    far[::5] = 1e7
    for near, mixed in zip(BOTH(x), BOTH(far), strict=True):
        keep = np.arange(64) % 5 != 0
        np.testing.assert_array_equal(np.asarray(near)[keep], np.asarray(mixed)[keep])


@pytest.mark.parametrize("fun", [jnp.sin, jnp.cos])
def test_one_alone_is_what_it_is_with_the_other(fun):
    x = np.linspace(-10, 10, 333).astype(np.float32)
    both_of = dict(zip((jnp.sin, jnp.cos), BOTH(x), strict=True))
    np.testing.assert_array_equal(kernel(fun)(x), both_of[fun])
