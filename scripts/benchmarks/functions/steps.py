"""Steps that hold a Jacobian, of one point: what `veenv.fuse` is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from scripts.benchmarks.functions.case import runge_kutta

Jacobian = Callable[..., Callable[..., tuple[Any, Any]]]
"""From a function (and argnums) to one that returns its value and its Jacobian."""
Step = Callable[..., Any]


def valued(jacobian: Callable[..., Any]) -> Jacobian:
    """`jax.jacfwd` or `jax.jacrev`, with the value before the Jacobian."""

    def both(fun: Callable[..., Any], argnums: Any = 0) -> Callable[..., tuple[Any, Any]]:
        return lambda *args: (fun(*args), jacobian(fun, argnums)(*args))

    return both


def kinetics(jacobian: Jacobian) -> Step:
    """A step of the implicit Euler method on Robertson's kinetics, by four steps of Newton's."""

    def rates(y: jax.Array) -> jax.Array:
        slow, fast, back = 0.04 * y[0], 3e7 * y[1] ** 2, 1e4 * y[1] * y[2]
        return jnp.stack([back - slow, slow - fast - back, fast])

    def step(y: jax.Array, h: jax.Array) -> jax.Array:
        z = y
        for _ in range(4):
            r, slope = jacobian(lambda z: z - y - h * rates(z))(z)
            z = z - jnp.linalg.solve(slope, r)
        return z

    return step


def tracking(jacobian: Jacobian) -> Step:
    """A step of an extended Kalman filter: a vehicle that turns, seen by range and bearing."""

    def move(s: jax.Array) -> jax.Array:
        x, y, speed, heading, turn = s
        return jnp.stack([x + 0.1 * speed * jnp.cos(heading), y + 0.1 * speed * jnp.sin(heading),
                          speed, heading + 0.1 * turn, turn])  # fmt: skip

    def look(s: jax.Array) -> jax.Array:
        return jnp.stack([jnp.hypot(s[0], s[1]), jnp.arctan2(s[1], s[0])])

    def step(s: jax.Array, p: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
        s, f = jacobian(move)(s)
        p = f @ p @ f.T + 0.01 * jnp.eye(5)
        expected, h = jacobian(look)(s)
        gain = jnp.linalg.solve(h @ p @ h.T + 0.1 * jnp.eye(2), h @ p).T
        return s + gain @ (seen - expected), p - gain @ h @ p

    return step


def reaching(jacobian: Jacobian) -> Step:
    """Ten damped steps of inverse kinematics: an arm of six joints reaches for a place."""

    def hand(q: jax.Array) -> jax.Array:
        x, y, z = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
        for joint in reversed(range(6)):
            z, c, s = z + 0.3, jnp.cos(q[joint]), jnp.sin(q[joint])
            x, y, z = (c * x - s * y, s * x + c * y, z) if joint % 2 else (
                c * x + s * z, y, c * z - s * x
            )  # fmt: skip
        return jnp.stack([x, y, z])

    def step(q: jax.Array, goal: jax.Array) -> jax.Array:
        for _ in range(10):
            place, slope = jacobian(hand)(q)
            force = jnp.linalg.solve(slope @ slope.T + 0.01 * jnp.eye(3), goal - place)
            q = q + slope.T @ force
        return q

    return step


def fitting(jacobian: Jacobian) -> Step:
    """Five steps of Levenberg and Marquardt: a decay with a background, of twenty samples."""
    times = jnp.linspace(0.0, 4.0, 20, dtype=jnp.float32)

    def step(p: jax.Array, samples: jax.Array) -> jax.Array:
        def residual(p: jax.Array) -> jax.Array:
            return p[0] * jnp.exp(-p[1] * times) + p[2] - samples

        damping = jnp.float32(0.01)
        for _ in range(5):
            r, slope = jacobian(residual)(p)
            change = jnp.linalg.solve(slope.T @ slope + damping * jnp.eye(3), slope.T @ r)
            better = jnp.sum(residual(p - change) ** 2) < jnp.sum(r**2)
            p = jnp.where(better, p - change, p)
            damping = jnp.where(better, damping / 3, damping * 4)
        return p

    return step


def pricing(jacobian: Jacobian) -> Step:
    """An option on the mean of sixteen prices: its value on one path and its Greeks."""

    def payoff(market: jax.Array, key: jax.Array) -> jax.Array:
        spot, volatility, rate = market
        noise = jax.random.normal(key, (16,))
        steps = (rate - volatility**2 / 2.0) / 16.0 + volatility / 4.0 * noise
        mean = jnp.mean(spot * jnp.exp(jnp.cumsum(steps)))
        return jnp.exp(-rate) * jnp.maximum(mean - 100.0, 0.0)

    return lambda market, key: jacobian(lambda m: payoff(m, key))(market)


def integration(jacobian: Jacobian) -> Step:
    """The Jacobian of forty Runge-Kutta steps of a cart with a pole by where they begin."""

    def rates(s: jax.Array) -> jax.Array:
        _, angle, speed, turning = s
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = sine * (0.5 * turning**2 - 9.81 * cosine) / (1.0 + sine**2)
        return jnp.stack([speed, turning, push, 2.0 * (9.81 * sine - push * cosine)])

    def one(s: jax.Array, _: None) -> tuple[jax.Array, None]:
        return runge_kutta(rates, s, 0.01), None

    return lambda s: jacobian(lambda s: jax.lax.scan(one, s, None, length=40)[0])(s)


def _array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


STEPS: Mapping[str, tuple[Callable[[Jacobian], Step], tuple[Any, ...]]] = {
    "implicit Euler, kinetics": (kinetics, (_array(0.98, 3.4e-5, 0.02), np.float32(0.1))),
    "extended Kalman filter": (
        tracking, (_array(3, 4, 1, 0.5, 0.1), np.eye(5, dtype=np.float32), _array(5, 0.9)),
    ),
    "inverse kinematics": (
        reaching, (_array(0.1, 0.4, -0.2, 0.5, 0.3, 0.2), _array(0.6, 0.5, 0.9)),
    ),
    "Levenberg-Marquardt": (
        fitting,
        (_array(2, 1, 0.5), (2.5 * np.exp(-1.3 * np.linspace(0, 4, 20)) + 0.3).astype(np.float32)),
    ),
    "Monte Carlo price": (pricing, (_array(100, 0.2, 0.05), np.array([3, 5], np.uint32))),
    "forty Runge-Kutta steps": (integration, (_array(0.1, 0.3, 0.2, -0.1),)),
}  # fmt: skip
"""By name: a step of a way to Jacobians, and a point; its unsigned numbers are a key."""
