"""Functions of rising size, to measure how methods scale.

Each family is one function of `veenv.tasks.hard` at about 100, 200, … 3,200 scalar vertices.
"""

from __future__ import annotations

import numpy as np

from veenv.tasks.bodies import chain_steps
from veenv.tasks.estimates import smoothed
from veenv.tasks.task import Task

VERTICES = (100, 200, 400, 800, 1600, 3200)
"""Approximate numbers of vertices of a family's members."""
MASSES = (2, 3, 7, 15, 31, 62)
MEASUREMENTS = (2, 3, 5, 11, 22, 43)


def _chain(vertices: int, masses: int) -> Task:
    """Simulates masses on springs."""
    point = np.random.default_rng(masses).normal(0.0, 0.5, 2 * masses)
    return Task.at(
        f"SpringChain_{vertices}",
        chain_steps,
        (*point, 0.25, 0.7),
        f"Four leapfrog steps of a chain of {masses} nonlinear springs.",
        "Fermi, Pasta, Ulam, Los Alamos report LA-1940 (1955)",
    )


def _smoother(vertices: int, seen: int) -> Task:
    """Smooths measurements of a position."""
    place = np.linspace(0.1, 0.3 * seen, seen) + np.random.default_rng(seen).normal(0, 0.1, seen)
    return Task.at(
        f"Smoother_{vertices}",
        smoothed,
        (*place, 0.3, 0.2, 0.5, 0.05, 0.4),
        f"Rauch-Tung-Striebel smoother of {seen} measurements.",
        "Rauch, Tung, Striebel, AIAA J. 3 (1965) 1445",
    )


TASKS = (
    *map(_chain, VERTICES, MASSES),
    *map(_smoother, VERTICES, MEASUREMENTS),
)
