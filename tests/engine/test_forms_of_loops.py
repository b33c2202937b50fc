"""Loops of many steps, few parameters and few results: what JAX's forward mode takes, or less."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same
from tests.sampling import spared

pytestmark = pytest.mark.kernels
GRID = np.linspace(0.5, 1.5, 201)


def price(m):
    """An option by finite differences."""

    def tick(v, _):
        up, down = jnp.roll(v, -1), jnp.roll(v, 1)
        return v + m[1] * (up - 2 * v + down) + m[2] * (up - down) - m[3] * v, None

    return jax.lax.scan(tick, jnp.maximum(m[0] - GRID, 0.0), None, length=200)[0][100]


def heat(m):
    """Heat in a rod, at two places."""

    def tick(u, _):
        around = jnp.concatenate([u[1:], m[:1]]) + jnp.concatenate([m[1:2], u[:-1]])
        return u + m[2] * (around - 2 * u) + m[3] * jnp.tanh(u) + m[4], None

    return jax.lax.scan(tick, jnp.sin(3 * GRID), None, length=150)[0][jnp.array([50, 120])]


def tree(m):
    """A bond on a lattice of rates, from the end of its life."""

    def back(v, k):
        rate = m[0] * jnp.exp(m[1] * (2 * jnp.arange(101.0) - k))
        return (m[2] * jnp.roll(v, -1) + (1 - m[2]) * v) / (1 + rate), None

    return jax.lax.scan(back, jnp.ones(101), jnp.arange(99.0, -1.0, -1.0))[0][0]


def american(m):
    """A put that may be exercised early, on a tree of 50 steps."""
    up = jnp.exp(m[2] * jnp.sqrt(1 / 50))
    chance = (jnp.exp(m[1] / 50) - 1 / up) / (up - 1 / up)
    spots = m[0] * up ** (2 * jnp.arange(51.0) - 50)

    def back(v, _):
        held = jnp.exp(-m[1] / 50) * (chance * jnp.roll(v, -1) + (1 - chance) * v)
        return jnp.maximum(held, m[3] - spots), None

    return jax.lax.scan(back, jnp.maximum(m[3] - spots, 0), None, length=50)[0][25]


FUNCTIONS = {
    "american": (american, np.array([1.0, 0.05, 0.3, 1.0])),
    "price": (price, np.array([1.0, 0.2, 0.01, 1e-4])),
    "heat": (heat, np.array([0.1, 0.3, 0.2, 1e-3, 1e-3])),
    "tree": (tree, np.array([0.02, 0.01, 0.5])),
}


@pytest.mark.parametrize("name", spared(FUNCTIONS, "american", "tree"))
def test_forward_mode_takes_the_place_of_a_long_tape(x64, name):
    fun, at = FUNCTIONS[name]
    points = np.stack([at * (1 + 0.01 * k) for k in range(64)])
    jacobian, forward = (jax.vmap(f(fun)) for f in (veenv.jacve, jax.jacfwd))
    assert_compiled_same([(jacobian, forward)], points)
    taken, wanted = (jax.jit(f).lower(points).compile() for f in (jacobian, forward))
    used = [x.memory_analysis().temp_size_in_bytes for x in (taken, wanted)]
    assert used[0] <= 2 * used[1]


@pytest.mark.parametrize("fun", [american, lambda m: american(m) * m[3]])
def test_a_tape_is_counted_before_one_mode_becomes_the_kernel(fun):
    """Fewer operations are no less time where each of them is written and read again."""
    explained = veenv.explain(fun, jnp.array([1.0, 0.05, 0.3, 1.0]), batch=64)
    assert [row.label for row in explained.rows if row.taken] == ["jacfwd, kernel"]


def test_a_single_loop_with_a_tape_is_compared_at_one_point():
    for fun, at in (FUNCTIONS["tree"], (lambda m: tree(m) ** 2, FUNCTIONS["tree"][1])):
        rows = veenv.explain(fun, at.astype(np.float32), batch=1).rows
        assert [row.form for row in rows if row.taken] == ["jacfwd"]
