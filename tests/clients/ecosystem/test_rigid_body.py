"""Steps of rigid-body simulators, written out: a linkage, a tumbling body, a contact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.ecosystem.check import check, parameters
from tests.engine.corpus.case import case, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
LENGTHS, MASSES, DT = np.array([0.5, 0.4, 0.3]), np.array([1.0, 0.7, 0.5]), 0.01


def _hands(q):
    """Where the ends of a planar linkage are: a tree's forward kinematics as a scan."""
    angles = jnp.cumsum(q)
    ends = LENGTHS[:, None] * jnp.stack([jnp.sin(angles), -jnp.cos(angles)], axis=1)
    return jnp.cumsum(ends, axis=0)


def _inertia(q):
    """The mass matrix, by the Jacobian of the kinematics."""
    slopes = jax.jacfwd(_hands)(q)
    return jnp.einsum("bxi,b,bxj->ij", slopes, MASSES, slopes) + 0.01 * jnp.eye(3)


def _lagrangian(q, v):
    return 0.5 * v @ _inertia(q) @ v - 9.81 * jnp.sum(MASSES * _hands(q)[:, 1])


def _acceleration(q, v, u):
    """Lagrange's equations: forces and what the velocities do, divided by the inertia."""
    bias = jax.jvp(lambda q: jax.grad(_lagrangian, 1)(q, v), (q,), (v,))[1]
    force = jax.grad(_lagrangian)(q, v) - bias + u - 0.1 * v
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(_inertia(q)), force)


def _linkage(q, v, u):
    """Two semi-implicit Euler steps."""
    for _ in range(2):
        v = v + DT * _acceleration(q, v, u)
        q = q + DT * v
    return q, v


def _linkage_rk4(q, v, u):
    def slope(state):
        return state[1], _acceleration(*state, u)

    def moved(state, by, dt):
        return jax.tree.map(lambda s, d: s + dt * d, state, by)

    start = (q, v)
    a = slope(start)
    b = slope(moved(start, a, DT / 2))
    c = slope(moved(start, b, DT / 2))
    d = slope(moved(start, c, DT))
    return jax.tree.map(
        lambda s, *k: s + DT / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3]), start, a, b, c, d
    )


def _times(p, q):
    """The product of quaternions."""
    scalar = p[0] * q[0] - p[1:] @ q[1:]
    return jnp.append(scalar, p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:]))


def _rotated(q, x):
    return x + 2 * jnp.cross(q[1:], jnp.cross(q[1:], x) + q[0] * x)


def _tumble(q, spin, inertia):
    """A free body: Euler's equations and a normalised quaternion, three steps of a scan."""

    def step(state, _):
        q, w = state
        w = w + DT * jnp.cross(inertia * w, w) / inertia
        q = q + 0.5 * DT * _times(q, jnp.append(0.0, w))
        return (q / jnp.linalg.norm(q), w), _rotated(q, w)

    return jax.lax.scan(step, (q / jnp.linalg.norm(q), spin), None, length=3)[1]


def _bounce(height, speed, stiffness):
    """Particles over a floor that pushes and rubs only where they touch it."""

    def step(state, _):
        x, v = state
        depth = jnp.maximum(-x[:, 1], 0.0)
        push = jnp.where(depth > 0, stiffness * depth**1.5 * (1.0 - 0.3 * v[:, 1]), 0.0)
        rub = -jnp.tanh(v[:, 0] / 0.1) * jnp.minimum(0.5 * push, 0.8)
        v = v + DT * jnp.stack([rub, push - 9.81], axis=1)
        return (x + DT * v, v), None

    start = jnp.stack([jnp.zeros(4), height], axis=1)
    return jax.lax.scan(step, (start, speed), None, length=4)[0]


def _constrained(x, v):
    """A step onto a distance constraint, its multiplier by two steps of Newton."""
    free = x + DT * v

    def gap(p):
        return jnp.array([p[0] @ p[0] - 1.0, (p[1] - p[0]) @ (p[1] - p[0]) - 1.0])

    for _ in range(2):
        slopes = jax.jacrev(gap)(free).reshape(2, -1)
        multipliers = jnp.linalg.solve(slopes @ slopes.T, gap(free))
        free = free - (slopes.T @ multipliers).reshape(2, 2)
    return free, (free - x) / DT


Q, V, U = uniform(3), normal(3), uniform(3, seed=2)
HEIGHTS = np.array([0.3, -0.01, -0.02, 0.002])
CASES = [
    case("kinematics", _hands, Q), case("inertia", _inertia, Q),
    case("linkage_step", _linkage, Q, V, U, argnums=(0, 1, 2)),
    case("linkage_runge_kutta", _linkage_rk4, Q, V, U, argnums=(0, 1, 2)),
    case("tumbling_body", _tumble, uniform(4), normal(3), 1 + uniform(3), argnums=(0, 1, 2)),
    case("contact", _bounce, HEIGHTS, normal(4, 2), np.asarray(900.0), argnums=(0, 1, 2)),
    case("constraint", _constrained, np.array([[0.6, 0.8], [1.5, 1.2]]), normal(2, 2),
        argnums=(0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("case", parameters(CASES))
def test_jacobian(case):
    check(case)
