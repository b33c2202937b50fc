"""Functions that are one loop, beside those of `realistic`, to which predicted times are fitted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_RNG = np.random.default_rng(23)
_MIXING = _RNG.uniform(0.0, 0.2, (12, 12)).astype(np.float32)
_STIFFNESS = 6 * np.eye(12) + 0.3 * np.eye(12, k=1) + 0.3 * np.eye(12, k=-1)


def _normal(*shape: int) -> Array:
    return jnp.asarray(0.5 * _RNG.standard_normal(shape), jnp.float32)


def recurrent(weights: Array, inputs: Array) -> Array:
    """The last state of a recurrent layer of ten units, by its 240 weights."""
    own, fed = weights[:100].reshape(10, 10), weights[100:].reshape(14, 10)

    def step(state: Array, x: Array) -> tuple[Array, None]:
        return jnp.tanh(state @ own + x @ fed), None

    return jax.lax.scan(step, jnp.zeros(10, weights.dtype), inputs)[0]


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


def volatility(parameters: Array, returns: Array) -> Array:
    """Log-likelihoods of returns under changing variance, by its four parameters."""
    base, shock, leverage, kept = jax.nn.softplus(parameters)
    kept = kept / (1 + kept)

    def step(variance: Array, r: Array) -> tuple[Array, Array]:
        variance = base + (shock + leverage * (r < 0)) * r**2 + kept * variance
        return variance, -0.5 * (jnp.log(variance) + r**2 / variance)

    return jax.lax.scan(step, jnp.mean(returns**2), returns)[1]


def infected(rates: Array) -> Array:
    """Infected in twelve towns after thirty days, by a rate for each town."""

    def step(state: Array, _: None) -> tuple[Array, None]:
        healthy, ill = state
        caught = healthy * (1 - jnp.exp(-rates * (jnp.asarray(_MIXING) @ ill)))
        return jnp.stack([healthy - caught, 0.9 * ill + caught]), None

    start = jnp.stack([jnp.full(12, 0.99), jnp.full(12, 0.01)]).astype(rates.dtype)
    return jax.lax.scan(step, start, None, length=30)[0][1]


def turned(rates: Array, bias: Array) -> Array:
    """Directions of a gyroscope's axes at the end of twenty turns, by rates and bias."""

    def step(axes: Array, rate: Array) -> tuple[Array, None]:
        x, y, z = 0.1 * (rate + bias)
        zero = jnp.zeros_like(x)
        turn = jnp.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]])
        return axes @ (jnp.eye(3) + turn + 0.5 * turn @ turn), None

    return jax.lax.scan(step, jnp.eye(3, dtype=rates.dtype), rates)[0]


def sorted_steps(start: Array) -> Array:
    """Sixteen particles on a line that are pushed apart, in order, ten times."""

    def step(places: Array, _: None) -> tuple[Array, None]:
        places = jnp.sort(places)
        gaps = jnp.diff(places, prepend=places[:1] - 1.0, append=places[-1:] + 1.0)
        return places + 0.1 * (jnp.tanh(gaps[:-1]) - jnp.tanh(gaps[1:])), None

    return jax.lax.scan(step, start, None, length=10)[0]


LOOPS = {
    "recurrent": (recurrent, (_normal(240), _normal(16, 14)), 0),
    "tracked": (tracked, (_normal(6), _normal(15, 2)), 0),
    "conjugate_gradients": (conjugate_gradients, (_normal(12) ** 2, _normal(12)), (0, 1)),
    "volatility": (volatility, (_normal(4), _normal(40)), 0),
    "infected": (infected, (_normal(12) ** 2,), 0),
    "turned": (turned, (_normal(20, 3), _normal(3)), (0, 1)),
    "sorted_steps": (sorted_steps, (_normal(16),), 0),
}
