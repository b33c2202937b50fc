"""Axes of arrays in the bodies of loops, and of indices that are arguments: results are JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernel.test_loops import assert_equal, num_loops
from tests.kernel.test_rerolling import assert_loops, normal
from tests.kernel.test_rerolling import loops_are_tried as loops_are_tried
from tests.oracles.jacobians import assert_same
from veenv.kernel.building import builder
from veenv.kernel.fusing import fuse

pytestmark = pytest.mark.usefixtures("x64")

RNG = np.random.default_rng(5)


def products(m):
    return jax.lax.scan(lambda m, _: (jnp.sin(m @ m / 2), None), m, None, length=70)[0]


def trained(weights, bias, x, y):
    """Weights of a layer after some steps of gradient descent, and the losses on the way."""

    def loss(w):
        return jnp.mean((jnp.tanh(x @ w[0] + w[1]).sum(1) - y) ** 2)

    def step(w, _):
        value, slopes = jax.value_and_grad(loss)(w)
        return jax.tree.map(lambda p, q: p - 0.1 * q, w, slopes), value

    return jax.lax.scan(step, (weights, bias), None, length=80)


def iterated(m):
    """The largest eigenvalue, by a number of steps that depends on the point."""
    m = m + m.T

    def ahead(carry):
        v, _, k = carry
        new = m @ (m @ v)
        return new / jnp.sqrt(new @ new), v, k + 1

    def moves(carry):
        v, old, k = carry
        return (jnp.sum((v - old) ** 2) > 1e-6) & (k < 30)

    start = jnp.ones(len(m)) / len(m), jnp.zeros(len(m)), 0
    v, _, steps = jax.lax.while_loop(moves, ahead, start)
    return v @ m @ v, steps


@pytest.mark.parametrize(
    ("f", "shapes", "longest"),
    [
        (products, [(10, 10)], 900),
        (trained, [(3, 6), (6,), (14, 3), (14,)], 800),
        (iterated, [(16, 16)], 500),
    ],
)
def test_a_long_body_has_loops_over_axes(monkeypatch, f, shapes, longest):
    monkeypatch.setattr(builder, "_LONGEST", longest)
    program = assert_equal(f, *(normal(*shape) / 2 for shape in shapes))
    bodies = [op.attr.body for op in program.ops if op.name == "loop"]
    assert any(map(num_loops, bodies))


def forces(x, near):
    """Energy and forces of particles, each of which has a list of others."""

    def energy(x):
        apart = x[near] - x[:, None]
        square = jnp.sum(apart * apart, -1) + 0.3
        return jnp.sum(1 / square**3 - 1 / square)

    return jax.value_and_grad(energy)(x)


def messages(h, source, target):
    """A layer of a graph network, with sums and maxima over the edges into each node."""
    sent = jnp.tanh(h[source] * h[target]) + h[target]
    most = jnp.full_like(h, -1.0).at[target].max(sent)
    return jax.ops.segment_sum(sent, target, num_segments=len(h)), most


def chosen(x, which):
    """Of each row other columns; those outside are NaN, or left out."""
    rows = jnp.take_along_axis(jnp.exp(x), which, 1)
    return rows, jnp.sin(x).at[:, which[0]].add(rows, mode="drop")


def assembled(u, cells):
    """Forces of triangles at their corners."""

    def of_cell(corners):
        mean = jnp.mean(corners, 0)
        return jnp.sin(corners - mean) * jnp.sum(mean * mean)

    each = jax.vmap(of_cell)(u[cells])
    return jnp.zeros_like(u).at[cells].add(each)


@pytest.mark.parametrize(
    ("f", "shape", "indices"),
    [
        (forces, (12, 3), [(12, 4)]),
        (messages, (11, 4), [(24,), (24,)]),
        (chosen, (12, 10), [(12, 5)]),
        (assembled, (15, 2), [(20, 3)]),
    ],
)
def test_axes_of_indices_that_are_arguments_are_loops(f, shape, indices):
    """Those that are negative, or outside, too."""
    given = [RNG.integers(-1, shape[0] + 2, dims) for dims in indices]
    assert_loops(f, normal(*shape), *given)


def test_an_array_may_be_written_in_hundreds_of_times():
    x, at, updates = normal(2, 10), RNG.integers(0, 10, (2, 700)), normal(2, 700)
    f = lambda x, at, updates: x.at[at].add(updates)  # noqa: E731
    assert_same(jax.jit(jax.vmap(fuse(f)))(x, at, updates), jax.vmap(f)(x, at, updates))
