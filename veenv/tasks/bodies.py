"""Bodies in motion, coordinate by coordinate: robots, cars, planets, black holes, atoms and chains.

Sources: R. Mahony, V. Kumar, P. Corke, "Multirotor aerial vehicles", IEEE Robot. Autom. Mag. 19
(2012) 20; J. Luh, M. Walker, R. Paul, "On-line computational scheme for mechanical manipulators",
J. Dyn. Sys. Meas. Control 102 (1980) 69; A. Chenciner, R. Montgomery, Ann. Math. 152 (2000) 881;
D. Vallado, *Fundamentals of Astrodynamics and Applications*, ch. 9; L. Verlet, Phys. Rev. 159
(1967) 98; E. Fermi, J. Pasta, S. Ulam, Los Alamos report LA-1940 (1955); R. Rajamani, *Vehicle
Dynamics and Control*, ch. 2, with the tyres of H. Pacejka, *Tire and Vehicle Dynamics*, ch. 4; C.
Misner, K. Thorne, J. Wheeler, *Gravitation*, ch. 25.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from veenv.tasks.dynamics import GRAVITY, rk4
from veenv.tasks.task import Scalar

Number = Any
"""A scalar; a float where it is known to be 0."""
Vector = tuple[Any, ...]


ORIGIN = (0.0, 0.0, 0.0)


def _sum(*terms: Number) -> Number:
    """Adds terms; those that are known to be 0 leave no trace in the program."""
    first, *rest = [x for x in terms if not _is_zero(x)] or [0.0]
    return sum(rest, first)


def _minus(a: Number, b: Number) -> Number:
    return a if _is_zero(b) else -b if _is_zero(a) else a - b


def _times(a: Number, b: Number) -> Number:
    return 0.0 if _is_zero(a) or _is_zero(b) else a * b


def _is_zero(x: Number) -> bool:
    return isinstance(x, float) and x == 0.0


def _add(*vectors: Vector) -> Vector:
    return tuple(_sum(*terms) for terms in zip(*vectors, strict=True))


def _scale(factor: Number, vector: Sequence[Number]) -> Vector:
    return tuple(_times(factor, x) for x in vector)


def _cross(a: Sequence[Number], b: Sequence[Number]) -> Vector:
    pairs = ((1, 2), (2, 0), (0, 1))
    return tuple(_minus(_times(a[i], b[j]), _times(a[j], b[i])) for i, j in pairs)


MASS, ARM, LIFT, DRAG = 0.8, 0.17, 1.2e-5, 2.1e-7
INERTIA = (5.0e-3, 5.5e-3, 9.1e-3)


def quadrotor_step(*x: Scalar) -> Vector:
    """One step of a quadrotor: position, velocity, quaternion, body rates; then rotor speeds."""
    state, rotors = x[:13], x[13:]
    lift = [LIFT * w * w for w in rotors]
    thrust = (lift[0] + lift[1] + lift[2] + lift[3]) / MASS
    yaw = DRAG / LIFT * (lift[0] - lift[1] + lift[2] - lift[3])
    torque = ARM * (lift[1] - lift[3]), ARM * (lift[2] - lift[0]), yaw

    def derivative(y: Vector) -> Vector:
        velocity, (a, b, c, d), rates = y[3:6], y[6:10], y[10:13]
        p, q, r = rates
        up = 2.0 * (b * d + a * c), 2.0 * (c * d - a * b), a * a - b * b - c * c + d * d
        acceleration = thrust * up[0], thrust * up[1], thrust * up[2] - GRAVITY
        turn = (
            -0.5 * (b * p + c * q + d * r),
            0.5 * (a * p + c * r - d * q),
            0.5 * (a * q - b * r + d * p),
            0.5 * (a * r + b * q - c * p),
        )
        spin = _cross(rates, [i * w for i, w in zip(INERTIA, rates, strict=True)])
        change = [(t - s) / i for t, s, i in zip(torque, spin, INERTIA, strict=True)]
        return (*velocity, *acceleration, *turn, *change)

    return rk4(derivative, state, 0.02)


# Of a light arm with seven joints, on a base tilted by 30 degrees: twists (quarter turns), offsets
# of the links, masses, moments of inertia, and how far along its axis each mass is.
TWISTS = (1, -1, -1, 1, 1, -1, 0)
OFFSETS = (0.34, 0.0, 0.4, 0.0, 0.4, 0.0, 0.126)
MASSES = (4.0, 4.0, 3.0, 2.7, 1.7, 1.8, 0.3)
RODS = tuple((0.1 * m, 0.09 * m, 0.02 * m) for m in MASSES)
CENTRES = (0.08, 0.06, 0.07, 0.06, 0.07, 0.04, 0.02)


def inverse_dynamics(*x: Scalar) -> Vector:
    """Torques of a seven-joint arm (angles, rates, accelerations), by Newton's and Euler's laws."""
    angles, rates, accelerations = x[:7], x[7:14], x[14:]
    rate = change = ORIGIN
    linear = (0.0, 0.5 * GRAVITY, float(np.sqrt(0.75)) * GRAVITY)
    links = []

    def into(k: int, v: Vector) -> Vector:
        """Rotates a vector from the frame before a link to the link's frame."""
        u = _sum(_times(cos[k], v[0]), _times(sin[k], v[1]))
        w = _minus(_times(cos[k], v[1]), _times(sin[k], v[0]))
        return {0: (u, w, v[2]), 1: (u, v[2], _minus(0.0, w)), -1: (u, _minus(0.0, v[2]), w)}[
            TWISTS[k]
        ]

    def out_of(k: int, v: Vector) -> Vector:
        """Rotates a vector back: the inverse of `into`."""
        w, z = {0: (v[1], v[2]), 1: (-v[2], v[1]), -1: (v[2], -v[1])}[TWISTS[k]]
        return (cos[k] * v[0] - sin[k] * w, sin[k] * v[0] + cos[k] * w, z)

    cos, sin = [jnp.cos(q) for q in angles], [jnp.sin(q) for q in angles]
    for k in range(7):
        turning = _cross(rate, (0.0, 0.0, rates[k]))
        change = into(k, _add(change, turning, (0.0, 0.0, accelerations[k])))
        rate = into(k, _add(rate, (0.0, 0.0, rates[k])))
        arm = (0.0, OFFSETS[k] * TWISTS[k], 0.0) if TWISTS[k] else (0.0, 0.0, OFFSETS[k])
        linear = _add(into(k, linear), _cross(change, arm), _cross(rate, _cross(rate, arm)))
        centre = 0.0, 0.0, CENTRES[k]
        centred = _add(linear, _cross(change, centre), _cross(rate, _cross(rate, centre)))
        momentum = tuple(i * w for i, w in zip(RODS[k], rate, strict=True))
        spun = tuple(i * w for i, w in zip(RODS[k], change, strict=True))
        links.append((_scale(MASSES[k], centred), _add(spun, _cross(rate, momentum)), arm, centre))
    force = moment = ORIGIN
    torques: list[Scalar] = []
    for k in reversed(range(7)):
        inertial, spin, arm, centre = links[k]
        moment = _add(moment, spin, _cross(_add(arm, centre), inertial), _cross(arm, force))
        force = _add(force, inertial)
        force, moment = out_of(k, force), out_of(k, moment)
        torques.insert(0, moment[2])
    return tuple(torques)


def _attracted(points: list[Vector], masses: Sequence[Number]) -> list[Vector]:
    """Returns accelerations under Newton's law of gravitation, with a constant of one."""
    accelerations = [list(ORIGIN[: len(point)]) for point in points]
    for i, j in combinations(range(len(points)), 2):
        apart = [b - a for a, b in zip(points[i], points[j], strict=True)]
        square = _sum(*(c * c for c in apart))
        cube = 1.0 / (square * jnp.sqrt(square))
        for k, c in enumerate(apart):
            accelerations[i][k] = _sum(accelerations[i][k], masses[j] * cube * c)
            accelerations[j][k] = _minus(accelerations[j][k], masses[i] * cube * c)
    return [tuple(f) for f in accelerations]


def three_bodies_step(*x: Scalar) -> Vector:
    """One step of three bodies in a plane: positions, velocities, masses."""
    masses = x[12:]

    def derivative(y: Vector) -> Vector:
        pulled = _attracted([y[0:2], y[2:4], y[4:6]], masses)
        return (*y[6:], *(c for a in pulled for c in a))

    return rk4(derivative, x[:12], 0.05)


def satellite_step(*x: Scalar) -> Vector:
    """One step of a satellite of an oblate planet: position, velocity; µ, J2 and radius."""
    mu, oblate, radius = x[6:]

    def derivative(y: Vector) -> Vector:
        px, py, pz = y[:3]
        square = px * px + py * py + pz * pz
        pull = mu / (square * jnp.sqrt(square))
        bulge = 1.5 * oblate * radius * radius / square
        height = 5.0 * pz * pz / square
        plane = -pull * (1.0 + bulge * (1.0 - height))
        return (*y[3:], plane * px, plane * py, -pull * (1.0 + bulge * (3.0 - height)) * pz)

    return rk4(derivative, x[:6], 0.1)


def _repelled(y: Sequence[Number]) -> Vector:
    """Returns forces between atoms in a plane by the potential of Lennard-Jones."""
    forces: list[Number] = [0.0] * len(y)
    for i, j in combinations(range(len(y) // 2), 2):
        dx, dy = y[2 * i] - y[2 * j], y[2 * i + 1] - y[2 * j + 1]
        inverse = 1.0 / (dx * dx + dy * dy)
        sixth = inverse * inverse * inverse
        push = 24.0 * sixth * (2.0 * sixth - 1.0) * inverse
        for k, d in ((0, dx), (1, dy)):
            along = push * d
            forces[2 * i + k] = _sum(forces[2 * i + k], along)
            forces[2 * j + k] = _minus(forces[2 * j + k], along)
    return tuple(forces)


def atoms_step(*x: Scalar) -> Vector:
    """One velocity-Verlet step of six atoms: positions, velocities."""
    half = len(x) // 2
    h, position, velocity = 0.01, x[:half], x[half:]
    velocity = _add(velocity, _scale(0.5 * h, _repelled(position)))
    position = _add(position, _scale(h, velocity))
    return (*position, *_add(velocity, _scale(0.5 * h, _repelled(position))))


def chain_steps(*x: Scalar) -> Vector:
    """Four leapfrog steps of masses on springs: displacements, velocities; α and β."""
    masses = len(x) // 2 - 1
    place, speed, (alpha, beta) = list(x[:masses]), list(x[masses:-2]), x[-2:]
    h = 0.1
    for _ in range(4):
        ends = [0.0, *place, 0.0]
        stretch = [_minus(b, a) for a, b in pairwise(ends)]
        pull = [s + alpha * s * s + beta * s * s * s for s in stretch]
        speed = [v + h * (b - a) for v, (a, b) in zip(speed, pairwise(pull), strict=True)]
        place = [q + h * v for q, v in zip(place, speed, strict=True)]
    return (*place, *speed)


# Of a car: mass, moment of inertia, and how far its axles are from its centre.
CAR, SPIN, FRONT, REAR = 1500.0, 2600.0, 1.2, 1.5


def car_step(*x: Scalar) -> Vector:
    """One step of a car with an axle as one wheel: place, heading, velocity, turn; push; tyres."""
    steer, push, stiff, shape, peak = x[6:]
    cos_steer, sin_steer = jnp.cos(steer), jnp.sin(steer)

    def tyre(slip: Scalar) -> Scalar:
        return peak * jnp.sin(shape * jnp.arctan(stiff * slip))

    def derivative(y: Vector) -> Vector:
        heading, ahead, aside, turn = y[2:]
        cos, sin = jnp.cos(heading), jnp.sin(heading)
        front = tyre(steer - jnp.arctan((aside + FRONT * turn) / ahead))
        rear = tyre(jnp.arctan((REAR * turn - aside) / ahead))
        across = front * cos_steer
        return (
            ahead * cos - aside * sin,
            ahead * sin + aside * cos,
            turn,
            push - front * sin_steer / CAR + aside * turn,
            (across + rear) / CAR - ahead * turn,
            (FRONT * across - REAR * rear) / SPIN,
        )

    return rk4(derivative, x[:6], 0.05)


def geodesic_step(*x: Scalar) -> Vector:
    """One step around a black hole: r, θ, φ, t, momenta of r and θ; energy, turn and mass."""
    energy, turn, mass = x[6:]

    def derivative(y: Vector) -> Vector:
        r, theta, _, _, along, over = y
        sin, cos = jnp.sin(theta), jnp.cos(theta)
        inverse = 1.0 / r
        square = inverse * inverse
        bend = 2.0 * mass * inverse
        lapse = 1.0 - bend
        around = turn / (sin * sin)
        delay = energy / lapse
        fall = 0.5 * bend * inverse * (delay * delay + along * along)
        return (
            lapse * along,
            over * square,
            around * square,
            delay,
            (over * over + turn * around) * square * inverse - fall,
            around * around * cos * sin * square,
        )

    return rk4(derivative, x[:6], 0.5)


_RNG = np.random.default_rng(11)
_FLYING = (0.1, -0.2, 1.0, 0.4, 0.3, -0.1, 0.92, 0.2, -0.3, 0.15, 0.5, -0.4, 0.2)
_HEX = [c for k in range(6) for c in (1.2 * np.cos(np.pi * k / 3), 1.25 * np.sin(np.pi * k / 3))]

ENTRIES = (
    (
        "Quadrotor_RK4",
        quadrotor_step,
        (*_FLYING, 410.0, 395.0, 405.0, 420.0),
        "One Runge-Kutta step of a quadrotor, 17 to 13 scalars.",
        "Mahony, Kumar, Corke, IEEE Robot. Autom. Mag. 19 (2012) 20",
    ),
    (
        "InverseDynamics_7DOF",
        inverse_dynamics,
        _RNG.uniform(-1.2, 1.2, 21),
        "Torques of an arm with seven joints, 21 to 7 scalars.",
        "Luh, Walker, Paul, J. Dyn. Sys. Meas. Control 102 (1980) 69",
    ),
    (
        "ThreeBodies_RK4",
        three_bodies_step,
        # The figure of eight, and masses near one.
        (0.97, -0.243, -0.97, 0.243, 0.01, 0.02, 0.466, 0.432, 0.466, 0.432, -0.93, -0.865)
        + (1.0, 1.1, 0.9),
        "One Runge-Kutta step of three bodies in a plane, 15 to 12 scalars.",
        "Chenciner, Montgomery, Ann. Math. 152 (2000) 881",
    ),
    (
        "Satellite_RK4",
        satellite_step,
        (1.1, 0.2, 0.3, -0.2, 0.8, 0.5, 1.0, 1.08e-3, 1.0),
        "One Runge-Kutta step of a satellite of an oblate planet, 9 to 6 scalars.",
        "Vallado, Fundamentals of Astrodynamics and Applications, ch. 9",
    ),
    (
        "LennardJones_Verlet",
        atoms_step,
        (*_HEX, *_RNG.normal(0.0, 0.3, 12)),
        "One velocity-Verlet step of six atoms in a plane, 24 to 24 scalars.",
        "Verlet, Phys. Rev. 159 (1967) 98",
    ),
    (
        "FermiPastaUlam",
        chain_steps,
        (*_RNG.normal(0.0, 0.5, 24), 0.25, 0.7),
        "Four leapfrog steps of a chain of twelve nonlinear springs, 26 to 24 scalars.",
        "Fermi, Pasta, Ulam, Los Alamos report LA-1940 (1955)",
    ),
    (
        "Car_RK4",
        car_step,
        (3.0, -2.0, 0.3, 17.0, 0.4, 0.15, 0.06, 0.8, 9.0, 1.4, 6500.0),
        "One Runge-Kutta step of a car with slipping tyres, 11 to 6 scalars.",
        "Rajamani, Vehicle Dynamics and Control, ch. 2; Pacejka, Tire and Vehicle Dynamics, ch. 4",
    ),
    (
        "Schwarzschild_RK4",
        geodesic_step,
        (8.0, 1.3, 0.4, 0.1, -0.1, 0.6, 0.95, 3.9, 1.0),
        "One Runge-Kutta step of an orbit around a black hole, 9 to 6 scalars.",
        "Misner, Thorne, Wheeler, Gravitation, ch. 25",
    ),
)
