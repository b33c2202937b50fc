"""Functions of many equal equations: loops that Python unrolls, of small matrices and vectors."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from scripts.benchmarks.functions.case import Case, Cases
from scripts.benchmarks.functions.fitted import FITTED
from scripts.benchmarks.functions.realistic import FUNCTIONS

OWN = Cases()


def unrolled() -> dict[str, Case]:
    """Those of this module, and some that are measured elsewhere, too."""
    others = "pendula_unrolled", "glider", "arm_matrices", "sparse_code", "equilibrium"
    return {**OWN, **{name: (FUNCTIONS | FITTED)[name] for name in others}}


def long_program(size: int) -> Callable[[Array], Array]:
    """A function of four numbers in so many scalar equations."""
    picks = np.random.default_rng(0).integers(0, 4, (size // 2, 2))

    def fun(x: Array) -> Array:
        values = list(x)
        for i, j in picks:
            values[i] = jnp.sin(values[i] * values[j])
        return jnp.stack(values)

    return fun


def _point(size: int) -> Array:
    return jnp.linspace(0.2, 0.9, size)


def _fixed(*shape: int) -> np.ndarray:
    """Numbers that are the same each time."""
    return np.cos(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)


def _taylor(a: Array, terms: int = 8) -> Array:
    """The exponential of a small matrix by its first terms."""
    total = power = jnp.eye(len(a), dtype=a.dtype)
    for n in range(1, terms + 1):
        power = power @ a / n
        total = total + power
    return total


@OWN.add(_point(4), name="products of complex exponentials")
def _propagator(x: Array) -> Array:
    """Twenty steps of a driven system of three levels."""
    k = jnp.eye(3, dtype=jnp.complex64)
    for n in range(20):
        drive = x[2] * np.cos(0.3 * n) + 1j * x[3] * np.sin(0.3 * n)
        up = jnp.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]) * drive
        h = jnp.diag(jnp.array([0.0, 1.0, 0.0]) * x[0] + jnp.array([0, 0, 1]) * x[1])
        k = _taylor(-1j * 0.1 * (h + up + up.conj().T)) @ k
    return jnp.abs(k) ** 2


@OWN.add(_point(3), name="quantum circuit")
def _circuit(x: Array) -> Array:
    """Three qubits, four layers of rotations and entangling phases."""
    state = jnp.zeros((2, 2, 2), jnp.complex64).at[0, 0, 0].set(1)
    phases = jnp.asarray(np.where(_fixed(2, 2, 2) > 0, 1, -1), jnp.complex64)
    for layer in range(4):
        for q in range(3):
            angle = x[q] + 0.1 * layer
            c, s = jnp.cos(angle), -1j * jnp.sin(angle)
            gate = jnp.stack([jnp.stack([c + 0j, s]), jnp.stack([s, c + 0j])])
            state = jnp.moveaxis(jnp.tensordot(gate, state, (1, q)), 0, q)
        state = state * phases
    return (jnp.abs(state) ** 2).ravel()


@OWN.add(_point(6), name="solves")
def _solves(x: Array) -> Array:
    """Eight systems of three equations."""
    v = x[:3]
    for n in range(8):
        v = jnp.linalg.solve(jnp.eye(3) * (4 + n) + jnp.outer(v, x[3:6]), v + 1)
    return v


@OWN.add(_point(3), name="Cholesky factors")
def _choleskys(x: Array) -> Array:
    """Six factorisations of matrices of three by three."""
    m = jnp.eye(3) * 4 + jnp.outer(x[:3], x[:3])
    for _ in range(6):
        factor = jnp.linalg.cholesky(m)
        m = jnp.eye(3) * 3 + factor @ factor.T / 4
    return m


@OWN.add(_point(5), name="Kalman filter")
def _kalman(x: Array) -> Array:
    """Eight steps of a Kalman filter of three numbers, of which two are seen."""
    step, seen, mean, cov = jnp.eye(3) + 0.1 * _fixed(3, 3), _fixed(2, 3), x[:3], jnp.eye(3)
    for n in range(8):
        mean, cov = step @ mean, step @ cov @ step.T + jnp.eye(3) * x[3] ** 2
        spread = seen @ cov @ seen.T + jnp.eye(2) * (1 + x[4] ** 2)
        gain = jnp.linalg.solve(spread, seen @ cov).T
        mean = mean + gain @ (jnp.array([0.1 * n, 1.0]) - seen @ mean)
        cov = cov - gain @ seen @ cov
    return mean
