"""Estimates from measurements and prices: filters, cameras, lenses, power grids, swaps, options.

Sources: H. Rauch, F. Tung, C. Striebel, AIAA J. 3 (1965) 1445; the camera of S. Agarwal et al.,
"Bundle adjustment in the large", ECCV (2010); W. Welford, *Aberrations of Optical Systems*, ch. 4,
on a triplet as that of H. D. Taylor, US patent 568,052; P. Anderson, A. Fouad, *Power System
Control and Stability*, ch. 2 (nine buses); J. Hull, *Options, Futures, and Other Derivatives*; C.
Forster, L. Carlone, F. Dellaert, D. Scaramuzza, IEEE Trans. Robotics 33 (2017) 1; S. Thrun, W.
Burgard, D. Fox, *Probabilistic Robotics*, ch. 7; P. Hagan, D. Kumar, A. Lesniewski, D. Woodward,
Wilmott (2002) 84.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from veenv.tasks.task import Scalar

Matrix = Sequence[Sequence[Scalar]]


def _product(a: Matrix, b: Matrix) -> list[list[Scalar]]:
    columns = list(zip(*b, strict=True))
    return [[_dot(row, column) for column in columns] for row in a]


def _dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    first, *rest = (x * y for x, y in zip(a, b, strict=True))
    return sum(rest, first)


def _transposed(a: Matrix) -> list[list[Scalar]]:
    return [list(row) for row in zip(*a, strict=True)]


def _plus(a: Matrix, b: Matrix, sign: float = 1.0) -> list[list[Scalar]]:
    return [[x + sign * y for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]


def _inverse(a: Matrix) -> list[list[Scalar]]:
    """Inverts a matrix of two rows and columns."""
    (p, q), (r, s) = a
    one = 1.0 / (p * s - q * r)
    return [[one * s, -one * q], [-one * r, one * p]]


def smoothed(*x: Scalar) -> tuple[Scalar, ...]:
    """Smoothed places and speeds by measurements of a place; noises, step and first mean.

    The last state comes first.  The first mean is as uncertain as a step makes it.
    """
    seen, (noise, shock, step, place, speed) = x[:-5], x[-5:]
    driven = step * step * shock
    drive = [[0.25 * step * step * driven, 0.5 * step * driven], [0.5 * step * driven, driven]]

    def advanced(a: Matrix) -> list[list[Scalar]]:
        """Multiplies a matrix by the matrix of motion, [[1, step], [0, 1]]."""
        return [[p + step * q for p, q in zip(*a, strict=True)], list(a[1])]

    mean, spread = [[place], [speed]], drive
    filtered = []
    for measured in seen:
        expected = advanced(mean)
        around = _plus(_transposed(advanced(_transposed(advanced(spread)))), drive)
        scale = 1.0 / (around[0][0] + noise)
        gain = [around[0][0] * scale, around[1][0] * scale]
        surprise = measured - expected[0][0]
        mean = [[m[0] + g * surprise] for m, g in zip(expected, gain, strict=True)]
        spread = [
            [a - g * b for a, b in zip(row, around[0], strict=True)]
            for row, g in zip(around, gain, strict=True)
        ]
        filtered.append((mean, spread, expected, around))
    means, later = [filtered[-1][0]], filtered[-1][0]
    for k in reversed(range(len(seen) - 1)):
        mean, spread, _, _ = filtered[k]
        expected, around = filtered[k + 1][2:]
        back = _product(_transposed(advanced(_transposed(spread))), _inverse(around))
        later = _plus(mean, _product(back, _plus(later, expected, -1.0)))
        means.append(later)
    return tuple(entry[0] for state in means for entry in state)


def reprojected(*x: Scalar) -> tuple[Scalar, ...]:
    """Pixels of six points in a camera: turn, shift, focal length, two distortions; then points."""
    turn, shift, (focal, first, second) = x[:3], x[3:6], x[6:9]
    angle = jnp.sqrt(_dot(turn, turn))
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    axis = [t / angle for t in turn]
    pixels: list[Scalar] = []
    for k in range(9, len(x), 3):
        point = x[k : k + 3]
        along = _dot(axis, point) * (1.0 - cos)
        beside = (
            axis[1] * point[2] - axis[2] * point[1],
            axis[2] * point[0] - axis[0] * point[2],
            axis[0] * point[1] - axis[1] * point[0],
        )
        px, py, pz = (
            cos * p + sin * b + along * a + s
            for p, b, a, s in zip(point, beside, axis, shift, strict=True)
        )
        u, v = -px / pz, -py / pz
        square = u * u + v * v
        scale = focal * (1.0 + square * (first + second * square))
        pixels += [scale * u, scale * v]
    return tuple(pixels)


def traced_ray(*x: Scalar) -> tuple[Scalar, ...]:
    """A ray's place and direction behind six spheres: curvatures, distances, glasses, ray."""
    curves, gaps, glasses, (px, py, dx, dy) = x[:6], x[6:12], x[12:15], x[15:]
    dz, pz = jnp.sqrt(1.0 - dx * dx - dy * dy), None  # the ray starts in the first tangent plane
    for k, c in enumerate(curves):
        place = (px, py) if pz is None else (px, py, pz)
        middle = dz - c * _dot(place, (dx, dy, dz)[: len(place)])
        rest = c * _dot(place, place)
        rest = rest if pz is None else rest - 2.0 * pz
        cosine = jnp.sqrt(middle * middle - c * rest)
        way = rest / (middle + cosine)
        px, py, pz = px + way * dx, py + way * dy, way * dz if pz is None else pz + way * dz
        ratio = 1.0 / glasses[k // 2] if k % 2 == 0 else glasses[k // 2]
        bent = jnp.sqrt(1.0 - ratio * ratio * (1.0 - cosine * cosine))
        bend = c * (bent - ratio * cosine)
        dx, dy, dz = ratio * dx - bend * px, ratio * dy - bend * py, ratio * dz - bend * pz
        dz = dz + (bent - ratio * cosine)
        pz = pz - gaps[k]
    assert pz is not None
    ahead = -pz / dz
    return px + ahead * dx, py + ahead * dy, dx, dy


# Ends, resistance, reactance and susceptance of the lines, per unit of 100 MVA.
LINES = (
    (0, 3, 0.0, 0.0576, 0.0),
    (3, 4, 0.01, 0.085, 0.176),
    (3, 5, 0.017, 0.092, 0.158),
    (4, 6, 0.032, 0.161, 0.306),
    (5, 8, 0.039, 0.17, 0.358),
    (6, 7, 0.0085, 0.072, 0.149),
    (7, 8, 0.0119, 0.1008, 0.209),
    (1, 6, 0.0, 0.0625, 0.0),
    (2, 8, 0.0, 0.0586, 0.0),
)


def power_flow(*x: Scalar) -> tuple[Scalar, ...]:
    """Real and reactive power that leaves each of nine buses, by voltages and angles."""
    volts, angles = x[:9], x[9:]
    squares = [v * v for v in volts]
    real: dict[int, Scalar] = {}
    reactive: dict[int, Scalar] = {}
    for i, j, resistance, reactance, charge in LINES:
        size = resistance**2 + reactance**2
        g, b = resistance / size, -reactance / size
        turn, both = angles[i] - angles[j], volts[i] * volts[j]
        cos, sin = both * jnp.cos(turn), both * jnp.sin(turn)
        for bus, sine in ((i, sin), (j, -sin)):
            p = g * squares[bus] - (g * cos + b * sine)
            q = -(b + charge / 2) * squares[bus] - (g * sine - b * cos)
            real[bus] = real[bus] + p if bus in real else p
            reactive[bus] = reactive[bus] + q if bus in reactive else q
    return tuple(power[bus] for power in (real, reactive) for bus in range(9))


def swap_values(*x: Scalar) -> tuple[Scalar, ...]:
    """Values of four swaps of 23 half-years, by the par rates of fifteen years and fixed rates.

    Swap k begins after k + 1/2 years; discounts between years are geometric means.
    """
    par, fixed = x[:15], x[15:]
    first = 1.0 / (1.0 + par[0])
    discounts, annuity = [first], first
    for rate in par[1:]:
        discounts.append((1.0 - rate * annuity) / (1.0 + rate))
        annuity = annuity + discounts[-1]
    logs = [jnp.log(d) for d in discounts]
    between = [jnp.exp(0.5 * (a + b)) for a, b in pairwise(logs)]
    halves = [jnp.exp(0.5 * logs[0]), *between]
    grid = [d for pair in zip(halves, discounts, strict=True) for d in pair]
    values = []
    for k, strike in enumerate(fixed):
        flows = []
        for at in range(2 * k + 1, 2 * k + 24):
            forward = grid[at - 1] / grid[at] - 1.0
            flows.append(grid[at] * (forward - 0.5 * strike))
        values.append(sum(flows[1:], flows[0]))
    return tuple(values)


def _turned(turn: Sequence[Scalar], v: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Rotates a vector by a unit quaternion."""
    a, b, c, d = turn
    px, py, pz = v
    tx, ty, tz = 2.0 * (c * pz - d * py), 2.0 * (d * px - b * pz), 2.0 * (b * py - c * px)
    return (
        px + a * tx + (c * tz - d * ty),
        py + a * ty + (d * tx - b * tz),
        pz + a * tz + (b * ty - c * tx),
    )


def _composed(one: Sequence[Scalar], other: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Returns the product of two quaternions."""
    (a, b, c, d), (p, q, r, s) = one, other
    return (
        a * p - b * q - c * r - d * s,
        a * q + b * p + c * s - d * r,
        a * r - b * s + c * p + d * q,
        a * s + b * r - c * q + d * p,
    )


def preintegrated(*x: Scalar) -> tuple[Scalar, ...]:
    """Turn, change of velocity and way by four readings of a moving sensor.

    Biases of gyroscope and accelerometer come first, then rates and accelerations.
    """
    still, rest, step = x[:3], x[3:6], 0.05
    whole: tuple[Scalar, ...] = ()
    speed: list[Scalar] = []
    way: list[Scalar] = []
    for k in range(6, len(x), 6):
        turn = [step * (w - s) for w, s in zip(x[k : k + 3], still, strict=True)]
        push: Sequence[Scalar] = [p - r for p, r in zip(x[k + 3 : k + 6], rest, strict=True)]
        push = _turned(whole, push) if whole else push
        gained = [step * f for f in push]
        if whole:
            halves = [v + 0.5 * g for v, g in zip(speed, gained, strict=True)]
            way = [p + step * v for p, v in zip(way, halves, strict=True)]
            speed = [v + g for v, g in zip(speed, gained, strict=True)]
        else:
            way, speed = [0.5 * step * g for g in gained], gained
        angle = jnp.sqrt(_dot(turn, turn))
        share = jnp.sin(0.5 * angle) / angle
        increment = (jnp.cos(0.5 * angle), *(share * t for t in turn))
        whole = _composed(whole, increment) if whole else increment
    return (*whole, *speed, *way)


def localised(*x: Scalar) -> tuple[Scalar, ...]:
    """Pose of a robot and its covariance after a move and a look at a landmark.

    Before it: pose, the six entries of a symmetric covariance; speed and turn; landmark, its
    measured distance and bearing; variances of speed, turn, distance and bearing.
    """
    (px, py, heading), (xx, xy, xh, yy, yh, hh) = x[:3], x[3:9]
    speed, turn, mx, my, far, bearing = x[9:15]
    of_speed, of_turn, of_far, of_bearing = x[15:]
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    px, py, heading = px + 0.5 * speed * cos, py + 0.5 * speed * sin, heading + 0.5 * turn
    spread = [[xx, xy, xh], [xy, yy, yh], [xh, yh, hh]]

    def advanced(a: Matrix) -> list[list[Scalar]]:
        ahead = (-0.5 * speed * sin, 0.5 * speed * cos)
        return [
            [p + f * q for p, q in zip(row, a[2], strict=True)]
            for row, f in zip(a, ahead, strict=False)
        ] + [list(a[2])]

    spread = advanced(_transposed(advanced(spread)))
    drive = 0.25 * of_speed
    noise = [[drive * cos * cos, drive * cos * sin], [drive * cos * sin, drive * sin * sin]]
    for i in range(2):
        for j in range(2):
            spread[i][j] = spread[i][j] + noise[i][j]
    spread[2][2] = spread[2][2] + 0.25 * of_turn
    dx, dy = mx - px, my - py
    square = dx * dx + dy * dy
    distance = jnp.sqrt(square)
    look = [[-dx / distance, -dy / distance], [dy / square, -dx / square]]
    seen = [[_dot(row, [r[i] for r in spread[:2]]) for i in range(3)] for row in look]
    seen[1] = [s - h for s, h in zip(seen[1], spread[2], strict=True)]
    both = [[_dot(row, cross[:2]) for row in look] for cross in seen]
    both = [[p, q - cross[2]] for (p, q), cross in zip(both, seen, strict=True)]
    both[0][0], both[1][1] = both[0][0] + of_far, both[1][1] + of_bearing
    gain = _product(_transposed(seen), _inverse(both))
    surprise = far - distance, bearing - (jnp.arctan2(dy, dx) - heading)
    pose = [p + _dot(g, surprise) for p, g in zip((px, py, heading), gain, strict=True)]
    less = [
        spread[i][j] - _dot(gain[i], [row[j] for row in seen])
        for i in range(3)
        for j in range(i, 3)
    ]
    return (*pose, *less)


def smile(*x: Scalar) -> tuple[Scalar, ...]:
    """Implied volatilities of six strikes in the SABR model with an exponent of one half.

    Forward, first volatility, correlation, volatility of volatility and time; then strikes.
    """
    forward, alpha, rho, nu, time = x[:5]
    volatilities = []
    for strike in x[5:]:
        both = forward * strike
        half = jnp.sqrt(jnp.sqrt(both))
        log = jnp.log(forward / strike)
        z = nu / alpha * half * log
        root = jnp.sqrt(1.0 - 2.0 * rho * z + z * z)
        skew = z / jnp.log((root + z - rho) / (1.0 - rho))
        square = log * log
        below = half * (1.0 + square / 96.0 + square * square / 30720.0)
        level = alpha / half
        drift = (
            level * level / 96.0
            + 0.125 * rho * nu * level
            + (2.0 - 3.0 * rho * rho) / 24.0 * (nu * nu)
        )
        volatilities.append(alpha / below * skew * (1.0 + drift * time))
    return tuple(volatilities)


_RNG = np.random.default_rng(12)
_TRIPLET = (0.0426, -0.0023, -0.0262, 0.0505, 0.0068, -0.0542)

ENTRIES = (
    (
        "KalmanSmoother",
        smoothed,
        (0.1, 0.4, 0.5, 0.9, 1.4, 1.5, 0.3, 0.2, 0.5, 0.05, 0.4),
        "Rauch-Tung-Striebel smoother of six measurements, 11 to 12 scalars.",
        "Rauch, Tung, Striebel, AIAA J. 3 (1965) 1445",
    ),
    (
        "BundleAdjustment_6",
        reprojected,
        (0.2, -0.1, 0.3, 0.1, 0.2, -4.0, 1.2, 0.1, -0.05, *_RNG.uniform(-1.0, 1.0, 18)),
        "Six points in a camera with radial distortion, 27 to 12 scalars.",
        "Agarwal, Snavely, Seitz, Szeliski, ECCV (2010)",
    ),
    (
        "CookeTriplet",
        traced_ray,
        (*_TRIPLET, 3.2, 6.0, 1.0, 4.8, 3.0, 43.0, 1.611, 1.605, 1.611, 2.0, 1.5, 0.1, -0.05),
        "A skew ray through a triplet of lenses, 19 to 4 scalars.",
        "Welford, Aberrations of Optical Systems, ch. 4; Taylor, US 568,052",
    ),
    (
        "PowerFlow_9",
        power_flow,
        (1.04, 1.025, 1.025, 1.026, 0.996, 1.013, 1.026, 1.016, 1.032)
        + (0.0, 0.162, 0.081, -0.039, -0.07, -0.064, 0.065, 0.013, 0.034),
        "Power of a grid of nine buses, 18 to 18 scalars.",
        "Anderson, Fouad, Power System Control and Stability, ch. 2",
    ),
    (
        "SwapCurve",
        swap_values,
        (*np.linspace(0.02, 0.045, 15), 0.03, 0.032, 0.035, 0.04),
        "Four swaps on a curve of fifteen par rates, 19 to 4 scalars.",
        "Hull, Options, Futures, and Other Derivatives, ch. 4 and 7",
    ),
    (
        "Preintegration_4",
        preintegrated,
        (0.01, -0.02, 0.015, 0.1, -0.05, 0.08, *np.random.default_rng(15).normal(0.0, 1.5, 24)),
        "Turn, velocity and way by four readings of an inertial sensor, 30 to 10 scalars.",
        "Forster, Carlone, Dellaert, Scaramuzza, IEEE Trans. Robotics 33 (2017) 1",
    ),
    (
        "Localisation_EKF",
        localised,
        (1.0, 2.0, 0.4, 0.3, 0.05, -0.02, 0.25, 0.04, 0.1, 1.2, 0.3, 4.0, 5.0, 4.1, 0.5)
        + (0.04, 0.02, 0.05, 0.01),
        "A move and a look at a landmark in a Kalman filter of a robot's pose, 19 to 9 scalars.",
        "Thrun, Burgard, Fox, Probabilistic Robotics, ch. 7",
    ),
    (
        "SABR_Smile",
        smile,
        (0.031, 0.035, -0.3, 0.45, 2.0, 0.018, 0.023, 0.028, 0.034, 0.04, 0.05),
        "Implied volatilities of six strikes in the SABR model, 11 to 6 scalars.",
        "Hagan, Kumar, Lesniewski, Woodward, Wilmott (2002) 84",
    ),
)
