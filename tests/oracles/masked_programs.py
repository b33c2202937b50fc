"""Random programs with selects whose unselected case is infinite or NaN."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Step = Callable[[list[jax.Array], jax.Array, jax.Array], jax.Array]

SINGULAR: list[Callable[[jax.Array], jax.Array]] = [
    jnp.sqrt, jnp.log, lambda y: 1 / y, lambda y: y**-1.5, lambda y: y**0.3,
    lambda y: jnp.log(jnp.sqrt(y)), lambda y: jnp.arctan2(y, y), lambda y: jnp.sin(y) / y,
]  # fmt: skip
"""Functions that are infinite or NaN at zero, or have such a derivative."""

SMOOTH: list[Callable[[jax.Array], jax.Array]] = [
    jnp.sin, jnp.tanh, lambda y: y * y, lambda y: y[::-1], lambda y: jnp.roll(y, 1),
    lambda y: jnp.pad(y[1:], (0, 1)), lambda y: jnp.concatenate([y[:1], y[:-1]]), jnp.cumsum,
    lambda y: y.reshape(-1, 1).T[0],
    lambda y: lax.dynamic_slice(jnp.concatenate([y, y]), (1,), (y.size,)),
    lambda y: y * y.sum(), lambda y: y.at[1].set(0.5), lambda y: jnp.sort(y),
]  # fmt: skip
"""Harmless functions of a vector."""


def random_masked_program(
    seed: int, size: int = 3, steps: int = 5
) -> tuple[Callable[[jax.Array], jax.Array], np.ndarray]:
    """A function of a vector some of whose entries are shut out by selects, and a point.

    Args:
      seed: of the program and the point.
      size: number of entries.
      steps: number of steps.
    """
    rng = np.random.default_rng(seed)
    on = rng.random(size) < 0.6
    x = np.where(on, rng.uniform(0.5, 2.0, size), 0.0)
    plan = [_step(rng, size, on) for _ in range(steps)]
    kept = rng.integers(1, steps + 2)

    def fun(x: jax.Array) -> jax.Array:
        values = [x]
        for step in plan:
            values.append(step(values, x, x > 0))
        return sum(values[kept:], values[-1])

    return fun, x


def _step(rng: np.random.Generator, size: int, on: np.ndarray) -> Step:
    kind = rng.choice(["safe", "safe", "smooth", "dot", "combine", "pairs", "cases", "between"])
    at = rng.random()

    def pick(values: list[jax.Array]) -> jax.Array:
        return values[int(at * len(values))]

    singular = SINGULAR[rng.integers(len(SINGULAR))]
    smooth = SMOOTH[rng.integers(len(SMOOTH))]
    matrix = jnp.asarray(rng.normal(size=(size, size)) * (rng.random((size, size)) < 0.7))
    inside = float(rng.choice([0.0, 0.0, 1.0]))
    one = int(rng.integers(size))
    return {
        "safe": lambda v, x, m: _safe(singular, pick(v) * jnp.sign(x), m, inside),
        "smooth": lambda v, x, m: smooth(pick(v)),
        "dot": lambda v, x, m: matrix @ pick(v),
        "combine": lambda v, x, m: pick(v) * v[-1] - v[0],
        "pairs": lambda v, x, m: _pairs(singular, pick(v), matrix, inside),
        "cases": lambda v, x, m: _cases(singular, pick(v), m, inside),
        "between": lambda v, x, m: _between(singular, smooth, pick(v) * x, m, one, inside),
    }[kind]


def _abs(y: jax.Array) -> jax.Array:
    return y * jnp.sign(y)


def _safe(singular: Callable, y: jax.Array, on: jax.Array, inside: float) -> jax.Array:
    """The singular function where `on`, of what is not zero there; zero elsewhere."""
    on = on & (y != 0)
    return jnp.where(on, singular(_abs(jnp.where(on, y, inside))), 0.0)


def _pairs(singular: Callable, y: jax.Array, matrix: jax.Array, inside: float) -> jax.Array:
    """A sum over pairs, of which those on the diagonal and with the same entry are shut out."""
    return (matrix * _safe(singular, y[:, None] - y[None], y[:, None] != y[None], inside)).sum(1)


def _cases(singular: Callable, y: jax.Array, on: jax.Array, inside: float) -> jax.Array:
    """One of three cases, the last one singular."""
    case = jnp.where(on & (y != 0), jnp.where(y > 1, 1, 2), 0)
    last = jnp.where(case == 2, y, inside)
    return lax.select_n(case.astype(jnp.int32), y * 0.5, jnp.sin(y), singular(_abs(last)))


def _between(
    singular: Callable, smooth: Callable, y: jax.Array, on: jax.Array, one: int, inside: float
) -> jax.Array:
    """All or nothing, by one entry: everything between the two selects may mix entries."""
    all_on = on[one]
    z = jnp.where(all_on, y, inside)
    return jnp.where(all_on, smooth(_safe(singular, z, on, 0.0)), lax.stop_gradient(y))
