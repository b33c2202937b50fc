"""Functions of one point that are loops, whose Jacobians are compared as kernels."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from scripts.benchmarks.functions.case import Cases, Draws, runge_kutta
from scripts.benchmarks.functions.case import cart_pole as rates

LOOPS = Cases()
_normal = Draws(43, 1.0).normal


@LOOPS.add(jnp.array([1.0, 0.8]), jnp.array([1.1, 0.4, 0.1, 0.4]), argnums=(0, 1))
def rk4_scan(state: Array, parameters: Array) -> Array:
    """Predators and prey after 200 steps of Runge and Kutta's, by start and parameters."""
    a, b, c, d = parameters

    def slope(y: Array) -> Array:
        return jnp.stack([y[0] * (a - b * y[1]), y[1] * (c * y[0] - d)])

    return lax.scan(lambda y, _: (runge_kutta(slope, y, 0.05), None), state, None, length=200)[0]


@LOOPS.add(_normal(12), jnp.array([1.0, 0.8, 0.5]), argnums=(0, 1))
def three_bodies(state: Array, masses: Array) -> Array:
    """Places and velocities of three bodies in a plane after 100 steps, by start and masses."""

    def pulls(places: Array) -> Array:
        apart = places[None] - places[:, None]
        square = jnp.sum(apart**2, -1) + 0.01
        return jnp.sum((masses / (square * jnp.sqrt(square)))[..., None] * apart, 1)

    def step(c: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        places, speeds = c
        speeds = speeds + 0.005 * pulls(places)
        places = places + 0.01 * speeds
        return (places, speeds + 0.005 * pulls(places)), None

    start = state[:6].reshape(3, 2), state[6:].reshape(3, 2)
    places, speeds = lax.scan(step, start, None, length=100)[0]
    return jnp.concatenate([places.ravel(), speeds.ravel()])


@LOOPS.add(_normal(8), jnp.float32(8.0), argnums=(0, 1))
def lorenz_96(state: Array, force: Array) -> Array:
    """Lorenz's model of eight sites after 50 steps, by start and force."""

    def slope(y: Array) -> Array:
        return (jnp.roll(y, -1) - jnp.roll(y, 2)) * jnp.roll(y, 1) - y + force

    return lax.fori_loop(0, 50, lambda _, y: runge_kutta(slope, y, 0.02), state)


@LOOPS.add(_normal(60), jnp.array([0.0, 0.1, 0.2, 0.0]), argnums=(0, 1))
def cart_pole(controls: Array, start: Array) -> Array:
    """The last state and the effort of a cart with a pole, by 60 controls and the start."""

    def step(c: tuple[Array, Array], push: Array) -> tuple[tuple[Array, Array], None]:
        state, effort = c
        return (state + 0.02 * rates(state, push), effort + push**2), None

    state, effort = lax.scan(step, (start, jnp.zeros_like(start[0])), controls)[0]
    return jnp.append(state, effort)


@LOOPS.add(0.1 * _normal(6), _normal(100, 3), _normal(100, 3))
def inertial(bias: Array, rates: Array, forces: Array) -> Array:
    """Direction, velocity and place after 100 readings of an inertial sensor, by its biases."""

    def step(c: tuple[Array, Array, Array], read: tuple[Array, Array]) -> tuple[Any, None]:
        (w, x, y, z), velocity, place = c
        p, q, r = 0.005 * (read[0] - bias[:3])
        turned = jnp.stack([w - x * p - y * q - z * r, x + w * p + y * r - z * q,
                            y + w * q + z * p - x * r, z + w * r + x * q - y * p])  # fmt: skip
        turned = turned / jnp.sqrt(turned @ turned)
        axis, force = turned[1:], read[1] - bias[3:]
        across = jnp.cross(axis, force)
        pushed = force + 2 * (turned[0] * across + jnp.cross(axis, across))
        velocity = velocity + 0.01 * pushed
        return (turned, velocity, place + 0.01 * velocity), None

    zero = jnp.zeros_like(bias[:3])
    start = jnp.append(jnp.ones_like(bias[:1]), zero), zero, zero
    return jnp.concatenate(lax.scan(step, start, (rates, forces))[0])


@LOOPS.add(_normal(9), _normal(3), _normal(100), argnums=(0, 1))
def hidden_markov(moves: Array, means: Array, seen: Array) -> Array:
    """The log-likelihood, but for a constant, of 100 readings under a Markov model."""
    move = jax.nn.softmax(moves.reshape(3, 3))

    def step(c: tuple[Array, Array], y: Array) -> tuple[tuple[Array, Array], None]:
        belief, total = c
        belief = (belief @ move) * jnp.exp(-0.5 * (y - means) ** 2)
        scale = jnp.sum(belief)
        return (belief / scale, total + jnp.log(scale)), None

    start = jnp.full(3, 1 / 3, moves.dtype), jnp.zeros_like(seen[0])
    return lax.scan(step, start, seen)[0][1]


@LOOPS.add(jnp.array([0.7, 0.8, 0.08, -1.0]), jnp.abs(_normal(150)))
def neuron(parameters: Array, current: Array) -> Array:
    """Voltages of FitzHugh's and Nagumo's neuron at 150 steps, by its four parameters."""
    a, b, rate, start = parameters

    def step(c: tuple[Array, Array], drive: Array) -> tuple[tuple[Array, Array], Array]:
        v, w = c
        v = v + 0.1 * (v - v**3 / 3 - w + drive)
        w = w + 0.1 * rate * (v + a - b * w)
        return (v, w), v

    return lax.scan(step, (start, 0 * start), current)[1]


@LOOPS.add(jnp.array([1.0, 0.4, 1.5]))
def kepler(elements: Array) -> Array:
    """The place in an orbit by its semi-major axis, eccentricity and mean anomaly."""
    size, e, mean = elements[0], 0.9 * jnp.tanh(jnp.abs(elements[1])), elements[2]

    def goes_on(c: tuple[Array, Array, Array]) -> Array:
        return (jnp.abs(c[1]) > 1e-5) & (c[2] < 50)

    def step(c: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, k = c
        change = (x - e * jnp.sin(x) - mean) / (1 - e * jnp.cos(x))
        return x - change, change, k + 1

    start = mean + e * jnp.sin(mean), jnp.ones_like(mean), jnp.int32(0)
    x = lax.while_loop(goes_on, step, start)[0]
    return size * jnp.stack([jnp.cos(x) - e, jnp.sqrt(1 - e * e) * jnp.sin(x)])


@LOOPS.add(_normal(2), jnp.array([1.0, 1.5]), argnums=(0, 1))
def damped_newton(target: Array, stiffness: Array) -> Array:
    """The rest of two coupled springs by load and stiffness, by damped steps of Newton's."""

    def residual(x: Array) -> Array:
        coupling = jnp.stack([jnp.sin(x[1]), x[0] * x[1]])
        return stiffness * x + x**3 + 0.3 * coupling - target

    def step(c: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, r, k = c
        (p, q), (s, t) = jax.jacfwd(residual)(x)
        change = jnp.stack([t * r[0] - q * r[1], p * r[1] - s * r[0]]) / (p * t - q * s)
        full, half = x - change, x - 0.5 * change
        new, damped = residual(full), residual(half)
        better = new @ new < damped @ damped
        return jnp.where(better, full, half), jnp.where(better, new, damped), k + 1

    def goes_on(c: tuple[Array, Array, Array]) -> Array:
        return (c[1] @ c[1] > 1e-9) & (c[2] < 30)

    start = jnp.zeros_like(target)
    return lax.while_loop(goes_on, step, (start, residual(start), jnp.int32(0)))[0]


@LOOPS.add(jnp.array([0.3, 0.2, 0.5, 0.4, 0.2, 0.1, 0.2]))
def epidemic(rates: Array) -> Array:
    """Healthy, exposed, ill and recovered of two groups after 150 days, by seven rates."""
    spread, mixing, onset, recovery = rates[:2], rates[2:4], rates[4], rates[5]

    def step(c: tuple[Array, ...], day: Array) -> tuple[tuple[Array, ...], None]:
        healthy, exposed, ill, well = c
        season = 1 + rates[6] * jnp.cos(2 * math.pi / 50 * day)
        caught = season * healthy * spread * (ill + mixing * ill[::-1])
        fallen, cured = onset * exposed, recovery * ill
        return (healthy - caught, exposed + caught - fallen, ill + fallen - cured,
                well + cured), None  # fmt: skip

    full = jnp.ones_like(spread)
    start = 0.98 * full, 0.01 * full, 0.01 * full, 0 * full
    return jnp.concatenate(lax.scan(step, start, jnp.arange(150.0, dtype=rates.dtype))[0])
