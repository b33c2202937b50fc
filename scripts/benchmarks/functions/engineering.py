"""Thirty functions of engineers and scientists, unlike those of `realistic.py`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from scripts.benchmarks.functions.case import Cases, Draws, runge_kutta

ENGINEERING = Cases()
_DRAWN = Draws(29)
_normal, _uniform, _RNG = _DRAWN.normal, _DRAWN.uniform, _DRAWN.rng


def _cross(a: Array, b: Array) -> Array:
    return jnp.stack([
        a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
    ])  # fmt: skip


def _rotated(q: Array, v: Array) -> Array:
    """A vector turned by a unit quaternion, scalar part first."""
    t = 2 * _cross(q[1:], v)
    return v + q[0] * t + _cross(q[1:], t)


# Control and robots


@ENGINEERING.add(
    jnp.concatenate([_normal(3), jnp.array([1.0, 0, 0, 0]), _normal(6)]), _uniform(1, 2, 4),
    argnums=(0, 1),
)  # fmt: skip
def quadrotor(x: Array, thrust: Array) -> Array:
    """Rates of position, attitude, velocity and angular velocity of a quadrotor."""
    q, v, w = x[3:7] / jnp.linalg.norm(x[3:7]), x[7:10], x[10:]
    up = _rotated(q, jnp.array([0.0, 0.0, 1.0])) * thrust.sum()
    arm = jnp.array([[0.0, 1, 0, -1], [-1, 0, 1, 0], [0.1, -0.1, 0.1, -0.1]])
    inertia = jnp.array([0.02, 0.021, 0.04])
    turn = 0.5 * jnp.concatenate([-(q[1:] @ w)[None], q[0] * w + _cross(q[1:], w)])
    spin = (0.2 * arm @ thrust - _cross(w, inertia * w)) / inertia
    return jnp.concatenate([v, turn, up - jnp.array([0, 0, 9.81]) - 0.1 * v * jnp.abs(v), spin])


@ENGINEERING.add(jnp.array([2.0, 0.5, 0.1]))
def pid_response(gains: Array) -> Array:
    """The error of a loop of second order under a PID controller, over 80 steps."""

    def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], Array]:
        y, v, total, last = state
        e = 1 - y
        u = gains[0] * e + gains[1] * total + gains[2] * (e - last) / 0.05
        return (y + 0.05 * v, v + 0.05 * (4 * u - 1.2 * v - 3 * y), total + 0.05 * e, e), e

    zero = jnp.zeros((), gains.dtype)
    return lax.scan(step, (zero, zero, zero, zero + 1), None, length=80)[1]


@ENGINEERING.add(_normal(3), _normal(3), argnums=(0, 1))
def arm_torques(q: Array, v: Array) -> Array:
    """Joint torques of an arm of three links without acceleration, by Lagrange's equations."""
    masses, lengths = jnp.array([1.0, 0.8, 0.5]), jnp.array([0.5, 0.4, 0.3])

    def lagrangian(q: Array, v: Array) -> Array:
        angle, turn = jnp.cumsum(q), jnp.cumsum(v)
        vx = jnp.cumsum(-lengths * jnp.sin(angle) * turn)
        vy = jnp.cumsum(lengths * jnp.cos(angle) * turn)
        height = jnp.cumsum(lengths * jnp.sin(angle))
        return 0.5 * masses @ (vx**2 + vy**2) - 9.81 * masses @ height

    return jax.jacfwd(jax.grad(lagrangian, 1))(q, v) @ v - jax.grad(lagrangian)(q, v)


# Electricity


@ENGINEERING.add(_normal(4), _uniform(0.5, 2, 5), argnums=(0, 1))
def synchronous_motor(x: Array, p: Array) -> Array:
    """Rates of currents, speed and angle of a permanent-magnet motor under field control."""
    i_d, i_q, speed, angle = x
    r, ld, lq, flux, load = p
    v = 2 * (jnp.array([0.0, 1.0]) - jnp.stack([i_d, i_q])) + speed * jnp.stack([-lq * i_q, flux])
    torque = 1.5 * (flux * i_q + (ld - lq) * i_d * i_q)
    return jnp.stack([
        (v[0] - r * i_d + speed * lq * i_q) / ld, (v[1] - r * i_q - speed * (ld * i_d + flux)) / lq,
        torque - load * jnp.tanh(10 * speed), speed + 0.01 * jnp.sin(6 * angle),
    ])  # fmt: skip


@ENGINEERING.add(jnp.array([0.01, 0.02, 2000.0, 0.03, 9000.0, 3.4, 0.6]))
def battery_voltage(p: Array) -> Array:
    """The voltage of a cell with two RC pairs over 50 samples of a current."""
    current = 2 + jnp.sin(0.3 * jnp.arange(50))

    def step(state: tuple[Array, ...], i: Array) -> tuple[tuple[Array, ...], Array]:
        a, b, charge = state
        a = a * jnp.exp(-10 / (p[1] * p[2])) + p[1] * (1 - jnp.exp(-10 / (p[1] * p[2]))) * i
        b = b * jnp.exp(-10 / (p[3] * p[4])) + p[3] * (1 - jnp.exp(-10 / (p[3] * p[4]))) * i
        charge = charge - 10 * i / 9000
        open_circuit = p[5] + p[6] * charge + 0.05 * jnp.log(charge / (1.01 - charge))
        return (a, b, charge), open_circuit - p[0] * i - a - b

    zero = jnp.zeros((), p.dtype)
    return lax.scan(step, (zero, zero, zero + 0.9), current)[1]


@ENGINEERING.add(_uniform(0.1, 0.5, 5), _normal(64), argnums=0)
def biquad(c: Array, signal: Array) -> Array:
    """A signal through a filter of second order, by its coefficients."""

    def step(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        y = c[0] * x + state[0]
        return (c[1] * x - c[3] * y + state[1], c[2] * x - c[4] * y), y

    zero = jnp.zeros((), c.dtype)
    return lax.scan(step, (zero, zero), signal)[1]


@ENGINEERING.add(_normal(32))
def spectrum(x: Array) -> Array:
    """Log powers of a windowed signal."""
    y = jnp.fft.rfft(x * jnp.hanning(32))
    return jnp.log(y.real**2 + y.imag**2 + 1e-3)


@ENGINEERING.add(_uniform(0.5, 1.5, 8))
def ladder_impedance(p: Array) -> Array:
    """Magnitude of the impedance of an LC ladder at 24 frequencies: a continued fraction."""
    s = 1j * jnp.linspace(0.2, 3.0, 24)
    z = 0.1 + s * p[0]
    for k in range(1, 8):
        z = p[k] * s * 0.5 + 1 / z
    return jnp.abs(z)


# Chemistry and biology


@ENGINEERING.add(jnp.array([2.1, 1.1, 114.2, 112.9]), jnp.array([14.2, -1.1]), argnums=(0, 1))
def van_de_vusse(x: Array, u: Array) -> Array:
    """Rates of a stirred tank with three reactions and a jacket."""
    k1 = 1.287e12 * jnp.exp(-9758.3 / (x[2] + 273.15))
    k3 = 9.043e9 * jnp.exp(-8560.0 / (x[2] + 273.15))
    heat = k1 * x[0] * 4.2 - k1 * x[1] * 11.0 - k3 * x[0] ** 2 * 41.85
    return jnp.stack([
        u[0] * (5.1 - x[0]) - k1 * x[0] - k3 * x[0] ** 2, -u[0] * x[1] + k1 * (x[0] - x[1]),
        u[0] * (130 - x[2]) + 30.8 * (x[3] - x[2]) - heat / 2.81, 86.7 * (x[2] - x[3]) + 0.1 * u[1],
    ])  # fmt: skip


@ENGINEERING.add(jnp.array([0.3, 0.7]) + 0.0 * _normal(2), _uniform(0.2, 0.9, 4), argnums=(0, 1))
def nrtl(x: Array, tau: Array) -> Array:
    """Activity coefficients of two components by the NRTL equation."""
    t = jnp.array([[0.0, 1.0], [1.0, 0.0]]) * tau.reshape(2, 2)
    g = jnp.exp(-0.3 * t)
    s, c = x @ g, x @ (t * g)
    return jnp.exp(c / s + ((x * g / s) * (t - c / s)).sum(1))


@ENGINEERING.add(_uniform(0.2, 2.5, 6), jnp.full(6, 1 / 6), argnums=(0, 1))
def rachford_rice(k: Array, z: Array) -> Array:
    """Vapour fraction and composition of a flash, eight steps of Newton from a half."""
    v = jnp.asarray(0.5, k.dtype)
    for _ in range(8):
        d = 1 + v * (k - 1)
        v = v + (z * (k - 1) / d).sum() / (z * ((k - 1) / d) ** 2).sum()
    return jnp.concatenate([v[None], z * k / (1 + v * (k - 1))])


@ENGINEERING.add(jnp.array([310.0, 50.0]))
def peng_robinson(state: Array) -> Array:
    """Compressibility and fugacity of CO2 from temperature and pressure: a root of a cubic."""
    t, p = state
    alpha = (1 + 0.707 * (1 - jnp.sqrt(t / 304.1))) ** 2
    a, b = 0.4572 * alpha * p / 73.8 / (t / 304.1) ** 2, 0.0778 * p / 73.8 / (t / 304.1)

    def newton(z: Array, _: None) -> tuple[Array, None]:
        f = z**3 - (1 - b) * z**2 + (a - 3 * b**2 - 2 * b) * z - (a * b - b**2 - b**3)
        return z - f / (3 * z**2 - 2 * (1 - b) * z + a - 3 * b**2 - 2 * b), None

    z = lax.scan(newton, jnp.ones((), t.dtype), None, length=12)[0]
    log = jnp.log((z + 2.414 * b) / (z - 0.414 * b))
    return jnp.stack([z, z - 1 - jnp.log(z - b) - a / (2.828 * b) * log])


@ENGINEERING.add(_uniform(0.2, 1, 10), 0.1 * _normal(10, 10), argnums=(0, 1))
def ecosystem(n: Array, a: Array) -> Array:
    """Rates of ten species that meet, with a saturating response."""
    eaten = a @ (n / (1 + n))
    return n * (1 - n + eaten)


@ENGINEERING.add(jnp.array([-60.0, 0.1, 0.5, 0.4]), _uniform(0.5, 1, 4), argnums=(0, 1))
def axon(x: Array, g: Array) -> Array:
    """Rates of a patch of membrane with gates, after Hodgkin and Huxley."""
    v, m, h, n = x
    am, an = (
        0.1 * (v + 40) / -jnp.expm1(-(v + 40) / 10),
        0.01 * (v + 55) / -jnp.expm1(-(v + 55) / 10),
    )
    bm, bn = 4 * jnp.exp(-(v + 65) / 18), 0.125 * jnp.exp(-(v + 65) / 80)
    ah, bh = 0.07 * jnp.exp(-(v + 65) / 20), 1 / (1 + jnp.exp(-(v + 35) / 10))
    current = 120 * g[0] * m**3 * h * (v - 50) + 36 * g[1] * n**4 * (v + 77) + g[2] * (v + 54)
    rates = jnp.stack([am * (1 - m) - bm * m, ah * (1 - h) - bh * h, an * (1 - n) - bn * n])
    return jnp.concatenate([(g[3] * 10 - current)[None], rates])


# Fluids, heat and solids


@ENGINEERING.add(_normal(40), jnp.array([0.4]), argnums=(0, 1))
def crank_nicolson(u: Array, nu: Array) -> Array:
    """An implicit step of heat on a rod with a source that depends on its temperature."""
    r = jnp.broadcast_to(nu[0], u.shape)
    flow = nu[0] * (jnp.pad(u[1:], (0, 1)) - 2 * u + jnp.pad(u[:-1], (1, 0)))
    right = u + 0.5 * flow + 0.01 * jnp.exp(-u)
    off = jnp.where(jnp.arange(40) > 0, -0.5 * r, 0.0)
    return lax.linalg.tridiagonal_solve(off, 1 + r, off[::-1], right[:, None])[:, 0]


@ENGINEERING.add(_normal(48))
def burgers(u: Array) -> Array:
    """A step of Burgers' equation with limited slopes, on a ring."""
    left, right = u - jnp.roll(u, 1), jnp.roll(u, -1) - u
    slope = jnp.where(
        left * right > 0, jnp.sign(left) * jnp.minimum(jnp.abs(left), jnp.abs(right)), 0
    )
    a, b = u + 0.5 * slope, jnp.roll(u - 0.5 * slope, -1)
    speed = jnp.maximum(jnp.abs(a), jnp.abs(b))
    flux = 0.25 * (a * a + b * b) - 0.5 * speed * (b - a)
    return u - 0.1 * (flux - jnp.roll(flux, 1))


@ENGINEERING.add(_uniform(0.8, 1.2, 10), _normal(10), argnums=(0, 1))
def beam_deflection(stiffness: Array, load: Array) -> Array:
    """Deflections of a clamped beam of ten elements: twenty unknowns, one solve."""
    element = jnp.array([[12.0, 6, -12, 6], [6, 4, -6, 2], [-12, -6, 12, -6], [6, 2, -6, 4]])
    places = 2 * np.arange(10)[:, None] + np.arange(4)
    k = jnp.zeros((22, 22), stiffness.dtype)
    k = k.at[places[:, :, None], places[:, None, :]].add(stiffness[:, None, None] * element)
    force = jnp.zeros(20, load.dtype).at[::2].set(load)
    return jnp.linalg.solve(k[2:, 2:], force)[::2]


@ENGINEERING.add(jnp.eye(3) + 0.1 * _normal(3, 3), _uniform(0.5, 2, 2), argnums=(0, 1))
def rubber(f: Array, p: Array) -> Array:
    """The first Piola-Kirchhoff stress of a compressible neo-Hookean solid."""
    j = jnp.linalg.det(f)
    return p[0] * (f - jnp.linalg.inv(f).T) + p[1] * jnp.log(j) * jnp.linalg.inv(f).T


@ENGINEERING.add(0.01 * _normal(6), 0.002 * _normal(6), argnums=(0, 1))
def plastic_return(strain: Array, plastic: Array) -> Array:
    """Stresses by radial return, von Mises plasticity with linear hardening."""
    e = strain - plastic
    volume = jnp.array([1.0, 1, 1, 0, 0, 0]) * e[:3].sum() / 3
    trial = 2 * 80.0 * (e - volume)
    size = jnp.sqrt(trial[:3] @ trial[:3] + 2 * trial[3:] @ trial[3:] + 1e-12)
    over = jnp.maximum(size - 0.8, 0.0)
    return trial * (1 - over / size * 160 / (160 + 10)) + 3 * 160.0 * volume


@ENGINEERING.add(_uniform(280, 400, 4), _uniform(0.5, 2, 3), argnums=(0, 1))
def heat_exchanger(t: Array, p: Array) -> Array:
    """Duties of a counterflow exchanger, with a guarded logarithmic mean of differences."""
    a, b = t[0] - t[3], t[1] - t[2]
    same = jnp.abs(a - b) < 1e-3
    mean = jnp.where(
        same, 0.5 * (a + b), (a - b) / jnp.log(jnp.where(same, 2.0, jnp.abs(a / b) + 0.1))
    )
    return jnp.stack([p[0] * mean, p[1] * (t[0] - t[1]), p[2] * (t[3] - t[2])])


@ENGINEERING.add(_normal(10, 2), 0.2 * _normal(1), argnums=(0, 1))
def vortex_lattice(panels: Array, incidence: Array) -> Array:
    """Circulations of ten vortices near a camber line, from no flow through ten points."""
    points = jnp.stack([jnp.arange(10.0), 0.1 * jnp.arange(10.0)], 1) + 0.1 * panels
    collocation = points + jnp.array([0.5, 0.05])
    d = collocation[:, None] - points
    normal = jnp.stack([-jnp.sin(incidence[0]), jnp.cos(incidence[0])])
    r2 = (d**2).sum(-1) + 1e-3
    influence = (-d[..., 1] * normal[0] + d[..., 0] * normal[1]) / (2 * jnp.pi * r2)
    return jnp.linalg.solve(influence, jnp.broadcast_to(normal[1], 10))


# Finance and statistics


@ENGINEERING.add(jnp.array([0.04, 1.5, 0.05, 0.4, -0.6, 1.02]))
def heston(p: Array) -> Array:
    """Prices of a call by the characteristic function, at five strikes."""
    v, kappa, theta, sigma, rho, spot = p
    u = jnp.linspace(0.05, 30.0, 64)

    def psi(u: Array) -> Array:
        b = kappa - 1j * rho * sigma * u
        d = jnp.sqrt(b * b + sigma**2 * (u * u + 1j * u))
        g = (b - d) / (b + d)
        e = jnp.exp(-d)
        c = kappa * theta / sigma**2 * ((b - d) - 2 * jnp.log((1 - g * e) / (1 - g)))
        return jnp.exp(c + v / sigma**2 * (b - d) * (1 - e) / (1 - g * e) + 1j * u * jnp.log(spot))

    strikes = jnp.linspace(0.8, 1.2, 5)
    inner = psi(u - 0.5j) * jnp.exp(-1j * u * jnp.log(strikes)[:, None])
    return spot - jnp.sqrt(strikes) / jnp.pi * (inner.real / (u * u + 0.25)).sum(1) * (u[1] - u[0])


@ENGINEERING.add(jnp.array([1.0, 0.05, 0.3, 1.0]))
def american_put(p: Array) -> Array:
    """The price of an American put on a tree of 50 steps, by spot, rate, volatility and strike."""
    up = jnp.exp(p[2] * jnp.sqrt(1 / 50))
    chance = (jnp.exp(p[1] / 50) - 1 / up) / (up - 1 / up)
    spots = p[0] * up ** (2.0 * jnp.arange(51) - 50)

    def back(v: Array, _: None) -> tuple[Array, None]:
        held = jnp.exp(-p[1] / 50) * (chance * jnp.roll(v, -1) + (1 - chance) * v)
        return jnp.maximum(held, p[3] - spots), None

    return lax.scan(back, jnp.maximum(p[3] - spots, 0), None, length=50)[0][25]


@ENGINEERING.add(jnp.array([0.2, 0.6, -0.3, 0.5]), _uniform(0.7, 1.4, 9), argnums=0)
def sabr(p: Array, strikes: Array) -> Array:
    """Volatilities of nine strikes by Hagan's formula."""
    alpha, beta, rho, nu = p
    mid = strikes ** ((1 - beta) / 2)
    z = nu / alpha * mid * jnp.log(1.05 / strikes)
    x = jnp.log((jnp.sqrt(1 - 2 * rho * z + z * z) + z - rho) / (1 - rho))
    more = (1 - beta) ** 2 / 24 * alpha**2 / mid**2 + rho * beta * nu * alpha / (4 * mid)
    return alpha / mid * z / x * (1 + more + (2 - 3 * rho**2) / 24 * nu**2)


@ENGINEERING.add(jnp.array([0.04, -0.02, 0.01, 1.5]), _uniform(0.5, 3, 12), argnums=0)
def bonds(p: Array, coupons: Array) -> Array:
    """Prices of twelve bonds on a curve of Nelson and Siegel."""
    t = jnp.arange(1.0, 21.0)
    decay = (1 - jnp.exp(-t / p[3])) * p[3] / t
    discount = jnp.exp(-t * (p[0] + p[1] * decay + p[2] * (decay - jnp.exp(-t / p[3]))))
    alive = t[None] <= 2 + 1.5 * jnp.arange(12)[:, None]
    return (alive * coupons[:, None] * discount).sum(1)


@ENGINEERING.add(_normal(5), 0.5 * _normal(30, 5), argnums=0)
def logistic_scores(w: Array, x: Array) -> Array:
    """Contributions of thirty data to the score of a logistic regression."""
    return (jax.nn.sigmoid(x @ w) - (jnp.arange(30) % 2))[:, None] * x


# Vision, space, physics, learning


@ENGINEERING.add(0.1 * _normal(6), 0.1 * _normal(12, 3), argnums=(0, 1))
def point_to_plane(pose: Array, points: Array) -> Array:
    """Distances of twelve moved points from planes; the motion is an exponential."""
    angle = jnp.sqrt(pose[:3] @ pose[:3] + 1e-12)
    a, b = jnp.sin(angle) / angle, (1 - jnp.cos(angle)) / angle**2
    k = jnp.array([[0, -pose[2], pose[1]], [pose[2], 0, -pose[0]], [-pose[1], pose[0], 0]])
    moved = points @ (jnp.eye(3) + a * k + b * k @ k).T + pose[3:]
    normal = jnp.stack([jnp.cos(jnp.arange(12.0)), jnp.sin(jnp.arange(12.0)), jnp.ones(12)], 1)
    return ((moved - 0.1) * normal).sum(1)


@ENGINEERING.add(jnp.array([1.0, 0.1, 0.2, 0.0, 0.9, 0.3]))
def oblate_orbit(x: Array) -> Array:
    """Ten Runge-Kutta steps about an oblate planet."""

    def rate(x: Array) -> Array:
        r2 = x[:3] @ x[:3]
        z = 5 * x[2] ** 2 / r2
        bulge = 1.6e-3 / r2 * (jnp.array([1.0, 1, 3]) - z)
        return jnp.concatenate([x[3:], -x[:3] / r2**1.5 * (1 + bulge)])

    return lax.fori_loop(0, 10, lambda _, x: runge_kutta(rate, x, 0.05), x)


@ENGINEERING.add(_normal(8, 8), jnp.array([0.7, 0.1]), argnums=(0, 1))
def rotor_lattice(angle: Array, p: Array) -> Array:
    """Torques on the rotors of a lattice with field."""
    turns: list[Callable[[Array], Array]] = [
        lambda a, k=k, axis=axis: jnp.roll(a, k, axis) for k in (1, -1) for axis in (0, 1)
    ]
    return p[0] * sum(jnp.sin(turn(angle) - angle) for turn in turns) - p[1] * jnp.sin(angle)


@ENGINEERING.add(_normal(16, 2), _normal(16), _normal(16), argnums=(0, 1, 2))
def poisson_residual(w: Array, b: Array, v: Array) -> Array:
    """Residuals of Poisson's equation for a small network at twenty points, by its weights."""

    def u(x: Array) -> Array:
        return v @ jnp.tanh(w @ x + b)

    points = jnp.stack([jnp.linspace(0, 1, 20), jnp.linspace(1, 0, 20) ** 2], 1)
    return jax.vmap(lambda x: jnp.trace(jax.hessian(u)(x)) - jnp.sin(x.sum()))(points)
