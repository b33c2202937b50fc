"""Where gathers read and scatters write: against XLA, on numbered arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from veenv.rules.indexmap import of_gather, of_scatter

A = np.arange(1.0, 1 + 4 * 5 * 3, dtype=np.float32).reshape(4, 5, 3)
MODES = ["clip", "fill", "promise_in_bounds"]


def equation_of(fun, *args):
    """The gather or scatter of a function."""
    closed = jax.make_jaxpr(fun)(*args)
    found = [
        e for e in closed.jaxpr.eqns if "gather" in e.primitive.name or "scat" in e.primitive.name
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("offset", "collapsed", "mapped", "sizes"),
    [
        ((1, 2), (0,), (0,), (1, 5, 3)),
        ((0, 2), (1,), (1,), (4, 1, 3)),
        ((1,), (0, 2), (2, 0), (1, 2, 1)),
        ((0, 1, 2), (), (1, 0), (2, 3, 3)),
        ((), (0, 1, 2), (0, 1, 2), (1, 1, 1)),
    ],
)
def test_gathers_read_where_xla_reads(offset, collapsed, mapped, sizes, mode):
    rng = np.random.default_rng(0)
    low, high = (0, 1) if mode == "promise_in_bounds" else (-3, 7)
    indices = rng.integers(low, high + 1, (6, 2, len(mapped))).astype(np.int32)
    numbers = lax.GatherDimensionNumbers(offset, collapsed, mapped)

    def gather(a, at):
        return lax.gather(a, at, numbers, sizes, mode=mode, fill_value=0.0)

    places = of_gather(equation_of(gather, A, indices).params).places(A.shape, indices)
    expected = np.asarray(gather(A, indices))
    np.testing.assert_array_equal(np.where(places < 0, 0.0, A.ravel()[places]), expected)


def test_a_batch_of_gathers_goes_along_with_its_arrays():
    at = np.array([[0, 2], [4, 9], [1, 1], [-1, 3]], np.int32)

    def gather(a, at):
        return jax.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=0.0))(a, at)

    equation = equation_of(gather, A, at)
    indices = np.where(at < 0, at + 5, at)[..., None]
    assert equation.params["dimension_numbers"].operand_batching_dims == (0,)
    places = of_gather(equation.params).places(A.shape, indices)
    found = np.where(places < 0, 0.0, A.ravel()[places])
    np.testing.assert_array_equal(found, np.asarray(gather(A, at)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("windows", "inserted", "mapped", "size"),
    [
        ((1, 2), (0,), (0,), (5, 3)),
        ((1,), (0, 2), (2, 0), (2,)),
        ((0, 1, 2), (), (1, 0), (2, 3, 3)),
    ],
)
def test_scatters_write_where_xla_writes(windows, inserted, mapped, size, mode):
    rng = np.random.default_rng(1)
    low, high = (0, 1) if mode == "promise_in_bounds" else (-3, 7)
    indices = rng.integers(low, high + 1, (6, len(mapped))).astype(np.int32)
    shape, sizes = [], iter(size)
    for axis in range(1 + len(windows)):
        shape.append(next(sizes) if axis in windows else 6)
    updates = rng.normal(size=shape).astype(np.float32)
    numbers = lax.ScatterDimensionNumbers(windows, inserted, mapped)

    def scatter(a, at, updates):
        return lax.scatter_add(a, at, updates, numbers, mode=mode)

    params = equation_of(scatter, A, indices, updates).params
    places = of_scatter(params, A.ndim, updates.shape).places(A.shape, indices)
    assert places.shape == updates.shape
    expected = A.astype(np.float64).ravel()
    np.add.at(expected, places[places >= 0], updates[places >= 0])
    found = np.asarray(scatter(jnp.asarray(A), indices, updates)).ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
