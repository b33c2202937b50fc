"""Random programs with custom rules and sparse matrices against patterns written by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import quick_jit
from tests.oracles.patterns import points, written
from tests.sampling import spared

FULL = 0.95
"""A Jacobian of which so much can be there is stored as a dense one."""


SEEDS = [(5, 7, 10, 14, 16, 19, 23, 34, 57), *(range(n, n + 20) for n in range(0, 320, 20))]
"""Of some brief programs, and of three hundred."""


@pytest.mark.parametrize("seeds", spared(SEEDS, SEEDS[0]))
def test_patterns_of_random_programs(seeds, x64):
    programs = {seed: written(seed) for seed in seeds}

    def both(fun, x):
        return veenv.jacve(fun, sparse_representation=True)(x[0]), lax.map(jax.jacrev(fun), x)

    every = quick_jit(lambda x: {seed: both(p.fun, x) for seed, p in programs.items()})
    for seed, (found, expected) in every(points(seeds[0])).items():
        says = f"program {seed}: {', '.join(programs[seed].names)}"
        there, scale = programs[seed].there, 1 + np.abs(expected).max()
        assert not (np.abs(expected) > 0).any(axis=0)[~there].any(), says
        dense = np.asarray(found.todense())
        np.testing.assert_allclose(dense / scale, expected[0] / scale, atol=1e-11, err_msg=says)
        most = there.size if there.mean() >= FULL else there.sum()
        if {"sorted", "masked"} <= {*programs[seed].names}:
            most = there.size  # what a mask takes from entries at computed places stays, as zeros
        stored = sum(_entries(term) for term in found.terms)
        assert stored <= most, f"{says}: {stored} stored, {there.sum()} can be there"


def _entries(term) -> int:
    """How many a summand has; where their places are computed, some may have none."""
    places = np.stack(term.traced_coordinates())
    return len(np.unique(places[:, (places >= 0).all(axis=0)], axis=1).T)
