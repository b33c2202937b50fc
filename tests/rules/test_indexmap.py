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


def batched_gather(a, at):
    return jax.vmap(lambda x, i: x.at[i, 1:].get(mode="fill", fill_value=0.0), (1, 1))(a, at)


def batched_scatter(a, at, y):
    return jax.vmap(lambda x, i, v: x.at[i, :].add(v, mode="drop"), (1, 1, 2))(a, at, y)


def taken_rows(a, at):
    return a[:, at]


WINDOWS = {
    "batched gather": (batched_gather, (A, np.array([[0, 3, 1, 2, 3], [2, 1, 9, 0, 1]]))),
    "batched scatter": (batched_scatter, (A, np.arange(10).reshape(2, 5) % 4, np.ones((2, 3, 5)))),
    "rows": (taken_rows, (A, np.array([[4, 1, 0], [2, 3, 9]]))),
    "corners": (lambda a, at: a[at, 1:3, 0], (A, np.array([3, 0, 2]))),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_go_by_their_indices(name):
    """Each entry by one index, and along some axes each index by an index of the array."""
    fun, (a, at, *rest) = WINDOWS[name]
    args = (a, at.astype(np.int32), *(x.astype(np.float32) for x in rest))
    equation = equation_of(fun, *args)
    whole, ids = (v.aval for v in equation.invars[:2])
    shape = (equation.invars[2] if rest else equation.outvars[0]).aval.shape
    make = (lambda p: of_scatter(p, whole.ndim, shape)) if rest else of_gather
    windows, rng = make(equation.params), np.random.default_rng(0)
    most = [whole.shape[axis] - windows.sizes[axis] + 1 for axis in windows.indexed]
    indices = rng.integers(0, most, ids.shape)
    places = windows.places(whole.shape, indices)
    assert places.shape == shape
    owners = windows.owners(whole.shape, ids.shape[:-1])
    assert owners.shape == shape
    assert {*owners.ravel()} == {*range(indices[..., 0].size)}
    for n, index in enumerate(indices.reshape(-1, ids.shape[-1])):
        alone = windows.places(whole.shape, np.broadcast_to(index, ids.shape))
        np.testing.assert_array_equal(places[owners == n], alone[owners == n])
    coordinates, own = np.unravel_index(places, whole.shape), np.indices(shape)
    alike = windows.alike(whole.shape, len(shape))
    found = {
        (k, j)
        for k in range(len(shape))
        for j in range(whole.ndim)
        if shape[k] > 1 and (coordinates[j] == own[k]).all()
    }
    assert {(k, j) for k, j, _ in alike if shape[k] > 1} == found
    for k, _, i in alike:
        assert i is None or shape[k] == ids.shape[i]


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
