"""The problems of `scripts/benchmark.py sparse`, small: stored entries are those that there are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from scripts.benchmarks.functions import sparse_problems
from tests.oracles.jacobians import quick_jit

SIZES = {
    "hexahedra": 2, "shell": 5, "poses_3d": 8, "rod": 12, "network": 20, "time_steps": 12,
    "attention": 12, "upwind": 12, "phases": 4, "pipes": 8,
}  # fmt: skip
SLOW = {"hexahedra", "shell", "poses_3d", "rod", "attention", "upwind"}
NAMES = [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in SIZES]


@pytest.mark.parametrize("name", NAMES)
def test_problems(name: str, x64):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        fun, size = getattr(sparse_problems, name)(SIZES[name])
        rng, there = np.random.default_rng(0), False
        dense = quick_jit(jax.jacfwd(fun))
        for _ in range(12):
            x = jnp.asarray(rng.uniform(0.5, 1.5, size) * rng.choice([-1, 1], size))
            expected = np.asarray(dense(x))
            there |= np.abs(expected) > 1e-13 * np.abs(expected).max()
        found = quick_jit(veenv.jacve(fun, sparse_representation=True))(x)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-11 * np.abs(expected).max())
        assert there.sum() <= found.nse <= there.sum()
