"""Functions such as engineers write, on which the choice of a form turns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from scripts.benchmarks.functions.case import Cases, Numbers, runge_kutta

ENGINEERING = Cases()
_DRAWN = Numbers(23)
_normal, _uniform = _DRAWN.normal, _DRAWN.uniform
_GRID = np.linspace(0.5, 1.5, 201, dtype=np.float32)
_TURNS = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]])


def _turned(axis: np.ndarray, angle: Array) -> Array:
    """The rotation about an axis."""
    x, y, z = axis
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]], np.float32)
    return jnp.eye(3) + jnp.sin(angle) * skew + (1 - jnp.cos(angle)) * (skew @ skew)


@ENGINEERING.add(_normal(7), _normal(7), _normal(7), argnums=(0, 1))
def inverse_dynamics(q: Array, v: Array, a: Array) -> Array:
    """Torques of seven joints, by a recursion out and back."""
    link = jnp.array([0.1, 0.05, 0.3])
    inertia = jnp.diag(jnp.array([0.1, 0.12, 0.02]))
    w, dw, p = jnp.zeros(3), jnp.zeros(3), jnp.array([0.0, 0.0, 9.81])
    frames, wrenches = [], []
    for k, axis in enumerate(_TURNS):
        r = _turned(axis, q[k]).T
        w, dw, p = (
            r @ w + v[k] * axis,
            r @ dw + jnp.cross(r @ w, v[k] * axis) + a[k] * axis,
            r @ (p + jnp.cross(dw, link) + jnp.cross(w, jnp.cross(w, link))),
        )
        mass = p + jnp.cross(dw, link / 2) + jnp.cross(w, jnp.cross(w, link / 2))
        frames.append(r)
        wrenches.append((2.0 * mass, inertia @ dw + jnp.cross(w, inertia @ w)))
    force, moment, torques = jnp.zeros(3), jnp.zeros(3), []
    for k in reversed(range(7)):
        back = frames[k + 1].T if k < 6 else jnp.eye(3)
        own, turn = wrenches[k]
        moment = turn + back @ moment + jnp.cross(link / 2, own) + jnp.cross(link, back @ force)
        force = back @ force + own
        torques.append(moment @ _TURNS[k])
    return jnp.stack(torques[::-1])


@ENGINEERING.add(
    _normal(16, 4), _normal(16), _normal(16, 16), _normal(16), _normal(4, 16), _normal(4),
    argnums=(0, 1, 2, 3, 4),
)  # fmt: skip
def neural_ode(u: Array, a: Array, v: Array, b: Array, w: Array, y: Array) -> Array:
    """The state after ten steps of a network of two layers, by its weights."""
    slope = lambda y: w @ jnp.tanh(v @ jnp.tanh(u @ y + a) + b)  # noqa: E731
    return lax.scan(lambda y, _: (y + 0.1 * slope(y), None), y, None, length=10)[0]


@ENGINEERING.add(_uniform(0.2, 1.0, 8), _uniform(0.2, 1.0, 8), argnums=(0, 1))
def rosenbrock(y: Array, k: Array) -> Array:
    """A linearly implicit step of two stages, of a ring of eight reactions."""

    def rates(y: Array) -> Array:
        r = k * y * jnp.roll(y, -1) / (1 + y)
        return jnp.roll(r, 1) - r + 0.1 * (1 - y)

    g, h = 1 - 2**-0.5, 0.1
    system = jnp.eye(8) - g * h * jax.jacfwd(rates)(y)
    first = jnp.linalg.solve(system, rates(y))
    second = jnp.linalg.solve(system, rates(y + h * first) - 2 * first)
    return y + 1.5 * h * first + 0.5 * h * second


@ENGINEERING.add(jnp.array([1.0, 0.2, 0.01, 1e-4]))
def price(m: Array) -> Array:
    """The price of an option by finite differences, by four parameters."""

    def tick(v: Array, _: None) -> tuple[Array, None]:
        up, down = jnp.roll(v, -1), jnp.roll(v, 1)
        return v + m[1] * (up - 2 * v + down) + m[2] * (up - down) - m[3] * v, None

    return lax.scan(tick, jnp.maximum(m[0] - _GRID, 0.0), None, length=200)[0][100]


@ENGINEERING.add(jnp.array([1.0, 0.02, 0.2, 1.0]))
def american_put(m: Array) -> Array:
    """The price by a tree of 100 steps, that is exercised where it pays."""
    spot, rate, volatility, years = m
    steps = 100
    up = jnp.exp(volatility * jnp.sqrt(years / steps))
    growth = jnp.exp(rate * years / steps)
    p = (growth - 1 / up) / (up - 1 / up)
    level = np.arange(steps + 1, dtype=np.float32)

    def back(v: Array, step: Array) -> tuple[Array, None]:
        asset = spot * up ** (2 * level - step)
        kept = (p * jnp.roll(v, -1) + (1 - p) * v) / growth
        return jnp.maximum(kept, 1 - asset), None

    start = jnp.maximum(1 - spot * up ** (2 * level - steps), 0.0)
    times = jnp.arange(steps - 1, -1, -1, dtype=np.float32)
    return lax.scan(back, start, times)[0][0]


def _car(s: Array, u: Array) -> Array:
    """The rates of a car with tyre forces."""
    _, _, angle, speed, side, turning = s
    front = -jnp.arctan2(side + 1.2 * turning, speed) + u[0]
    rear = -jnp.arctan2(side - 1.4 * turning, speed)
    forces = 3.0 * jnp.sin(1.4 * jnp.arctan(6.0 * front)), 3.0 * jnp.sin(1.4 * jnp.arctan(rear))
    return jnp.stack([
        speed * jnp.cos(angle) - side * jnp.sin(angle),
        speed * jnp.sin(angle) + side * jnp.cos(angle),
        turning,
        u[1] - forces[0] * jnp.sin(u[0]) + side * turning,
        forces[0] * jnp.cos(u[0]) + forces[1] - speed * turning,
        1.2 * forces[0] * jnp.cos(u[0]) - 1.4 * forces[1],
    ])  # fmt: skip


_START = jnp.array([0.0, 0.0, 0.1, 5.0, 0.1, 0.05])


@ENGINEERING.add(0.2 * _normal(30, 2), _START)
def car_residuals(u: Array, s: Array) -> Array:
    """How far a car is from its lane after each of 30 steps, and its controls."""
    step = lambda s, u: (s + 0.05 * _car(s, u), s[jnp.array([1, 2])])  # noqa: E731
    return jnp.concatenate([lax.scan(step, s, u)[1].ravel(), 0.1 * u.ravel()])


@ENGINEERING.add(0.2 * _normal(30, 2), _START, argnums=(0, 1))
def car_end(u: Array, s: Array) -> Array:
    """Where a car is after 30 steps."""
    return lax.scan(lambda s, u: (s + 0.05 * _car(s, u), None), s, u)[0]


@ENGINEERING.add(_uniform(-0.9, 0.9, 4), _normal(2, 2, 50), _normal(2, 50))
def splines(x: Array, w: Array, b: Array) -> Array:
    """Two coupling layers of rational-quadratic splines of eight bins."""

    def spline(x: Array, raw: Array) -> Array:
        width, height = 2 * jax.nn.softmax(raw[:, :8]), 2 * jax.nn.softmax(raw[:, 8:16])
        slope = jax.nn.softplus(raw[:, 16:]) + 1e-3
        left, low = (jnp.cumsum(z, 1) - z - 1 for z in (width, height))
        place = jnp.clip(jnp.sum(x[:, None] >= left, 1) - 1, 0, 7)[:, None]
        take = lambda z, k: jnp.take_along_axis(z, k, 1)[:, 0]  # noqa: E731
        d, h, t = take(width, place), take(height, place), take(slope, place)
        after = take(slope, place + 1)
        z = (x - take(left, place)) / d
        s, mixed = h / d, z * (1 - z)
        return take(low, place) + h * (s * z**2 + t * mixed) / (s + (after + t - 2 * s) * mixed)

    for layer in range(2):
        raw = (jnp.tanh(x[:2, None] * w[layer] + b[layer]) @ np.eye(50, dtype=np.float32))[:, :25]
        x = jnp.concatenate([spline(x[2:], raw), x[:2]])
    return x


@ENGINEERING.add(0.1 * _normal(16) - 0.6, _uniform(0.1, 0.9, 3, 16), argnums=(0, 1))
def cable(v: Array, gates: Array) -> Array:
    """An implicit step of a nerve of 16 compartments, with three gates in each."""
    m, h, n = gates
    slow, fast = jax.nn.sigmoid(20 * (v + 0.5)), jax.nn.sigmoid(-20 * (v + 0.6))
    m, h, n = m + 0.5 * (slow - m), h + 0.1 * (fast - h), n + 0.1 * (slow - n)
    sodium, potassium = 12.0 * m**3 * h, 3.6 * n**4
    diagonal = 1 + 0.1 * (sodium + potassium + 0.3) + 0.4
    side = jnp.full(16, -0.2)
    right = v + 0.1 * (sodium * 0.5 - potassium * 0.77 - 0.3 * 0.54)
    solved = lax.linalg.tridiagonal_solve(
        side.at[0].set(0.0), diagonal, side.at[-1].set(0.0), right[:, None]
    )
    return jnp.concatenate([solved[:, 0], m, h, n])


@ENGINEERING.add(_uniform(0.0, 3.0, 8, 3))
def pair_forces(x: Array) -> Array:
    """Forces between eight particles that are near one another."""
    d = x[:, None] - x[None]
    s = jnp.sum(d * d, -1)
    near = (s < 4.0) & ~np.eye(8, dtype=bool)
    r = jnp.sqrt(jnp.where(near, s, 1.0))
    return jnp.sum(jnp.where(near[..., None], d * ((1 - r / 2) ** 2 / r)[..., None], 0.0), 1)


@ENGINEERING.add(_normal(4, 3, 3), _normal(4, 3, 3), argnums=(0, 1))
def staple(real: Array, imaginary: Array) -> tuple[Array, Array]:
    """The product of four links of a lattice, made of real and imaginary parts."""
    a, b, c, d = real + 1j * imaginary
    product = a @ b @ c.conj().T @ d.conj().T
    return product.real, product.imag


@ENGINEERING.add(jnp.array([8.0, 1.2, 0.3, 0.1, -0.1, 0.02]))
def geodesic(s: Array) -> Array:
    """The path of light after ten steps around a mass."""

    def slope(s: Array) -> Array:
        r, t, _, p, q, w = s
        f = 1 - 1 / r
        return jnp.stack([
            p, q, w,
            -0.5 * f / r**2 + 0.5 * p**2 / (r**2 * f) + r * f * (q**2 + (jnp.sin(t) * w) ** 2),
            -2 * p * q / r + jnp.sin(t) * jnp.cos(t) * w**2,
            -2 * p * w / r - 2 * q * w * jnp.cos(t) / jnp.sin(t),
        ])  # fmt: skip

    for _ in range(10):
        s = runge_kutta(slope, s, 0.1)
    return s


@ENGINEERING.add(_uniform(0.5, 1.5, 50))
def joined(x: Array) -> Array:
    """What 148 formulas of neighbours give, joined from single numbers."""
    found = [x[k : k + 1] * x[k + 1 : k + 2] for k in range(49)]
    found += [jnp.sin(x[k : k + 1]) + x[k + 1 : k + 2] for k in range(49)]
    found += [x[k : k + 1] / x[49 - k : 50 - k] for k in range(50)]
    return jnp.concatenate(found)


F = {name: case[1:] for name, case in ENGINEERING.items()}
"""For ``benchmark.py realistic --file scripts/benchmarks/functions/engineering.py``."""
