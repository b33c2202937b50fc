"""Functions of one point that compute the same at quadrature points, intervals or joints inside."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scripts.benchmarks.functions.case import Cases, Draws
from scripts.benchmarks.functions.case import cart_pole as rates

POINTS = Cases()
_normal = Draws(43, 0.1).normal
_CORNERS = np.array([*itertools.product((-1, 1), repeat=3)], np.float32)
_SIDES = np.array([*itertools.product((-1, 1), repeat=2)], np.float32)
_GAUSS = _CORNERS / np.float32(np.sqrt(3))
_LINE = np.arange(16, dtype=np.float32)[:, None] * np.array([1, 0.2, 0], np.float32)


def _inverse(f: Any) -> tuple[Array, Array]:
    """The inverse of a 3 × 3 matrix, and its determinant."""
    rows = jnp.stack([jnp.cross(f[1], f[2]), jnp.cross(f[2], f[0]), jnp.cross(f[0], f[1])])
    volume = f[0] @ rows[0]
    return rows.T / volume, volume


@POINTS.add(_normal(8, 3), _CORNERS + _normal(8, 3))
def hexahedron(shifts: Array, corners: Array) -> Array:
    """Forces at the corners of a block of Neo-Hooke's material, by eight quadrature points."""

    def at(place: Any) -> Array:
        x, y, z = (1 + _CORNERS * place).T
        slopes = _CORNERS / 8 * jnp.stack([y * z, x * z, x * y], 1)
        inverse, volume = _inverse(slopes.T @ corners)
        slopes = slopes @ inverse.T
        f = jnp.eye(3, dtype=shifts.dtype) + shifts.T @ slopes
        back, ratio = _inverse(f)
        stress = f - back.T + 1.5 * jnp.log(ratio) * back.T
        return volume * slopes @ stress.T

    return jax.vmap(at)(_GAUSS).sum(0)


@POINTS.add(_normal(4, 5), _SIDES + _normal(4, 2))
def shell(shifts: Array, corners: Array) -> Array:
    """Forces of a flat shell of four corners, five motions each, by eight points in two layers."""

    def energy(shifts: Array) -> Array:
        def at(place: Any) -> Array:
            ones = 1 + _SIDES * place[:2]
            values, slopes = ones[:, 0] * ones[:, 1] / 4, _SIDES * ones[:, ::-1] / 4
            (a, b), (c, d) = slopes.T @ corners
            volume = a * d - b * c
            slopes = slopes @ (jnp.array([[d, -c], [-b, a]]) / volume)
            along = (shifts[:, :2] + 0.05 * place[2] * shifts[:, 3:]).T @ slopes
            over = shifts[:, 2] @ slopes
            strain = 0.5 * (along + along.T + jnp.outer(over, over) + along.T @ along)
            shear = values @ shifts[:, 3:] + over
            bulk = (strain[0, 0] + strain[1, 1]) ** 2
            return volume * (0.3 * bulk + 0.7 * jnp.sum(strain**2) + 0.3 * shear @ shear)

        return jax.vmap(at)(_GAUSS).sum()

    return jax.grad(energy)(shifts)


@POINTS.add(_normal(25, 4), _normal(25), argnums=(0, 1))
def collocation(states: Array, pushes: Array) -> Array:
    """Defects of 24 intervals of a cart with a pole, by Hermite-Simpson collocation."""

    def missing(before: Array, after: Array, push: Array, next_push: Array) -> Array:
        f, g = rates(before, push), rates(after, next_push)
        middle = 0.5 * (before + after) + 0.0125 * (f - g)
        return after - before - (f + 4 * rates(middle, 0.5 * (push + next_push)) + g) / 60

    return jax.vmap(missing)(states[:-1], states[1:], pushes[:-1], pushes[1:])


@POINTS.add(_LINE + _normal(16, 3), 1 + _normal(15))
def chain(places: Array, lengths: Array) -> Array:
    """Forces on sixteen joints of a chain that resists stretching and bending."""
    rods = places[1:] - places[:-1]

    def pull(rod: Array, length: Array) -> Array:
        now = jnp.sqrt(rod @ rod)
        return 10 * (now - length) / now * rod

    def energy(rod: Array, after: Array) -> Array:
        across = jnp.cross(rod, after)
        return 0.5 * jnp.arctan2(jnp.sqrt(across @ across + 1e-6), rod @ after) ** 2

    pulls = jax.vmap(pull)(rods, lengths)
    first, second = jax.vmap(jax.grad(energy, (0, 1)))(rods[:-1], rods[1:])
    pulls = pulls.at[:-1].add(first).at[1:].add(second)
    return jnp.zeros_like(places).at[:-1].add(pulls).at[1:].add(-pulls)
