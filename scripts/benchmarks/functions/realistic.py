"""Functions that people differentiate, from a few fields: those of benchmark `realistic`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scripts.benchmarks.functions.case import Cases, Draws, runge_kutta

REALISTIC = Cases()
_DRAWN = Draws(11)
_RNG, _normal, _uniform = _DRAWN.rng, _DRAWN.normal, _DRAWN.uniform
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


def _random(seed: int, *shape: int) -> Array:
    return Draws(seed).normal(*shape)


_LAYERS = [
    (_random(0, 48, 6), _random(1, 48)),
    (_random(2, 48, 48), _random(3, 48)),
    (_random(4, 6, 48), _random(5, 6)),
]
_FILTER = (_random(0, 5), jnp.eye(5), _random(1, 2), _random(2, 2, 5), 0.2 * jnp.eye(2))
_IMAGE = (_random(0, 16, 16, 2), _random(1, 3, 3, 2, 6), _random(2, 8, 96))


@REALISTIC.add(
    _random(0, 3, 12, 6), _random(1, 3, 12, 12), _random(2, 3, 12), _random(3, 6),
    _random(4, 12), argnums=(0, 1, 2), name="gru_params",
)  # fmt: skip
def gru_cell(w: Array, u: Array, b: Array, x: Array, h: Array) -> Array:
    """The next state of a gated recurrent unit; w: [3, n, m], u: [3, n, n], b: [3, n]."""
    z = jax.nn.sigmoid(w[0] @ x + u[0] @ h + b[0])
    r = jax.nn.sigmoid(w[1] @ x + u[1] @ h + b[1])
    return z * h + (1 - z) * jnp.tanh(w[2] @ x + u[2] @ (r * h) + b[2])


@REALISTIC.add(*_IMAGE, name="conv_image")
@REALISTIC.add(*_IMAGE, argnums=1, name="conv_kernel")
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


@REALISTIC.add(jnp.array([0.5, -0.3, 0.1, 0.2]))
def pendula_unrolled(s: Array) -> Array:
    """The state after 16 steps of Heun's method, a Python loop."""
    for _ in range(16):
        s = _heun(s)
    return s


@REALISTIC.add(jnp.array([0.5, -0.3, 0.1, 0.2]))
def pendula_scan(s: Array) -> Array:
    """The state after 64 steps, one `scan`."""
    return jax.lax.scan(lambda x, _: (_heun(x), None), s, None, length=64)[0]


@REALISTIC.add(_random(9, 6), _LAYERS, name="vector_field_state")
@REALISTIC.add(_random(9, 6), _LAYERS, argnums=1, name="vector_field_params")
def vector_field(x: Array, layers: list[tuple[Array, Array]]) -> Array:
    """The right-hand side of a neural ODE."""
    for w, b in layers[:-1]:
        x = jax.nn.silu(w @ x + b)
    return layers[-1][0] @ x + layers[-1][1]


@REALISTIC.add(*_FILTER, argnums=(0, 1), name="kalman_update")
def filter_update(x: Array, p: Array, z: Array, h: Array, r: Array) -> tuple[Array, Array]:
    """Mean and covariance after a measurement z = h x of a Kalman filter (Joseph's form)."""
    s = h @ p @ h.T + r
    k = jnp.linalg.solve(s, h @ p).T
    rest = jnp.eye(x.size) - k @ h
    return x + k @ (z - h @ x), rest @ p @ rest.T + k @ r @ k.T


@REALISTIC.add(_random(0, 8), _random(1, 8), _random(2, 8), argnums=(0, 1))
def planar_chain(q: Array, v: Array, a: Array) -> Array:
    """Torques of a planar chain of unit links with point masses: inverse dynamics, backwards."""
    angle, rate, turn = jnp.cumsum(q), jnp.cumsum(v), jnp.cumsum(a)
    c, s = jnp.cos(angle), jnp.sin(angle)
    ax = jnp.cumsum(-s * turn - c * rate**2)
    ay = jnp.cumsum(c * turn - s * rate**2) + 9.81
    fx, fy = jnp.cumsum(ax[::-1])[::-1], jnp.cumsum(ay[::-1])[::-1]
    return jnp.cumsum((c * fy - s * fx)[::-1])[::-1]


@REALISTIC.add(
    jnp.array([1.0, 0.1, -0.2, 0.05, 0.1, 0.2, 4.0]), jnp.array([300.0, 0.01, 1e-3, 1.0, 2.0]),
    jnp.array([0.3, -0.2, 0.5]), argnums=(0, 1, 2),
)  # fmt: skip
def pinhole(pose: Array, lens: Array, point: Array) -> Array:
    """Image of a point in a camera whose pose is a quaternion and a shift, with distortion."""
    q, t = pose[:4] / jnp.sqrt(jnp.sum(pose[:4] ** 2)), pose[4:]
    u = jnp.cross(q[1:], point) + q[0] * point
    p = point + 2 * jnp.cross(q[1:], u) + t
    xy = p[:2] / p[2]
    r2 = xy @ xy
    return lens[0] * xy * (1 + r2 * (lens[1] + lens[2] * r2)) + lens[3:5]


@REALISTIC.add(jnp.array([0.6, 0.5, 0.2, 0.1, 340.0]))
def reactor(y: Array) -> Array:
    """Rates of a stirred reactor: four species and a temperature, three Arrhenius reactions."""
    c, t = y[:4], y[4]
    k = jnp.array([2e4, 6e4, 1e4]) * jnp.exp(-jnp.array([5e3, 6e3, 5.5e3]) / t)
    r = k * jnp.stack([c[0] * c[1], c[1] ** 2, c[2] * c[0]])
    nu = jnp.array([[-1.0, 0, -1], [-1, -2, 0], [1, 0, -1], [0, 1, 2]])
    heat = jnp.array([40.0, 25.0, -10.0]) @ r - 0.8 * (t - 290.0)
    return jnp.concatenate([jnp.array([1.0, 1, 0, 0]) - c + nu @ r, heat[None]])


@REALISTIC.add(3 * _random(0, 12, 3))
def lennard_jones(x: Array) -> Array:
    """Forces between particles; x: [n, 3]."""
    d = x[:, None] - x[None]
    inverse = 1 / (jnp.sum(d * d, -1) + 0.1 + 1e3 * jnp.eye(x.shape[0]))
    return jnp.sum((inverse**4 - 0.5 * inverse**2)[..., None] * d, 1)


@REALISTIC.add(_random(0, 10, 12), _random(1, 12, 12), _random(2, 12, 12), _random(3, 12, 12))
def attention(x: Array, query: Array, key: Array, value: Array) -> Array:
    """Causal attention of a sequence; x: [t, n]."""
    scores = (x @ query) @ (x @ key).T / np.sqrt(x.shape[1])
    scores = jnp.where(np.tri(x.shape[0], dtype=bool), scores, -1e9)
    return jax.nn.softmax(scores) @ (x @ value)


@REALISTIC.add(_random(0, 14, 2))
def glider(u: Array) -> Array:
    """States of a planar vehicle under controls, a Python loop; u: [t, 2]."""
    s, states = jnp.array([0.0, 1.0, 0.1, 1.0, 0.0]), []
    for thrust, turn in u:
        x, y, angle, speed, _ = s
        drag = 0.02 * speed * speed
        force = jnp.tanh(thrust) - drag - 0.3 * jnp.sin(angle)
        x, y = x + 0.1 * speed * jnp.cos(angle), y + 0.1 * speed * jnp.sin(angle)
        angle = angle + 0.1 * turn / (1 + speed * speed)
        s = jnp.stack([x, y, angle, speed + 0.1 * force, force])
        states.append(s)
    return jnp.stack(states)


@REALISTIC.add(1.0 + _random(0, 2, 48))
def gray_scott(y: Array) -> Array:
    """Rates of a reaction and diffusion on a ring; y: [2, n]."""
    u, v = y

    def diffusion(z: Array) -> Array:
        return jnp.roll(z, 1) + jnp.roll(z, -1) - 2 * z

    uvv = u * v * v
    return jnp.stack(
        [0.2 * diffusion(u) - uvv + 0.04 * (1 - u), 0.1 * diffusion(v) + uvv - 0.1 * v]
    )


@REALISTIC.add(jnp.array([1.0, 0.4, 0.2]))
def gaussian_process(theta: Array) -> Array:
    """Whitened residuals of a Gaussian process by its hyperparameters."""
    x = jnp.linspace(0.0, 2.0, 16)
    d = jnp.abs(x[:, None] - x[None]) / theta[1]
    cover = theta[0] ** 2 * (1 + d) * jnp.exp(-d) + (0.05 + theta[2] ** 2) * jnp.eye(16)
    lower = jnp.linalg.cholesky(cover)
    return jax.scipy.linalg.solve_triangular(lower, jnp.cos(4 * x), lower=True)


@REALISTIC.add(_random(0, 7))
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


@REALISTIC.add(1.0 + _random(0, 64))
def upwind(u: Array) -> Array:
    """Rates of Burgers' equation with a limiter; u: [n]."""
    left, right = u - jnp.roll(u, 1), jnp.roll(u, -1) - u
    slope = jnp.where(left * right > 0, 2 * left * right / (left + right + 1e-6), 0.0)
    face = u + 0.5 * slope
    flux = 0.5 * face * face
    return jnp.roll(flux, 1) - flux


@REALISTIC.add(
    1.0 + 0.1 * _random(0, 10), 0.1 * _random(1, 10), _random(2, 10, 10), _random(3, 10, 10),
    argnums=(0, 1),
)  # fmt: skip
def power_flow(v: Array, angle: Array, conductance: Array, susceptance: Array) -> Array:
    """Active and reactive powers of the buses of a grid."""
    d = angle[:, None] - angle[None]
    c, s = jnp.cos(d), jnp.sin(d)
    p = v * ((conductance * c + susceptance * s) @ v)
    return jnp.concatenate([p, v * ((conductance * s - susceptance * c) @ v)])


@REALISTIC.add(
    _normal(4), jnp.diag(jnp.array([0.1, 0.2, 0.05, 0.3])) + 0.01, jnp.array([0.5, 0.2]),
    argnums=(0, 1),
)  # fmt: skip
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


@REALISTIC.add(jnp.stack([2 + 0.3 * _normal(40), _normal(40)]))
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


@REALISTIC.add(_normal(5), _normal(5, 5), _normal(5, 6), argnums=(0, 1, 2))
def hidden_markov(first: Array, step: Array, emit: Array) -> tuple[Array, Array]:
    """Log-likelihoods of a sequence's beginnings, by `scan`."""
    moves, seen = jax.nn.log_softmax(step), jax.nn.log_softmax(emit)

    def forward(a: Array, o: Array) -> tuple[Array, Array]:
        a = jax.nn.logsumexp(a[:, None] + moves, 0) + seen[:, o]
        return a, jax.nn.logsumexp(a)

    start = jax.nn.log_softmax(first) + seen[:, _OBSERVED[0]]
    return jax.lax.scan(forward, start, jnp.asarray(_OBSERVED[1:]))


@REALISTIC.add(_uniform(0.5, 1.5, 11), jnp.asarray(_NODES, "f4"), _normal(14), argnums=(0, 1))
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


@REALISTIC.add(jnp.array([-60.0, 0.06, 0.6, 0.32]), jnp.array([120.0, 36.0, 0.3]), argnums=(0, 1))
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

    return jax.lax.fori_loop(0, 10, lambda _, s: runge_kutta(rate, s, 0.02), state)


@REALISTIC.add(
    jnp.array([0.1, -0.08, 0.05, -0.12]), jnp.array([0.5, 0.6, 0.4, 0.5]),
    jnp.linspace(-1.0, 1.0, 20), argnums=(0, 1),
)  # fmt: skip
def lens(curvature: Array, gap: Array, height: Array) -> Array:
    """Heights at which rays meet a screen after four spherical surfaces."""
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


@REALISTIC.add(
    jnp.concatenate([0.2 * _normal(4, 5), 5 + _normal(4, 1), jnp.full((4, 1), 300.0),
                     0.01 * _normal(4, 2)], 1), _normal(12, 3), _normal(24, 2), argnums=(0, 1),
)  # fmt: skip
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


@REALISTIC.add(
    {"logits": _normal(4), "mean": _normal(4, 3), "factor": 0.3 * _normal(4, 3, 3)},
    _normal(30, 3),
)  # fmt: skip
def mixture(parameters: dict[str, Array], data: Array) -> Array:
    """Log-likelihood of each datum under a mixture of normal distributions."""
    log_diagonal = jnp.diagonal(parameters["factor"], axis1=1, axis2=2)
    factors = jnp.tril(parameters["factor"], -1) + jax.vmap(jnp.diag)(jnp.exp(log_diagonal))

    def component(mean: Array, factor: Array) -> Array:
        z = jax.scipy.linalg.solve_triangular(factor, (data - mean).T, lower=True)
        return -0.5 * jnp.sum(z * z, 0)

    each = jax.vmap(component)(parameters["mean"], factors) - log_diagonal.sum(1)[:, None]
    return jax.nn.logsumexp(jax.nn.log_softmax(parameters["logits"])[:, None] + each, axis=0)


@REALISTIC.add(
    1 + 0.02 * _normal(14), 0.1 * _normal(14), _uniform(1, 5, 20), -_uniform(3, 15, 20),
    argnums=(0, 1),
)  # fmt: skip
def branch_flows(v: Array, angle: Array, g: Array, b: Array) -> tuple[Array, Array, Array]:
    """Powers on the branches of a grid, and what they add up to at the buses."""
    d, vi, vj = angle[_FROM] - angle[_TO], v[_FROM], v[_TO]
    c, s = jnp.cos(d), jnp.sin(d)
    p = vi**2 * g - vi * vj * (g * c + b * s)
    q = -(vi**2) * b - vi * vj * (g * s - b * c)
    return p, q, jnp.zeros(14, v.dtype).at[_FROM].add(p).at[_TO].add(-p)


@REALISTIC.add(_uniform(0.05, 0.15, 6), _uniform(1.4, 2.3, 6), argnums=(0, 1))
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


@REALISTIC.add(_normal(8, 5), _normal(5), _normal(40, 8), argnums=(0, 1))
def softmax_losses(w: Array, b: Array, x: Array) -> Array:
    """The loss of each datum of softmax regression."""
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), _LABEL[:, None], 1)[:, 0]
