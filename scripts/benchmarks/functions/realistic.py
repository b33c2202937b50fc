"""Functions that people differentiate, from a few fields, for `benchmark.py realistic`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scripts.benchmarks.functions.fields import FIELDS

Entry = tuple[Callable[..., Any], tuple[Any, ...], int | tuple[int, ...]]


def _random(seed: int, *shape: int) -> Array:
    return jnp.asarray(0.5 * np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def gru_cell(w: Array, u: Array, b: Array, x: Array, h: Array) -> Array:
    """The next state of a gated recurrent unit; w: [3, n, m], u: [3, n, n], b: [3, n]."""
    z = jax.nn.sigmoid(w[0] @ x + u[0] @ h + b[0])
    r = jax.nn.sigmoid(w[1] @ x + u[1] @ h + b[1])
    return z * h + (1 - z) * jnp.tanh(w[2] @ x + u[2] @ (r * h) + b[2])


def convolution(image: Array, kernel: Array, dense: Array) -> Array:
    """A convolution, a smooth activation, mean pooling and a dense layer."""
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(image[None], kernel, (2, 2), "SAME", dimension_numbers=numbers)
    y = jax.nn.softplus(y[0])
    n, m, c = y.shape
    return dense @ y.reshape(n // 2, 2, m // 2, 2, c).mean((1, 3)).reshape(-1)


def _pendula(s: Array) -> Array:
    """Two pendula on a spring."""
    a, b, v, w = s
    return jnp.stack([v, w, -jnp.sin(a) - 0.3 * (a - b), -jnp.sin(b) - 0.3 * (b - a)])


def _heun(s: Array, h: float = 0.05) -> Array:
    k = _pendula(s)
    return s + 0.5 * h * (k + _pendula(s + h * k))


def pendula_unrolled(s: Array) -> Array:
    """The state after 16 steps of Heun's method, a Python loop."""
    for _ in range(16):
        s = _heun(s)
    return s


def pendula_scan(s: Array) -> Array:
    """The state after 64 steps, one `scan`."""
    return jax.lax.scan(lambda x, _: (_heun(x), None), s, None, length=64)[0]


def vector_field(x: Array, layers: list[tuple[Array, Array]]) -> Array:
    """The right-hand side of a neural ODE."""
    for w, b in layers[:-1]:
        x = jax.nn.silu(w @ x + b)
    return layers[-1][0] @ x + layers[-1][1]


def filter_update(x: Array, p: Array, z: Array, h: Array, r: Array) -> tuple[Array, Array]:
    """Mean and covariance after a measurement z = h x of a Kalman filter (Joseph's form)."""
    s = h @ p @ h.T + r
    k = jnp.linalg.solve(s, h @ p).T
    rest = jnp.eye(x.size) - k @ h
    return x + k @ (z - h @ x), rest @ p @ rest.T + k @ r @ k.T


def planar_chain(q: Array, v: Array, a: Array) -> Array:
    """Torques of a planar chain of unit links with point masses: inverse dynamics, backwards."""
    angle, rate, turn = jnp.cumsum(q), jnp.cumsum(v), jnp.cumsum(a)
    c, s = jnp.cos(angle), jnp.sin(angle)
    ax = jnp.cumsum(-s * turn - c * rate**2)
    ay = jnp.cumsum(c * turn - s * rate**2) + 9.81
    fx, fy = jnp.cumsum(ax[::-1])[::-1], jnp.cumsum(ay[::-1])[::-1]
    return jnp.cumsum((c * fy - s * fx)[::-1])[::-1]


def pinhole(pose: Array, lens: Array, point: Array) -> Array:
    """Image of a point in a camera whose pose is a quaternion and a shift, with distortion."""
    q, t = pose[:4] / jnp.sqrt(jnp.sum(pose[:4] ** 2)), pose[4:]
    u = jnp.cross(q[1:], point) + q[0] * point
    p = point + 2 * jnp.cross(q[1:], u) + t
    xy = p[:2] / p[2]
    r2 = xy @ xy
    return lens[0] * xy * (1 + r2 * (lens[1] + lens[2] * r2)) + lens[3:5]


def reactor(y: Array) -> Array:
    """Rates of a stirred reactor: four species and a temperature, three Arrhenius reactions."""
    c, t = y[:4], y[4]
    k = jnp.array([2e4, 6e4, 1e4]) * jnp.exp(-jnp.array([5e3, 6e3, 5.5e3]) / t)
    r = k * jnp.stack([c[0] * c[1], c[1] ** 2, c[2] * c[0]])
    nu = jnp.array([[-1.0, 0, -1], [-1, -2, 0], [1, 0, -1], [0, 1, 2]])
    heat = jnp.array([40.0, 25.0, -10.0]) @ r - 0.8 * (t - 290.0)
    return jnp.concatenate([jnp.array([1.0, 1, 0, 0]) - c + nu @ r, heat[None]])


def lennard_jones(x: Array) -> Array:
    """Forces between particles; x: [n, 3]."""
    d = x[:, None] - x[None]
    inverse = 1 / (jnp.sum(d * d, -1) + 0.1 + 1e3 * jnp.eye(x.shape[0]))
    return jnp.sum((inverse**4 - 0.5 * inverse**2)[..., None] * d, 1)


def attention(x: Array, query: Array, key: Array, value: Array) -> Array:
    """Causal attention of a sequence; x: [t, n]."""
    scores = (x @ query) @ (x @ key).T / np.sqrt(x.shape[1])
    scores = jnp.where(np.tri(x.shape[0], dtype=bool), scores, -1e9)
    return jax.nn.softmax(scores) @ (x @ value)


def glider(u: Array) -> Array:
    """States of a planar vehicle under controls, a Python loop; u: [t, 2]."""
    s, states = jnp.array([0.0, 1.0, 0.1, 1.0, 0.0]), []
    for thrust, turn in u:
        x, y, angle, speed, _ = s
        drag = 0.02 * speed * speed
        force = jnp.tanh(thrust) - drag - 0.3 * jnp.sin(angle)
        s = jnp.stack(
            [
                x + 0.1 * speed * jnp.cos(angle),
                y + 0.1 * speed * jnp.sin(angle),
                angle + 0.1 * turn / (1 + speed * speed),
                speed + 0.1 * force,
                force,
            ]
        )
        states.append(s)
    return jnp.stack(states)


def gray_scott(y: Array) -> Array:
    """Rates of a reaction and diffusion on a ring; y: [2, n]."""
    u, v = y

    def diffusion(z: Array) -> Array:
        return jnp.roll(z, 1) + jnp.roll(z, -1) - 2 * z

    uvv = u * v * v
    return jnp.stack(
        [0.2 * diffusion(u) - uvv + 0.04 * (1 - u), 0.1 * diffusion(v) + uvv - 0.1 * v]
    )


def gaussian_process(theta: Array) -> Array:
    """Whitened residuals of a Gaussian process by its hyperparameters."""
    x = jnp.linspace(0.0, 2.0, 16)
    d = jnp.abs(x[:, None] - x[None]) / theta[1]
    cover = theta[0] ** 2 * (1 + d) * jnp.exp(-d) + (0.05 + theta[2] ** 2) * jnp.eye(16)
    lower = jnp.linalg.cholesky(cover)
    return jax.scipy.linalg.solve_triangular(lower, jnp.cos(4 * x), lower=True)


def arm_matrices(q: Array) -> Array:
    """Position of the tip of a seven-joint arm by products of 4 by 4 matrices."""
    pose = jnp.eye(4)
    for k in range(7):
        c, s = jnp.cos(q[k]), jnp.sin(q[k])
        if k % 2:
            turn = jnp.array([[c, 0.0, s, 0.1], [0, 1, 0, 0], [-s, 0, c, 0.2], [0, 0, 0, 1]])
        else:
            turn = jnp.array([[c, -s, 0.0, 0.0], [s, c, 0, 0], [0, 0, 1, 0.3], [0, 0, 0, 1]])
        pose = pose @ turn
    return pose[:3].reshape(-1)


def upwind(u: Array) -> Array:
    """Rates of Burgers' equation with a limiter; u: [n]."""
    left, right = u - jnp.roll(u, 1), jnp.roll(u, -1) - u
    slope = jnp.where(left * right > 0, 2 * left * right / (left + right + 1e-6), 0.0)
    face = u + 0.5 * slope
    flux = 0.5 * face * face
    return jnp.roll(flux, 1) - flux


def power_flow(v: Array, angle: Array, conductance: Array, susceptance: Array) -> Array:
    """Active and reactive powers of the buses of a grid."""
    d = angle[:, None] - angle[None]
    c, s = jnp.cos(d), jnp.sin(d)
    p = v * ((conductance * c + susceptance * s) @ v)
    return jnp.concatenate([p, v * ((conductance * s - susceptance * c) @ v)])


_LAYERS = [
    (_random(0, 48, 6), _random(1, 48)),
    (_random(2, 48, 48), _random(3, 48)),
    (_random(4, 6, 48), _random(5, 6)),
]
_FILTER = (_random(0, 5), jnp.eye(5), _random(1, 2), _random(2, 2, 5), 0.2 * jnp.eye(2))
_IMAGE = (_random(0, 16, 16, 2), _random(1, 3, 3, 2, 6), _random(2, 8, 96))

FUNCTIONS: dict[str, Entry] = {
    "gru_params": (
        gru_cell,
        (_random(0, 3, 12, 6), _random(1, 3, 12, 12), _random(2, 3, 12), _random(3, 6),
         _random(4, 12)),
        (0, 1, 2),
    ),
    "conv_image": (convolution, _IMAGE, 0),
    "conv_kernel": (convolution, _IMAGE, 1),
    "pendula_unrolled": (pendula_unrolled, (jnp.array([0.5, -0.3, 0.1, 0.2]),), 0),
    "pendula_scan": (pendula_scan, (jnp.array([0.5, -0.3, 0.1, 0.2]),), 0),
    "vector_field_state": (vector_field, (_random(9, 6), _LAYERS), 0),
    "vector_field_params": (vector_field, (_random(9, 6), _LAYERS), 1),
    "kalman_update": (filter_update, _FILTER, (0, 1)),
    "planar_chain": (planar_chain, (_random(0, 8), _random(1, 8), _random(2, 8)), (0, 1)),
    "pinhole": (
        pinhole,
        (jnp.array([1.0, 0.1, -0.2, 0.05, 0.1, 0.2, 4.0]), jnp.array([300.0, 0.01, 1e-3, 1.0, 2.0]),
         jnp.array([0.3, -0.2, 0.5])),
        (0, 1, 2),
    ),
    "reactor": (reactor, (jnp.array([0.6, 0.5, 0.2, 0.1, 340.0]),), 0),
    "lennard_jones": (lennard_jones, (3 * _random(0, 12, 3),), 0),
    "attention": (
        attention, (_random(0, 10, 12), _random(1, 12, 12), _random(2, 12, 12), _random(3, 12, 12)),
        0,
    ),
    "glider": (glider, (_random(0, 14, 2),), 0),
    "gray_scott": (gray_scott, (1.0 + _random(0, 2, 48),), 0),
    "gaussian_process": (gaussian_process, (jnp.array([1.0, 0.4, 0.2]),), 0),
    "arm_matrices": (arm_matrices, (_random(0, 7),), 0),
    "upwind": (upwind, (1.0 + _random(0, 64),), 0),
    "power_flow": (
        power_flow,
        (1.0 + 0.1 * _random(0, 10), 0.1 * _random(1, 10), _random(2, 10, 10), _random(3, 10, 10)),
        (0, 1),
    ),
    **FIELDS,
}  # fmt: skip
"""Function, point and argnums by name."""
