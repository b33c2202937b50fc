"""More functions for `benchmark.py realistic`: loops, solves, indices, masks, complex numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_RNG = np.random.default_rng(11)
_CAMERA, _POINT = _RNG.integers(0, 4, 24), _RNG.integers(0, 12, 24)
_OBSERVED = _RNG.integers(0, 6, 25)
_LABEL = _RNG.integers(0, 5, 40)
_BARS = np.array(
    [[0, 1], [1, 2], [2, 3], [0, 4], [1, 4], [1, 5], [2, 5], [4, 5], [2, 6], [5, 6], [3, 6]]
)
_NODES = np.array([[0, 0], [1, 0], [2, 0], [3, 0], [0.5, 1], [1.5, 1], [2.5, 1]])
_FREE = np.array([2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13])
_FROM = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 6, 8, 8, 9, 11, 12])
_TO = np.array([1, 4, 2, 3, 4, 3, 4, 6, 8, 5, 10, 11, 12, 7, 8, 9, 13, 10, 12, 13])


def _normal(*shape: int) -> Array:
    return jnp.asarray(0.5 * _RNG.standard_normal(shape), jnp.float32)


def _uniform(low: float, high: float, *shape: int) -> Array:
    return jnp.asarray(_RNG.uniform(low, high, shape), jnp.float32)


def sigma_points(mean: Array, cov: Array, u: Array) -> tuple[Array, Array]:
    """Mean and covariance of a bicycle's next state by the unscented transform."""
    n = mean.size
    root = jnp.linalg.cholesky((n + 0.5) * cov)
    points = jnp.concatenate([mean[None], mean + root.T, mean - root.T])
    weights = jnp.concatenate([jnp.array([0.5 / (n + 0.5)]), jnp.full(2 * n, 0.5 / (n + 0.5))])

    def bicycle(s: Array) -> Array:
        x, y, heading, v = s
        slip = jnp.arctan(0.5 * jnp.tan(u[1]))
        east, north = jnp.cos(heading + slip), jnp.sin(heading + slip)
        turn = 0.08 * v * jnp.sin(slip)
        return jnp.stack([x + 0.1 * v * east, y + 0.1 * v * north, heading + turn, v + 0.1 * u[0]])

    images = jax.vmap(bicycle)(points)
    middle = weights @ images
    apart = images - middle
    return middle, (weights * apart.T) @ apart + 0.01 * jnp.eye(n)


def shallow_water(state: Array) -> Array:
    """Rates of depth and discharge: limited slopes, Rusanov fluxes; state: [2, n]."""

    def limited(a: Array, b: Array) -> Array:
        least = jnp.sign(a) * jnp.minimum(jnp.abs(a), jnp.abs(b))
        return jnp.where(a * b > 0, least, 0.0)

    def flux(s: Array) -> Array:
        return jnp.stack([s[1], s[1] ** 2 / s[0] + 4.905 * s[0] ** 2])

    def speed(s: Array) -> Array:
        return jnp.abs(s[1] / s[0]) + jnp.sqrt(9.81 * s[0])

    wide = jnp.concatenate([state[:, :1], state, state[:, -1:]], 1)
    steps = wide[:, 1:] - wide[:, :-1]
    slope = limited(steps[:, 1:], steps[:, :-1])
    left, right = (state + 0.5 * slope)[:, :-1], (state - 0.5 * slope)[:, 1:]
    wave = jnp.maximum(speed(left), speed(right))
    face = 0.5 * (flux(left) + flux(right)) - 0.5 * wave * (right - left)
    return face[:, :-1] - face[:, 1:]


def hidden_markov(first: Array, step: Array, emit: Array) -> tuple[Array, Array]:
    """Log-likelihoods of a sequence's beginnings, by `scan`."""
    moves, seen = jax.nn.log_softmax(step), jax.nn.log_softmax(emit)

    def forward(a: Array, o: Array) -> tuple[Array, Array]:
        a = jax.nn.logsumexp(a[:, None] + moves, 0) + seen[:, o]
        return a, jax.nn.logsumexp(a)

    start = jax.nn.log_softmax(first) + seen[:, _OBSERVED[0]]
    return jax.lax.scan(forward, start, jnp.asarray(_OBSERVED[1:]))


def truss(area: Array, nodes: Array, load: Array) -> Array:
    """Displacements of a truss whose stiffness is assembled by a scatter."""
    a, b = _BARS.T
    d = nodes[b] - nodes[a]
    length = jnp.sqrt((d * d).sum(1))
    e = jnp.concatenate([-d, d], 1) / length[:, None]
    of_bars = (area / length)[:, None, None] * e[:, :, None] * e[:, None, :]
    at = np.stack([2 * a, 2 * a + 1, 2 * b, 2 * b + 1], 1)
    whole = jnp.zeros((14, 14), of_bars.dtype).at[at[:, :, None], at[:, None, :]].add(of_bars)
    return jnp.linalg.solve(whole[_FREE[:, None], _FREE], load[_FREE])


def neuron(state: Array, conductance: Array) -> Array:
    """Ten steps of Hodgkin and Huxley's equations, Runge–Kutta in a `fori_loop`."""

    def rate(s: Array) -> Array:
        v, m, h, n = s
        opens = jnp.stack(
            [-0.1 * (v + 40) / jnp.expm1(-(v + 40) / 10), 0.07 * jnp.exp(-(v + 65) / 20),
             -0.01 * (v + 55) / jnp.expm1(-(v + 55) / 10)]
        )  # fmt: skip
        shuts = jnp.stack(
            [4 * jnp.exp(-(v + 65) / 18), jax.nn.sigmoid((v + 35) / 10),
             0.125 * jnp.exp(-(v + 65) / 80)]
        )  # fmt: skip
        g = conductance
        flow = g[0] * m**3 * h * (v - 50) + g[1] * n**4 * (v + 77) + g[2] * (v + 54.4)
        return jnp.concatenate([(10 - flow)[None], opens * (1 - s[1:]) - shuts * s[1:]])

    def step(_: int, s: Array) -> Array:
        h = 0.02
        a = rate(s)
        b = rate(s + h / 2 * a)
        c = rate(s + h / 2 * b)
        return s + h / 6 * (a + 2 * b + 2 * c + rate(s + h * c))

    return jax.lax.fori_loop(0, 10, step, state)


def lens(curvature: Array, gap: Array, height: Array) -> Array:
    """Where rays meet a screen after four spherical surfaces."""
    index = [1.0, 1.52, 1.0, 1.62, 1.0]
    y, z, along, across = height, 0 * height, 0 * height, 1 + 0 * height
    for k in range(4):
        z, c, ratio = z - gap[k], curvature[k], index[k] / index[k + 1]
        b = across - c * (y * along + z * across)
        q = c * (y**2 + z**2) - 2 * z
        t = q / (b + jnp.sqrt(b * b - c * q))
        y, z = y + t * along, z + t * across
        ny, nz = -c * y, 1 - c * z
        incoming = along * ny + across * nz
        bend = jnp.sqrt(1 - ratio**2 * (1 - incoming**2)) - ratio * incoming
        along, across = ratio * along + bend * ny, ratio * across + bend * nz
    return y + (8.0 - z) * along / across


def bundle(cameras: Array, points: Array, seen: Array) -> Array:
    """Residuals of points that are seen by cameras, both found by index."""

    def residual(c: Array, x: Array, o: Array) -> Array:
        w = c[:3]
        angle = jnp.sqrt(w @ w + 1e-12)
        turned = jnp.cross(w, x) * jnp.sinc(angle / jnp.pi) + x
        turned += jnp.cross(w, jnp.cross(w, x)) * (1 - jnp.cos(angle)) / angle**2
        p = turned + c[3:6]
        xy = p[:2] / p[2]
        r = xy @ xy
        return c[6] * (1 + c[7] * r + c[8] * r**2) * xy - o

    return jax.vmap(residual)(cameras[_CAMERA], points[_POINT], seen)


def mixture(parameters: dict[str, Array], data: Array) -> Array:
    """Log-likelihood of each datum under a mixture of normal distributions."""
    log_diagonal = jnp.diagonal(parameters["factor"], axis1=1, axis2=2)
    factors = jnp.tril(parameters["factor"], -1) + jax.vmap(jnp.diag)(jnp.exp(log_diagonal))

    def component(mean: Array, factor: Array) -> Array:
        z = jax.scipy.linalg.solve_triangular(factor, (data - mean).T, lower=True)
        return -0.5 * jnp.sum(z * z, 0)

    each = jax.vmap(component)(parameters["mean"], factors) - log_diagonal.sum(1)[:, None]
    return jax.nn.logsumexp(jax.nn.log_softmax(parameters["logits"])[:, None] + each, axis=0)


def branch_flows(v: Array, angle: Array, g: Array, b: Array) -> tuple[Array, Array, Array]:
    """Powers on the branches of a grid, and what they add up to at the buses."""
    d, vi, vj = angle[_FROM] - angle[_TO], v[_FROM], v[_TO]
    c, s = jnp.cos(d), jnp.sin(d)
    p = vi**2 * g - vi * vj * (g * c + b * s)
    q = -(vi**2) * b - vi * vj * (g * s - b * c)
    return p, q, jnp.zeros(14, v.dtype).at[_FROM].add(p).at[_TO].add(-p)


def thin_film(thickness: Array, index: Array) -> Array:
    """Reflectances of a stack of layers at 16 wavelengths: complex 2×2 matrices in a `scan`."""

    def at(wavelength: Array) -> Array:
        def layer(m: Array, film: tuple[Array, Array]) -> tuple[Array, None]:
            phase = 2 * jnp.pi * film[1] * film[0] / wavelength
            c, s = jnp.cos(phase), jnp.sin(phase)
            return m @ jnp.array([[c + 0j, 1j * s / film[1]], [1j * film[1] * s, c + 0j]]), None

        m, _ = jax.lax.scan(layer, jnp.eye(2, dtype=jnp.complex64), (thickness, index))
        b, c = m @ jnp.array([1.0, 1.52], m.dtype)
        return jnp.abs((b - c) / (b + c)) ** 2

    return jax.vmap(at)(jnp.linspace(0.4, 0.8, 16))


def softmax_losses(w: Array, b: Array, x: Array) -> Array:
    """The loss of each datum of softmax regression."""
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), _LABEL[:, None], 1)[:, 0]


FIELDS: dict[str, tuple[Any, tuple[Any, ...], int | tuple[int, ...]]] = {
    "sigma_points": (
        sigma_points,
        (_normal(4), jnp.diag(jnp.array([0.1, 0.2, 0.05, 0.3])) + 0.01, jnp.array([0.5, 0.2])),
        (0, 1),
    ),
    "shallow_water": (shallow_water, (jnp.stack([2 + 0.3 * _normal(40), _normal(40)]),), 0),
    "hidden_markov": (hidden_markov, (_normal(5), _normal(5, 5), _normal(5, 6)), (0, 1, 2)),
    "truss": (truss, (_uniform(0.5, 1.5, 11), jnp.asarray(_NODES, "f4"), _normal(14)), (0, 1)),
    "neuron": (
        neuron,
        (jnp.array([-60.0, 0.06, 0.6, 0.32]), jnp.array([120.0, 36.0, 0.3])),
        (0, 1),
    ),
    "lens": (
        lens,
        (jnp.array([0.1, -0.08, 0.05, -0.12]), jnp.array([0.5, 0.6, 0.4, 0.5]),
         jnp.linspace(-1.0, 1.0, 20)),
        (0, 1),
    ),
    "bundle": (
        bundle,
        (jnp.concatenate([0.2 * _normal(4, 5), 5 + _normal(4, 1), jnp.full((4, 1), 300.0),
                          0.01 * _normal(4, 2)], 1), _normal(12, 3), _normal(24, 2)),
        (0, 1),
    ),
    "mixture": (
        mixture,
        ({"logits": _normal(4), "mean": _normal(4, 3), "factor": 0.3 * _normal(4, 3, 3)},
         _normal(30, 3)),
        0,
    ),
    "branch_flows": (
        branch_flows,
        (1 + 0.02 * _normal(14), 0.1 * _normal(14), _uniform(1, 5, 20), -_uniform(3, 15, 20)),
        (0, 1),
    ),
    "thin_film": (thin_film, (_uniform(0.05, 0.15, 6), _uniform(1.4, 2.3, 6)), (0, 1)),
    "softmax_losses": (softmax_losses, (_normal(8, 5), _normal(5), _normal(40, 8)), (0, 1)),
}  # fmt: skip
"""Function, point and argnums by name."""
