"""Functions to which predicted times are fitted, beside `realistic`: machines, meshes, prices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from scripts.benchmarks.functions.learning import LEARNING

_RNG = np.random.default_rng(37)


def _normal(*shape: int) -> Array:
    return jnp.asarray(0.5 * _RNG.standard_normal(shape), jnp.float32)


def _uniform(low: float, high: float, *shape: int) -> Array:
    return jnp.asarray(_RNG.uniform(low, high, shape), jnp.float32)


_SPRINGS = np.array([(i, j) for i, j in _RNG.integers(0, 24, (60, 2)) if i != j])
_RING = np.stack([np.arange(12), (np.arange(12) + 1) % 12], 1)
_GRID: np.ndarray = np.stack(
    np.meshgrid(np.arange(5.0), np.arange(5.0), indexing="ij"), -1
).reshape(-1, 2)
_CORNERS = np.array([5 * a + b for a in range(4) for b in range(4)])[:, None]
_TRIANGLES: np.ndarray = np.concatenate([_CORNERS + [0, 1, 5], _CORNERS + [1, 6, 5]]).astype(int)
_EDGES = _GRID[_TRIANGLES[:, 1:]] - _GRID[_TRIANGLES[:, :1]]
_UNDEFORMED = np.linalg.inv(np.swapaxes(_EDGES, 1, 2)).astype(np.float32)
_STOICHIOMETRY = _RNG.integers(-1, 2, (9, 20)).astype(np.float32)


def quadrotor(state: Array, thrust: Array) -> Array:
    """Rates of position, attitude (a quaternion), velocity and spin of a quadrotor."""
    velocity, spin = state[7:10], state[10:]
    w, x, y, z = state[3:7] / jnp.linalg.norm(state[3:7])
    up = jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])
    lift = thrust**2
    drag = 0.1 * velocity * jnp.linalg.norm(velocity)
    force = up * lift.sum() - jnp.array([0.0, 0.0, 9.81]) - drag
    inertia = jnp.array([0.01, 0.012, 0.02])
    yaw = 0.1 * (lift[0] - lift[1] + lift[2] - lift[3])
    torque = jnp.stack([lift[0] - lift[2], lift[1] - lift[3], yaw])
    p, q, r = spin
    turn = 0.5 * jnp.stack(
        [
            -x * p - y * q - z * r,
            w * p + y * r - z * q,
            w * q - x * r + z * p,
            w * r + x * q - y * p,
        ]
    )
    spun = (torque - jnp.cross(spin, inertia * spin)) / inertia
    return jnp.concatenate([velocity, turn, force, spun])


def spring_network(x: Array, v: Array) -> Array:
    """Forces on nodes that springs and dampers join."""
    i, j = _SPRINGS.T
    apart = x[j] - x[i]
    length = jnp.sqrt(jnp.sum(apart * apart, -1) + 1e-6)
    force = (3.0 * (length - 1.0) / length)[:, None] * apart + 0.1 * (v[j] - v[i])
    return jnp.zeros_like(x).at[i].add(force).at[j].add(-force)


def elastic_mesh(x: Array) -> Array:
    """Forces on the nodes of a mesh of neo-Hookean triangles: a gradient."""

    def energy(x: Array) -> Array:
        deformed = jnp.swapaxes(x[_TRIANGLES[:, 1:]] - x[_TRIANGLES[:, :1]], 1, 2)
        gradient = deformed @ _UNDEFORMED
        area = gradient[:, 0, 0] * gradient[:, 1, 1] - gradient[:, 0, 1] * gradient[:, 1, 0]
        log = jnp.log(area)
        return jnp.sum(0.5 * (jnp.sum(gradient**2, (1, 2)) - 2) - log + 0.5 * log**2)

    return jax.grad(energy)(x)


def lagrangian(state: Array) -> Array:
    """Rates of a triple pendulum by its Lagrangian: a Hessian and a linear system."""

    def action(q: Array, v: Array) -> Array:
        place = lambda q: jnp.stack([jnp.cumsum(jnp.sin(q)), -jnp.cumsum(jnp.cos(q))])  # noqa: E731
        moved = jax.jacfwd(place)(q) @ v
        return 0.5 * jnp.sum(moved**2) - 9.81 * jnp.sum(place(q)[1])

    q, v = state[:3], state[3:]
    mass = jax.hessian(action, 1)(q, v)
    pulled = jax.jacfwd(jax.grad(action, 1), 0)(q, v) @ v
    return jnp.concatenate([v, jnp.linalg.solve(mass, jax.grad(action, 0)(q, v) - pulled)])


def collocation(z: Array, u: Array) -> Array:
    """Defects of a trajectory of a pendulum on a cart, by Hermite's and Simpson's rules."""

    def rates(z: Array, u: Array) -> Array:
        _, angle, speed, spin = z
        s, c = jnp.sin(angle), jnp.cos(angle)
        pushed = (u + s * (spin * spin + 9.81 * c)) / (1 + s * s)
        turned = (-u * c - spin * spin * s * c - 2 * 9.81 * s) / (1 + s * s)
        return jnp.stack([speed, spin, pushed, turned])

    h, f = 0.1, jax.vmap(rates)(z, u)
    middle = 0.5 * (z[1:] + z[:-1]) + h / 8 * (f[:-1] - f[1:])
    between = jax.vmap(rates)(middle, 0.5 * (u[1:] + u[:-1]))
    return z[1:] - z[:-1] - h / 6 * (f[:-1] + 4 * between + f[1:])


def implicit_diffusion(u: Array, conductivity: Array) -> Array:
    """An implicit step of a reaction with diffusion: a tridiagonal system."""
    k, none = 0.5 * (conductivity[1:] + conductivity[:-1]), jnp.zeros(1)
    low, up = jnp.concatenate([none, -k]), jnp.concatenate([-k, none])
    right = u + 0.1 * u * (1 - u)
    return lax.linalg.tridiagonal_solve(low, 1 - low - up, up, right[:, None])[:, 0]


def moving_average(parameters: Array, seen: Array) -> Array:
    """Residuals of a series with one autoregressive and one moving-average term."""

    def step(before: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], Array]:
        value, error = before
        error = now - parameters[0] - parameters[1] * value - parameters[2] * error
        return (now, error), error

    start = jnp.zeros((), seen.dtype)
    return lax.scan(step, (start, start), seen)[1]


def pose_graph(poses: Array, measured: Array) -> Array:
    """Residuals of measured motions between poses on a loop."""

    def rotation(w: Array) -> Array:
        angle = jnp.sqrt(w @ w + 1e-8)
        x, y, z = w / angle
        zero = jnp.zeros_like(x)
        cross = jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)
        return jnp.eye(3) + jnp.sin(angle) * cross + (1 - jnp.cos(angle)) * cross @ cross

    turned, (i, j) = jax.vmap(rotation)(poses[:, 3:]), _RING.T
    shift = jnp.einsum("eba,eb->ea", turned[i], poses[j, :3] - poses[i, :3])
    turn = jnp.einsum("eba,ebc->eac", turned[i], turned[j])
    skew = (turn - jnp.swapaxes(turn, 1, 2))[:, [2, 0, 1], [1, 2, 0]]
    return jnp.concatenate([shift, skew], 1) - measured


def kuramoto_sivashinsky(u: Array) -> Array:
    """Rates of a flame front, by Fourier's transform."""
    wave = jnp.fft.rfftfreq(u.size, 1 / u.size) * (2 * np.pi / 16)
    linear = (wave**2 - wave**4) * jnp.fft.rfft(u)
    return jnp.fft.irfft(linear - 0.5j * wave * jnp.fft.rfft(u * u), u.size)


def viscous_steps(u: Array) -> Array:
    """Twenty steps of Burgers' equation on a ring, a `fori_loop`."""

    def rates(u: Array) -> Array:
        left, right = jnp.roll(u, 1), jnp.roll(u, -1)
        return -8 * u * (right - left) + 3.2 * (right - 2 * u + left)

    def step(_: int, u: Array) -> Array:
        first = rates(u)
        return u + 5e-4 * (first + rates(u + 1e-3 * first))

    return lax.fori_loop(0, 20, step, u)


def wealth(returns: Array, weights: Array) -> Array:
    """Logarithms of what a portfolio has grown to, day by day."""
    return jnp.log(jnp.cumprod(1 + returns @ weights)) - jnp.sum(weights)


def metabolism(concentration: Array, rate: Array, half: Array) -> Array:
    """Rates of nine species in twenty reactions with saturation."""
    order = jnp.maximum(-_STOICHIOMETRY, 0)
    share = concentration / (half + concentration)
    return jnp.asarray(_STOICHIOMETRY) @ (rate * jnp.prod(share[:, None] ** order, 0))


def food_web(x: Array, growth: Array, interaction: Array) -> Array:
    """Rates of twenty species that eat each other."""
    return x * (growth + interaction @ x)


def homography(h: Array, points: Array) -> Array:
    """Points under a projective map."""
    seen = jnp.concatenate([points, jnp.ones((len(points), 1))], 1)
    image = seen @ jnp.append(h, 1.0).reshape(3, 3).T
    return image[:, :2] / image[:, 2:]


def heston(parameters: Array, u: Array) -> Array:
    """Real part of the characteristic function of a price under stochastic volatility."""
    revert, mean, vol, correlation, start = parameters
    drift = revert - correlation * vol * 1j * u
    root = jnp.sqrt(drift**2 + vol**2 * (1j * u + u * u))
    ratio, decay = (drift - root) / (drift + root), jnp.exp(-root)
    log = jnp.log((1 - ratio * decay) / (1 - ratio))
    level = revert * mean / vol**2 * (drift - root - 2 * log)
    slope = (drift - root) / vol**2 * (1 - decay) / (1 - ratio * decay)
    return jnp.real(jnp.exp(level + slope * start))


def orbit(elements: Array) -> Array:
    """Position of a satellite by its Keplerian elements; eight steps of Newton's method."""
    size, eccentricity, tilt, node, periapsis, mean = elements

    def step(_: int, angle: Array) -> Array:
        error = angle - eccentricity * jnp.sin(angle) - mean
        return angle - error / (1 - eccentricity * jnp.cos(angle))

    angle = lax.fori_loop(0, 8, step, mean)
    above, below = jnp.sqrt(1 + eccentricity), jnp.sqrt(1 - eccentricity)
    true = 2 * jnp.arctan2(above * jnp.sin(angle / 2), below * jnp.cos(angle / 2))
    along, far = periapsis + true, size * (1 - eccentricity * jnp.cos(angle))
    c, s, cn, sn = jnp.cos(along), jnp.sin(along), jnp.cos(node), jnp.sin(node)
    flat, up = s * jnp.cos(tilt), s * jnp.sin(tilt)
    return far * jnp.stack([cn * c - sn * flat, sn * c + cn * flat, up])


_FLAT = jnp.array([1.0, 0, 0, 0, 1.0, 0, 0, 0])
MODELS: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "quadrotor": (quadrotor, (_normal(13) + jnp.eye(13)[3], _uniform(0.5, 2, 4)), (0, 1)),
    "spring_network": (spring_network, (3 * _normal(24, 2), _normal(24, 2)), (0, 1)),
    "elastic_mesh": (elastic_mesh, (jnp.asarray(_GRID, "f4") + 0.1 * _normal(25, 2),), 0),
    "lagrangian": (lagrangian, (_normal(6),), 0),
    "collocation": (collocation, (_normal(15, 4), _normal(15)), (0, 1)),
    "implicit_diffusion": (implicit_diffusion, (_uniform(0, 1, 20), _uniform(0.1, 1, 20)), (0, 1)),
    "moving_average": (moving_average, (_normal(3), _normal(60)), 0),
    "pose_graph": (pose_graph, (_normal(12, 6), _normal(12, 6)), 0),
    "kuramoto_sivashinsky": (kuramoto_sivashinsky, (_normal(32),), 0),
    "viscous_steps": (viscous_steps, (_normal(16),), 0),
    "wealth": (wealth, (0.1 * _normal(40, 6), _normal(6)), 1),
    "metabolism": (
        metabolism, (_uniform(0.1, 1, 9), _uniform(0.5, 2, 20), jnp.float32(0.3)), (0, 1),
    ),
    "food_web": (food_web, (_uniform(0.1, 1, 20), _normal(20), _normal(20, 20)), (0, 1)),
    "homography": (homography, (_FLAT + 0.2 * _normal(8), _normal(30, 2)), 0),
    "heston": (heston, (jnp.array([1.5, 0.04, 0.3, -0.7, 0.05]), jnp.linspace(0.1, 8, 16)), 0),
    "orbit": (orbit, (jnp.array([1.2, 0.3, 0.5, 0.2, 0.7, 1.1]),), 0),
    **LEARNING,
}  # fmt: skip
"""Function, point and argnums by name."""
