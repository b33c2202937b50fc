"""Functions of many equal equations: loops that Python unrolls, of small matrices and vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Unrolled(NamedTuple):
    """A function of one array, and the array."""

    fun: Callable[[Array], Any]
    x: Array


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


def _propagator(x: Array) -> Array:
    """Twenty steps of a driven system of three levels."""
    k = jnp.eye(3, dtype=jnp.complex64)
    for n in range(20):
        drive = x[2] * np.cos(0.3 * n) + 1j * x[3] * np.sin(0.3 * n)
        up = jnp.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]) * drive
        h = jnp.diag(jnp.array([0.0, 1.0, 0.0]) * x[0] + jnp.array([0, 0, 1]) * x[1])
        k = _taylor(-1j * 0.1 * (h + up + up.conj().T)) @ k
    return jnp.abs(k) ** 2


def _transfer(x: Array) -> Array:
    """Reflection of a stack of ten layers, by matrices of two by two complex numbers."""
    m = jnp.eye(2, dtype=jnp.complex64)
    for n in range(10):
        phase, index = x[n % 4] * (1 + 0.1 * n), 1.5 + 0.5 * (n % 2)
        c, s = jnp.cos(phase), 1j * jnp.sin(phase)
        m = m @ jnp.stack([jnp.stack([c + 0j, s / index]), jnp.stack([s * index, c + 0j])])
    r = (m[0, 0] + m[0, 1] - m[1, 0] - m[1, 1]) / m.sum()
    return jnp.stack([jnp.abs(r) ** 2, jnp.angle(r)])


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


def _magnus(x: Array) -> Array:
    """Commutators of complex matrices."""
    a = (_fixed(3, 3) + 1j * _fixed(3, 3).T) * x[0]
    b = _fixed(3, 3) * (x[1] + 1j * x[2])
    for _ in range(12):
        a, b = b, 0.3 * (a @ b - b @ a)
    return jnp.real(a)


def _products(x: Array) -> Array:
    """Thirty products of real matrices of three by three."""
    a, m = x[:9].reshape(3, 3), jnp.eye(3)
    for n in range(30):
        m = jnp.tanh(m @ (a + 0.1 * n))
    return m


def _exponentials(x: Array) -> Array:
    """Ten exponentials of real matrices."""
    m = jnp.eye(3)
    for n in range(10):
        m = _taylor(0.1 * (x[0] * _fixed(3, 3) + x[1] * n)) @ m
    return m


def _einsums(x: Array) -> Array:
    """A tensor train of twelve cores."""
    cores = [_fixed(2, 3, 3) * x[n % 6] + 0.1 * n for n in range(12)]
    left = jnp.ones((1, 3))
    for core in cores:
        left = jnp.einsum("ba,iac->bc", left, core) / 4
    return left.ravel()


def _bilinear(x: Array) -> Array:
    """Twenty bilinear maps of vectors of four."""
    tensor, v = _fixed(4, 4, 4), x[:4]
    for _ in range(20):
        v = jnp.einsum("ijk,j,k->i", tensor, v, jnp.cos(v))
    return v


def _solves(x: Array) -> Array:
    """Eight systems of three equations."""
    v = x[:3]
    for n in range(8):
        v = jnp.linalg.solve(jnp.eye(3) * (4 + n) + jnp.outer(v, x[3:6]), v + 1)
    return v


def _choleskys(x: Array) -> Array:
    """Six factorisations of matrices of three by three."""
    m = jnp.eye(3) * 4 + jnp.outer(x[:3], x[:3])
    for _ in range(6):
        factor = jnp.linalg.cholesky(m)
        m = jnp.eye(3) * 3 + factor @ factor.T / 4
    return m


def _runge_kutta(x: Array) -> Array:
    """Twenty steps of a Lorenz system."""

    def slope(y: Array) -> Array:
        return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 2.6 * y[2]])

    y, h = x[:3], 0.01
    for _ in range(20):
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3))
    return y


def _two_bodies(x: Array) -> Array:
    """Thirty leapfrog steps of two bodies in a plane."""
    q, v = x[:2] + 1, x[2:4]
    for _ in range(30):
        v = v - 0.01 * q / jnp.sum(q * q) ** 1.5
        q = q + 0.01 * v
    return jnp.concatenate([q, v])


def _rotations(x: Array) -> Array:
    """A chain of twelve joints in space."""
    frame, place = jnp.eye(3), jnp.zeros(3)
    for n in range(12):
        c, s = jnp.cos(x[n]), jnp.sin(x[n])
        turn = jnp.stack([c, -s, 0 * c, s, c, 0 * c, 0 * c, 0 * c, 1 + 0 * c]).reshape(3, 3)
        frame = frame @ jnp.roll(turn, n, (0, 1))
        place = place + frame @ jnp.array([0.3, 0.1, 0.2])
    return place


def _quaternions(x: Array) -> Array:
    """Twenty products of quaternions."""
    q = jnp.array([1.0, 0, 0, 0])
    for n in range(20):
        w, v = q[0], q[1:]
        u, t = jnp.cos(x[n % 8]), x[:3]
        q = jnp.concatenate([(w * u - v @ t)[None], w * t + u * v + jnp.cross(v, t)])
        q = q / jnp.linalg.norm(q)
    return q


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


def _mlp(x: Array) -> Array:
    """Twelve layers of eight with residuals, by the inputs."""
    v = x[:8]
    for n in range(12):
        v = v + jnp.tanh(_fixed(8, 8) * (1 + 0.1 * n) @ v + 0.1)
    return v


def _gru(x: Array) -> Array:
    """Fifteen steps of a gated recurrent cell of four, by its initial state and biases."""
    h, b = x[:4], x[4:12].reshape(2, 4)
    for n in range(15):
        z = jax.nn.sigmoid(_fixed(4, 4) @ h + b[0])
        h = z * h + (1 - z) * jnp.tanh(_fixed(4, 4).T @ h + b[1] + 0.1 * n)
    return h


def _attention(x: Array) -> Array:
    """Five layers of attention among three tokens of four."""
    t = x[:12].reshape(3, 4)
    for _ in range(5):
        q, k, v = (t @ (_fixed(4, 4) + n) for n in range(3))
        t = t + jax.nn.softmax(q @ k.T / 2) @ v / 4
        t = (t - t.mean(-1, keepdims=True)) / jnp.sqrt(t.var(-1, keepdims=True) + 1e-3)
    return t


def _heat(x: Array) -> Array:
    """Thirty steps of a nonlinear heat equation at ten places."""
    u = x[:10]
    for _ in range(30):
        flux = (1 + u[1:] ** 2) * jnp.diff(u)
        u = u + 0.1 * (jnp.pad(flux, (0, 1)) - jnp.pad(flux, (1, 0)))
    return u


def _newton(x: Array) -> Array:
    """Six Newton steps of two equations, with the inverse written out."""
    v = x[:2] + 1
    for _ in range(6):
        r = jnp.stack([v[0] ** 2 + v[1] - x[2], v[0] - v[1] ** 3 - x[3]])
        a, b, c, d = 2 * v[0], 1.0, 1.0, -3 * v[1] ** 2
        v = v - jnp.stack([d * r[0] - b * r[1], a * r[1] - c * r[0]]) / (a * d - b * c)
    return v


def _polynomial(x: Array) -> Array:
    """A polynomial of a matrix by Horner's scheme."""
    m = x[:16].reshape(4, 4)
    return reduce(lambda p, c: p @ m + c * jnp.eye(4), list(_fixed(20)), jnp.eye(4))


def functions() -> dict[str, Unrolled]:
    """The functions by name, with their argument."""
    every = {
        "products of complex exponentials": (_propagator, 4),
        "optical layers": (_transfer, 4),
        "quantum circuit": (_circuit, 3),
        "complex commutators": (_magnus, 3),
        "products of matrices": (_products, 9),
        "exponentials of matrices": (_exponentials, 2),
        "einsums of a tensor train": (_einsums, 6),
        "bilinear einsums": (_bilinear, 4),
        "solves": (_solves, 6),
        "Cholesky factors": (_choleskys, 3),
        "Runge-Kutta": (_runge_kutta, 3),
        "two bodies": (_two_bodies, 4),
        "chain of rotations": (_rotations, 12),
        "quaternions": (_quaternions, 8),
        "Kalman filter": (_kalman, 5),
        "residual network": (_mlp, 8),
        "gated recurrent cell": (_gru, 12),
        "attention": (_attention, 12),
        "heat equation": (_heat, 10),
        "Newton steps": (_newton, 4),
        "polynomial of a matrix": (_polynomial, 16),
    }
    return {name: Unrolled(fun, jnp.linspace(0.2, 0.9, n)) for name, (fun, n) in every.items()}
