"""Energies, forces and steps of jax-md: pair and many-body potentials in a periodic box."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.ecosystem.check import jacobian_test, library, usual_promotion
from tests.engine.corpus.case import case, normal

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
library("jax_md")
from jax_md import energy, quantity, simulate, space

BOX = 4.0
DISPLACEMENT, SHIFT = space.periodic(BOX)
GRID = np.array([[0.5, 0.6], [1.7, 0.7], [2.9, 0.5], [0.6, 1.8], [1.8, 1.9], [3.0, 1.7]])
R = GRID + 0.1 * normal(6, 2)


def _pair(make, **options):
    """A pair potential, by the positions."""
    return lambda r: make(DISPLACEMENT, **options)(r)


def _forces(r):
    return quantity.force(energy.morse_pair(DISPLACEMENT, epsilon=0.5))(r)


def _bonds(r, length):
    bonds = jnp.array([[0, 1], [1, 2], [3, 4]])
    return energy.simple_spring_bond(DISPLACEMENT, bonds, length=length)(r)


def _steps(r):
    """Two steps of molecular dynamics at constant energy."""
    init, step = simulate.nve(energy.soft_sphere_pair(DISPLACEMENT, sigma=1.5), SHIFT, 1e-2)
    state = init(jax.random.key(0), r, kT=0.3)
    return jax.lax.fori_loop(0, 2, lambda _, s: step(s), state).position


@functools.cache
def _listed():
    """The neighbours of the grid's particles, and the energy over a list of neighbours."""
    find, fun = energy.lennard_jones_neighbor_list(
        DISPLACEMENT, BOX, r_cutoff=1.8, r_onset=1.2, dr_threshold=0.1
    )
    return find.allocate(R), fun


def _neighbours(r):
    neighbours, fun = _listed()
    return fun(r, neighbor=neighbours)


CASES = [
    case("lennard_jones", _pair(energy.lennard_jones_pair), R),
    case("morse", _pair(energy.morse_pair, epsilon=0.5, per_particle=True), R),
    case("bonds", _bonds, R, np.asarray(0.9), argnums=(0, 1)),
    case("forces", _forces, R), case("neighbour_list", _neighbours, R),
    case("constant_energy_steps", _steps, R),
]  # fmt: skip


@pytest.fixture(autouse=True)
def listed(x64):
    """The list is made of values, outside of what is compiled."""
    with usual_promotion():
        _listed()


test_jacobian = pytest.mark.filterwarnings("ignore")(jacobian_test(CASES))
