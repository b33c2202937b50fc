"""Random sparse programs against JAX's dense Jacobians, compiled, in batches and differentiated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import quick_jit
from tests.oracles.sparse_programs import point, program
from tests.sampling import spared

ORDERS = ("reverse", "forward", "markowitz")
SEEDS = [(0, 4, 8), *(range(first, first + 10) for first in range(0, 1000, 10))]
"""One alone, one in a batch and one differentiated, each in another order; all, ten by ten."""


def _everything(seed, fun, x, at):
    """(found, expected) of one program: as it is, in a batch, or the gradient of its square."""
    order = ORDERS[seed // 3 % 3]
    sparse = veenv.jacve(fun, order, sparse_representation=True)
    dense = lambda x, at: sparse(x, at).todense()  # noqa: E731

    def square(jacobian):
        return lambda x: jnp.sum(jacobian(x, at[0]) ** 2)

    if seed % 3 == 0:
        return dense(x[0], at[0]), jax.jacrev(fun)(x[0], at[0])
    if seed % 3 == 1:
        return jax.vmap(sparse)(x, at).todense(), jax.vmap(jax.jacrev(fun))(x, at)
    return jax.grad(square(dense))(x[0]), jax.grad(square(jax.jacfwd(fun)))(x[0])


@pytest.mark.parametrize("seeds", spared(SEEDS, SEEDS[0]))
def test_random_programs(seeds, x64):
    points, funs = {seed: point(seed) for seed in seeds}, {seed: program(seed) for seed in seeds}
    every = quick_jit(lambda points: {s: _everything(s, funs[s], *points[s]) for s in seeds})
    results = every(points)
    for seed, (found, expected) in results.items():
        scale = 1 + np.abs(expected).max()
        np.testing.assert_allclose(
            found / scale, expected / scale, rtol=0, atol=1e-11, err_msg=f"program {seed}"
        )
