"""Complex numbers between real arguments and results: stored is what can be nonzero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import quick_jit

SIZE = 4


def waves(z):
    """The right-hand side of a nonlinear Schrödinger equation on a ring."""
    u = jax.lax.complex(z[:SIZE], z[SIZE:])
    spread = jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u
    slope = 1j * (0.5 * spread - u * u * u.conj())
    return jnp.concatenate([slope.real, slope.imag])


def padded(x):
    return jnp.pad(jax.lax.complex(x, x**2), (1, 1)).reshape(2, -1).T[::-1].ravel().imag


def gathered(x):
    return jnp.abs(jax.lax.complex(x, x)[jnp.arange(2 * SIZE)[::-1]])


def selected(x):
    w = jnp.where(np.arange(2 * SIZE) < 4, jax.lax.complex(x, jnp.sin(x)), 0)
    return (w * w).imag


def summed(x):
    return jnp.abs(jax.ops.segment_sum(jax.lax.complex(x, x**2), np.arange(2 * SIZE) // 4, 2))


def at_computed_places(x):
    w = jax.lax.dynamic_slice(jax.lax.complex(x, x**2), (jnp.where(x[0] > 1, 0, 2),), (4,))
    return w.imag * w.real


def written(x):
    w = jax.lax.complex(x, x**2)
    return w.at[3:5].set(w[:2] ** 2).at[np.array([0, 7, 0])].add(1j * w[:3]).imag


def running(x):
    return jnp.cumsum(jax.lax.complex(x, x**2)).real


def in_a_loop(x):
    def step(carry, row):
        return carry * jnp.exp(1j * row.astype(complex)) + row.astype(complex), carry

    return jnp.abs(jax.lax.scan(step, jnp.asarray(1 + 0j), x[:4])[1])


def mirrored(x):
    return (jax.lax.complex(x[:SIZE], x[SIZE:]).conj() * (1 + 0j)).imag


FUNCTIONS = [waves, padded, gathered, selected, summed, at_computed_places]
FUNCTIONS += [written, running, in_a_loop, mirrored]


@pytest.mark.parametrize("fun", FUNCTIONS)
def test_stored_entries_of_complex_functions(fun, x64):
    x = jnp.asarray(np.random.default_rng(0).uniform(0.3, 1.5, 2 * SIZE))
    oracle = quick_jit(jax.jacrev(fun))
    sparse = quick_jit(veenv.jacve(fun, "forward", sparse_representation=True))
    there = sum(np.abs(oracle(point)) > 1e-13 for point in (x, x[::-1].copy())) > 0
    assert sparse(x).nse == (4 if fun is at_computed_places else there.sum())
    for point in (x, -x[::-1]):
        np.testing.assert_allclose(np.asarray(sparse(point)), oracle(point), 1e-12, 1e-12)
    dense = quick_jit(veenv.jacve(fun, "reverse"))
    np.testing.assert_allclose(dense(x), oracle(x), 1e-12, 1e-12)


@pytest.mark.parametrize(
    ("fun", "stored"),
    [(lambda z: jnp.roll(z, 1).real * z.imag, 2 * SIZE),
        (lambda z: jax.lax.dynamic_slice(z, (jnp.argmax(z.real),), (3,)).imag, 3),
        (lambda z: z.reshape(2, 2).T.real.ravel() * 2, SIZE)],
    ids=["roll", "computed_places", "reshape"],
)  # fmt: skip
def test_complex_arguments(fun, stored, x64):
    z = jnp.asarray([0.3 - 1j, 1.2 + 0.5j, -0.7j, 2.0])
    sparse = quick_jit(veenv.jacve(fun, sparse_representation=True))(z)
    assert (sparse.nse, sparse.dtype) == (stored, jnp.complex128)
    np.testing.assert_allclose(np.asarray(sparse), quick_jit(jax.jacrev(fun))(z), 1e-12)
