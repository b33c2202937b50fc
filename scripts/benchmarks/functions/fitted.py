"""Functions to which predicted times are fitted, beside those of `realistic`.

Machines, meshes and prices; layers and losses; and functions that are one loop.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from scripts.benchmarks.functions.case import Cases, Draws

FITTED = Cases()
_DRAWN = Draws(37)
_RNG, _normal, _uniform = _DRAWN.rng, _DRAWN.normal, _DRAWN.uniform

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
_FLAT = jnp.array([1.0, 0, 0, 0, 1.0, 0, 0, 0])
_MESSAGES = _RNG.integers(0, 10, (30, 2))
_FEATURES = (0.5 * _RNG.standard_normal((50, 8))).astype(np.float32)
_LABELS = np.where(_RNG.standard_normal(50) > 0, 1.0, -1.0).astype(np.float32)
_DICTIONARY = (0.5 * _RNG.standard_normal((12, 20))).astype(np.float32)
_GRAPH = (_normal(10, 6), _normal(12, 8), _normal(14, 6), _normal(8))
_MIXING = _RNG.uniform(0.0, 0.2, (12, 12)).astype(np.float32)
_STIFFNESS = 6 * np.eye(12) + 0.3 * np.eye(12, k=1) + 0.3 * np.eye(12, k=-1)


@FITTED.add(_normal(13) + jnp.eye(13)[3], _uniform(0.5, 2, 4), argnums=(0, 1))
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
    lost, rolled = -x * p - y * q - z * r, w * p + y * r - z * q
    turn = 0.5 * jnp.stack([lost, rolled, w * q - x * r + z * p, w * r + x * q - y * p])
    spun = (torque - jnp.cross(spin, inertia * spin)) / inertia
    return jnp.concatenate([velocity, turn, force, spun])


@FITTED.add(3 * _normal(24, 2), _normal(24, 2), argnums=(0, 1))
def spring_network(x: Array, v: Array) -> Array:
    """Forces on nodes that springs and dampers join."""
    i, j = _SPRINGS.T
    apart = x[j] - x[i]
    length = jnp.sqrt(jnp.sum(apart * apart, -1) + 1e-6)
    force = (3.0 * (length - 1.0) / length)[:, None] * apart + 0.1 * (v[j] - v[i])
    return jnp.zeros_like(x).at[i].add(force).at[j].add(-force)


@FITTED.add(jnp.asarray(_GRID, "f4") + 0.1 * _normal(25, 2))
def elastic_mesh(x: Array) -> Array:
    """Forces on the nodes of a mesh of neo-Hookean triangles: a gradient."""

    def energy(x: Array) -> Array:
        deformed = jnp.swapaxes(x[_TRIANGLES[:, 1:]] - x[_TRIANGLES[:, :1]], 1, 2)
        gradient = deformed @ _UNDEFORMED
        area = gradient[:, 0, 0] * gradient[:, 1, 1] - gradient[:, 0, 1] * gradient[:, 1, 0]
        log = jnp.log(area)
        return jnp.sum(0.5 * (jnp.sum(gradient**2, (1, 2)) - 2) - log + 0.5 * log**2)

    return jax.grad(energy)(x)


@FITTED.add(_normal(6))
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


@FITTED.add(_normal(15, 4), _normal(15), argnums=(0, 1))
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


@FITTED.add(_uniform(0, 1, 20), _uniform(0.1, 1, 20), argnums=(0, 1))
def implicit_diffusion(u: Array, conductivity: Array) -> Array:
    """An implicit step of a reaction with diffusion: a tridiagonal system."""
    k, none = 0.5 * (conductivity[1:] + conductivity[:-1]), jnp.zeros(1)
    low, up = jnp.concatenate([none, -k]), jnp.concatenate([-k, none])
    right = u + 0.1 * u * (1 - u)
    return lax.linalg.tridiagonal_solve(low, 1 - low - up, up, right[:, None])[:, 0]


@FITTED.add(_normal(3), _normal(60))
def moving_average(parameters: Array, seen: Array) -> Array:
    """Residuals of a series with one autoregressive and one moving-average term."""

    def step(before: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], Array]:
        value, error = before
        error = now - parameters[0] - parameters[1] * value - parameters[2] * error
        return (now, error), error

    start = jnp.zeros((), seen.dtype)
    return lax.scan(step, (start, start), seen)[1]


@FITTED.add(_normal(12, 6), _normal(12, 6))
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


@FITTED.add(_normal(32))
def kuramoto_sivashinsky(u: Array) -> Array:
    """Rates of a flame front, by Fourier's transform."""
    wave = jnp.fft.rfftfreq(u.size, 1 / u.size) * (2 * np.pi / 16)
    linear = (wave**2 - wave**4) * jnp.fft.rfft(u)
    return jnp.fft.irfft(linear - 0.5j * wave * jnp.fft.rfft(u * u), u.size)


@FITTED.add(_normal(16))
def viscous_steps(u: Array) -> Array:
    """Twenty steps of Burgers' equation on a ring, a `fori_loop`."""

    def rates(u: Array) -> Array:
        left, right = jnp.roll(u, 1), jnp.roll(u, -1)
        return -8 * u * (right - left) + 3.2 * (right - 2 * u + left)

    def step(_: int, u: Array) -> Array:
        first = rates(u)
        return u + 5e-4 * (first + rates(u + 1e-3 * first))

    return lax.fori_loop(0, 20, step, u)


@FITTED.add(0.1 * _normal(40, 6), _normal(6), argnums=1)
def wealth(returns: Array, weights: Array) -> Array:
    """Logarithms of what a portfolio has grown to, day by day."""
    return jnp.log(jnp.cumprod(1 + returns @ weights)) - jnp.sum(weights)


@FITTED.add(_uniform(0.1, 1, 9), _uniform(0.5, 2, 20), jnp.float32(0.3), argnums=(0, 1))
def metabolism(concentration: Array, rate: Array, half: Array) -> Array:
    """Rates of nine species in twenty reactions with saturation."""
    order = jnp.maximum(-_STOICHIOMETRY, 0)
    share = concentration / (half + concentration)
    return jnp.asarray(_STOICHIOMETRY) @ (rate * jnp.prod(share[:, None] ** order, 0))


@FITTED.add(_uniform(0.1, 1, 20), _normal(20), _normal(20, 20), argnums=(0, 1))
def food_web(x: Array, growth: Array, interaction: Array) -> Array:
    """Rates of twenty species that eat each other."""
    return x * (growth + interaction @ x)


@FITTED.add(_FLAT + 0.2 * _normal(8), _normal(30, 2))
def homography(h: Array, points: Array) -> Array:
    """Points under a projective map."""
    seen = jnp.concatenate([points, jnp.ones((len(points), 1))], 1)
    image = seen @ jnp.append(h, 1.0).reshape(3, 3).T
    return image[:, :2] / image[:, 2:]


@FITTED.add(jnp.array([1.5, 0.04, 0.3, -0.7, 0.05]), jnp.linspace(0.1, 8, 16))
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


@FITTED.add(jnp.array([1.2, 0.3, 0.5, 0.2, 0.7, 1.1]))
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


@FITTED.add(*_GRAPH, name="message_state")
@FITTED.add(*_GRAPH, argnums=(1, 2, 3), name="message_params")
def message_passing(nodes: Array, message: Array, update: Array, bias: Array) -> Array:
    """A layer of a graph network."""
    sender, receiver = _MESSAGES.T
    sent = jnp.tanh(jnp.concatenate([nodes[sender], nodes[receiver]], -1) @ message + bias)
    received = jax.ops.segment_sum(sent, receiver, 10)
    return nodes + jax.nn.silu(jnp.concatenate([nodes, received], -1) @ update)


@FITTED.add(
    _normal(16), 1 + _normal(16), _normal(16), _normal(32, 16), _normal(16, 32),
    argnums=(1, 2, 3, 4), name="residual_params",
)  # fmt: skip
def residual_block(x: Array, scale: Array, shift: Array, wide: Array, narrow: Array) -> Array:
    """A normalised layer of a transformer, with its residual."""
    apart = x - x.mean()
    normal = scale * apart / jnp.sqrt((apart**2).mean() + 1e-5) + shift
    return x + narrow @ jax.nn.gelu(wide @ normal)


@FITTED.add(_normal(8))
def logistic_gradient(w: Array) -> Array:
    """The gradient of the loss of logistic regression; its Jacobian is the loss's Hessian."""

    def loss(w: Array) -> Array:
        return jnp.mean(jnp.logaddexp(0.0, -_LABELS * (_FEATURES @ w))) + 0.01 * w @ w

    return jax.grad(loss)(w)


@FITTED.add(_normal(12), _uniform(0.1, 0.3, 20), argnums=(0, 1))
def sparse_code(signal: Array, penalty: Array) -> Array:
    """Ten steps of iterative shrinkage."""
    code = jnp.zeros(20)
    for _ in range(10):
        moved = code + 0.05 * _DICTIONARY.T @ (signal - _DICTIONARY @ code)
        code = jnp.sign(moved) * jax.nn.relu(jnp.abs(moved) - 0.05 * penalty)
    return code


@FITTED.add(_normal(16))
def equilibrium(weights: Array) -> Array:
    """A layer's fixed point after five steps of Newton's method."""
    x, coupling = jnp.zeros(4), 0.2 * weights.reshape(4, 4)
    for _ in range(5):
        value = jnp.tanh(coupling @ x + 1.0)
        x = x - jnp.linalg.solve(jnp.eye(4) - (1 - value**2)[:, None] * coupling, x - value)
    return x


@FITTED.add(_normal(24))
def soft_ranks(scores: Array) -> Array:
    """Ranks that can be differentiated."""
    return jnp.sum(jax.nn.sigmoid((scores[:, None] - scores) / 0.3), 1)


@FITTED.add(_normal(24, 3), _normal(3, 3, 8), _normal(3, 8, 2), argnums=(1, 2))
def temporal_convolution(x: Array, first: Array, second: Array) -> Array:
    """Two convolutions over time."""

    def over_time(x: Array, kernel: Array) -> Array:
        layout = ("NWC", "WIO", "NWC")
        found = lax.conv_general_dilated(x[None], kernel, (1,), "SAME", dimension_numbers=layout)
        return found[0]

    return over_time(jax.nn.relu(over_time(x, first)), second)[:, 0]


@FITTED.add(_normal(20), _normal(12), argnums=(0, 1))
def table_lookup(x: Array, values: Array) -> Array:
    """A table that is interpolated."""
    return jnp.interp(2 * jnp.sin(x), jnp.linspace(-2, 2, 12), values) * jnp.exp(-x)


@FITTED.add(_normal(240), _normal(16, 14))
def recurrent(weights: Array, inputs: Array) -> Array:
    """The last state of a recurrent layer of ten units, by its 240 weights."""
    own, fed = weights[:100].reshape(10, 10), weights[100:].reshape(14, 10)

    def step(state: Array, x: Array) -> tuple[Array, None]:
        return jnp.tanh(state @ own + x @ fed), None

    return jax.lax.scan(step, jnp.zeros(10, weights.dtype), inputs)[0]


@FITTED.add(_normal(6), _normal(15, 2))
def tracked(noise: Array, seen: Array) -> Array:
    """States of a Kalman filter of four numbers, by the logarithms of its noises."""
    move = jnp.eye(4) + 0.1 * jnp.eye(4, k=2)
    look = jnp.eye(2, 4)
    moved, looked = jnp.diag(jnp.exp(noise[:4])), jnp.diag(jnp.exp(noise[4:]))

    def step(state: tuple[Array, Array], y: Array) -> tuple[tuple[Array, Array], Array]:
        mean, spread = state
        mean, spread = move @ mean, move @ spread @ move.T + moved
        seen = look @ spread @ look.T + looked
        (a, b), (c, d) = seen
        inverse = jnp.array([[d, -b], [-c, a]]) / (a * d - b * c)
        gain = spread @ look.T @ inverse
        mean = mean + gain @ (y - look @ mean)
        return (mean, spread - gain @ look @ spread), mean

    return jax.lax.scan(step, (jnp.zeros(4), jnp.eye(4)), seen)[1]


@FITTED.add(_normal(12) ** 2, _normal(12), argnums=(0, 1))
def conjugate_gradients(stiffness: Array, load: Array) -> Array:
    """A linear system of twelve unknowns after eight steps, by the diagonal of its matrix."""
    matrix = jnp.asarray(_STIFFNESS, stiffness.dtype) + jnp.diag(stiffness)

    def step(_: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, residual, direction, square = state
        pushed = matrix @ direction
        length = square / (direction @ pushed)
        x, residual = x + length * direction, residual - length * pushed
        after = residual @ residual
        return x, residual, residual + after / square * direction, after

    return jax.lax.fori_loop(0, 8, step, (jnp.zeros_like(load), load, load, load @ load))[0]


@FITTED.add(_normal(4), _normal(40))
def volatility(parameters: Array, returns: Array) -> Array:
    """Log-likelihoods of returns under changing variance, by its four parameters."""
    base, shock, leverage, kept = jax.nn.softplus(parameters)
    kept = kept / (1 + kept)

    def step(variance: Array, r: Array) -> tuple[Array, Array]:
        variance = base + (shock + leverage * (r < 0)) * r**2 + kept * variance
        return variance, -0.5 * (jnp.log(variance) + r**2 / variance)

    return jax.lax.scan(step, jnp.mean(returns**2), returns)[1]


@FITTED.add(_normal(12) ** 2)
def infected(rates: Array) -> Array:
    """Infected in twelve towns after thirty days, by a rate for each town."""

    def step(state: Array, _: None) -> tuple[Array, None]:
        healthy, ill = state
        caught = healthy * (1 - jnp.exp(-rates * (jnp.asarray(_MIXING) @ ill)))
        return jnp.stack([healthy - caught, 0.9 * ill + caught]), None

    start = jnp.stack([jnp.full(12, 0.99), jnp.full(12, 0.01)]).astype(rates.dtype)
    return jax.lax.scan(step, start, None, length=30)[0][1]


@FITTED.add(_normal(20, 3), _normal(3), argnums=(0, 1))
def turned(rates: Array, bias: Array) -> Array:
    """Directions of a gyroscope's axes at the end of twenty turns, by rates and bias."""

    def step(axes: Array, rate: Array) -> tuple[Array, None]:
        x, y, z = 0.1 * (rate + bias)
        zero = jnp.zeros_like(x)
        turn = jnp.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]])
        return axes @ (jnp.eye(3) + turn + 0.5 * turn @ turn), None

    return jax.lax.scan(step, jnp.eye(3, dtype=rates.dtype), rates)[0]


@FITTED.add(_normal(16))
def sorted_steps(start: Array) -> Array:
    """Sixteen particles on a line that are pushed apart, in order, ten times."""

    def step(places: Array, _: None) -> tuple[Array, None]:
        places = jnp.sort(places)
        gaps = jnp.diff(places, prepend=places[:1] - 1.0, append=places[-1:] + 1.0)
        return places + 0.1 * (jnp.tanh(gaps[:-1]) - jnp.tanh(gaps[1:])), None

    return jax.lax.scan(step, start, None, length=10)[0]
