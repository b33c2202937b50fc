"""What a kernel computes by loops and reflections where XLA calls a library."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, quick_jit

pytestmark = pytest.mark.usefixtures("x64")
SHAPES = [(1, 1), (3, 3), (5, 3), (2, 4)]


def matrices(rows, columns):
    found = np.random.default_rng(0).normal(size=(6, rows, columns))
    found[1] = 0  # singular in three ways
    found[2, :, -1] = found[2, :, 0]
    found[3] = np.round(found[3])
    return found


def both(fun, *args):
    return quick_jit(lambda *a: (jax.vmap(veenv.fuse(fun))(*a), jax.vmap(fun)(*a)))(*args)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_and_vectors(shape, full):
    a = matrices(*shape)
    (u, s, v), (u2, s2, v2) = both(lambda a: jnp.linalg.svd(a, full_matrices=full), a)
    assert (u.shape, s.shape, v.shape) == (u2.shape, s2.shape, v2.shape)
    np.testing.assert_allclose(s, s2, atol=1e-12)
    size = min(shape)
    product = np.einsum("nij,nj,njk->nik", u[:, :, :size], s, v[:, :size])
    np.testing.assert_allclose(product, a, atol=1e-12)
    for x in (u, np.swapaxes(v, 1, 2)):  # orthogonal, though the matrix is singular
        eye = np.broadcast_to(np.eye(x.shape[2]), (len(a), x.shape[2], x.shape[2]))
        np.testing.assert_allclose(np.einsum("nij,nik->njk", x, x), eye, atol=1e-12)


def test_what_is_made_of_them():
    a = matrices(4, 3)
    functions = (
        lambda a: jnp.linalg.svd(a, compute_uv=False), jnp.linalg.pinv, jnp.linalg.matrix_rank,
        lambda a: jnp.linalg.lstsq(a, a[:, 0])[0], lambda a: jnp.linalg.norm(a, 2),
        lambda a: jnp.linalg.svd(jnp.stack([a, 2 * a]))[1],
    )  # fmt: skip
    assert_same(*both(lambda a: [f(a) for f in functions], a), 1e-7, atol=1e-11)
    nothing = np.full((2, 3, 3), np.nan)
    assert np.isnan(both(lambda a: jnp.linalg.svd(a)[1], nothing)[0]).all()


@pytest.mark.parametrize("shape", [(3, 3), (5, 3)])
def test_packed_reflections(shape):
    raw = lambda a: jnp.linalg.qr(a, mode="raw")  # noqa: E731
    a = matrices(*shape)
    packed, factors = both(raw, a)[0]
    packed = jnp.swapaxes(packed, 1, 2)
    q = lax.linalg.householder_product(packed, factors)
    np.testing.assert_allclose(q @ jnp.triu(packed[:, : shape[1]]), a, atol=1e-12)
    a = np.delete(a, 2, 0)  # of dependent columns a reflection is all rounding
    assert_same(*both(raw, a), 1e-7, atol=1e-12)
    product = lambda a: lax.linalg.householder_product(raw(a)[0].T, raw(a)[1])  # noqa: E731
    np.testing.assert_allclose(*both(product, a), atol=1e-12)
    for left in (True, False):

        def applied(a, left=left):
            x = jnp.cos(jnp.arange(2.0 * len(a)).reshape(len(a), 2))
            (packed, factors), x = raw(a), x if left else x.T
            product = functools.partial(lax.linalg.ormqr, packed.T, factors, x, left=left)
            return jnp.stack([product(transpose=True), product(transpose=False)])

        np.testing.assert_allclose(*both(applied, a), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_digamma(dtype):
    x = np.concatenate([np.logspace(-2, 2, 60), [-2.5, -0.5, -3.25]]).astype(dtype)
    tol = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(*both(lax.digamma, x), rtol=tol, atol=tol)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_k(k):
    x = np.random.default_rng(1).integers(-2, 3, (7, 5)).astype(np.float32)
    x[0, 2], x[1, 1], x[2, :2] = np.nan, -np.inf, np.inf
    x[3, :2] = -0.0, 0.0
    for values in (x, x[3:].astype(np.int32), np.stack([x, -x], 2)):
        assert_same(*both(lambda x: lax.top_k(x, k, axis=0), values), 0)


def test_constants_that_overflow_are_infinite():
    """As quietly as in a program: libraries have such where a time has no end."""
    large = np.float32(1)
    assert veenv.fuse(lambda x: jnp.exp(jnp.float32(100)) + x)(large) == np.inf


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_of_exponentials(reverse):
    x = np.random.default_rng(5).normal(size=(4, 3, 5)) * 30
    x[1, 0], x[2, 1, 2], x[3, 2, 1], x[3, 0, 3] = -np.inf, np.inf, np.nan, -np.inf

    def running(x):
        along = functools.partial(lax.cumlogsumexp, reverse=reverse)
        return along(x, axis=0), along(x, axis=1), along(x[:, 0])

    assert_same(*both(running, x), 1e-13)
    inside = lambda x: jnp.sum(jnp.sin(running(x)[0]))  # noqa: E731
    assert_same(*both(jax.grad(inside), np.clip(np.nan_to_num(x), -40, 40)), 1e-11)


def forth(x, y):
    z, half = jnp.fft.fft(lax.complex(x, y)), jnp.fft.rfft(x)
    return z.real, z.imag, half.real, half.imag


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 64])
def test_fourier_transforms_of_one_axis(n):
    x, y = np.random.default_rng(n).normal(size=(2, 5, n))

    def back(x, y):
        z, half = jnp.fft.ifft(lax.complex(x, y)), lax.complex(x, y)[: n // 2 + 1]
        return z.real, z.imag, jnp.fft.irfft(half, n)

    for fun in (forth, back):
        assert_same(*both(fun, x, y), 1e-7, atol=1e-13 * n)


@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (2, 1), (3, 2, 4)])
def test_fourier_transforms_of_several_axes(shape):
    x, y = np.random.default_rng(0).normal(size=(2, 3, *shape))

    def fun(x, y):
        z, half = lax.complex(x, y), jnp.fft.rfftn(x)
        every = jnp.fft.fftn(z), jnp.fft.ifftn(z), half, jnp.fft.fft(z, axis=0)
        return [part for z in every for part in (z.real, z.imag)], jnp.fft.irfftn(half * 2, shape)

    assert_same(*both(fun, x, y), 1e-7, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_fourier_transforms_are_as_infinite_as_they_are(n):
    """Nothing is multiplied by the zeros of sines and cosines, which would make it no number."""
    x = np.random.default_rng(0).normal(size=(3 * n, n))
    x[np.arange(3 * n), np.arange(3 * n) % n] = np.repeat([np.inf, -np.inf, np.nan], n)
    for found, wanted in zip(*both(lambda x: forth(x, x[::-1]), x), strict=True):
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
        np.testing.assert_allclose(found[np.isfinite(found)], wanted[np.isfinite(wanted)])


def test_fourier_transforms_of_nothing():
    x = jnp.ones((3, 8))
    none = lambda x: (jnp.fft.fft(x[:0]).real, jnp.fft.fftn(x, axes=()).real)  # noqa: E731
    assert_same(veenv.fuse(none)(x), none(x), 0)


def test_jacobians_of_spectra_are_kernels():
    power = lambda x: jnp.abs(jnp.fft.rfft(jnp.sin(x))) ** 2  # noqa: E731
    x = np.random.default_rng(1).uniform(0.2, 1, (4, 12))
    total = lambda x: power(x).sum()  # noqa: E731
    for found, wanted in (
        (veenv.jacve(power, kernel="fused"), jax.jacrev(power)),
        (veenv.hessian(total, kernel="fused"), jax.hessian(total)),
    ):
        found, wanted = (quick_jit(jax.vmap(f))(x) for f in (found, wanted))
        np.testing.assert_allclose(found, wanted, atol=1e-11)


def test_longer_fourier_transforms_are_refused():
    with pytest.raises(ValueError, match="'fft' of 65 numbers cannot be fused, of up to 64 it can"):
        veenv.fuse(lambda x: jnp.fft.fft(x).real)(jnp.ones(65))


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["int", "uint"])
def test_counts_of_bits(kind, width):
    info = np.iinfo(f"{kind}{width}")
    ends = np.array([info.min, info.max, 0, 1, info.max // 3], info.dtype)
    x = np.concatenate(
        [ends, np.random.default_rng(0).integers(info.min, info.max, 20, info.dtype)]
    )
    got, _ = both(lax.population_count, x)
    assert got.dtype == x.dtype
    bits = np.unpackbits(np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1), axis=1)
    np.testing.assert_array_equal(got, bits.sum(1))
