"""Where gathers read and scatters write: Jacobians with no entry too few or too many."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import together
from tests.sampling import thinned

A = np.arange(1.0, 1 + 4 * 5 * 3, dtype=np.float32).reshape(4, 5, 3)
MODES = ["clip", "fill", "promise_in_bounds"]
RNG = np.random.default_rng(0)
OUTSIDE = np.array([[0, 2], [4, 9], [1, 1], [-1, 3]], np.int32)


def places(count, mode):
    """Indices of which some lie outside, unless it is promised that none does."""
    low, high = (0, 1) if mode == "promise_in_bounds" else (-3, 7)
    return RNG.integers(low, high + 1, (6, count)).astype(np.int32)


def gather(offset, collapsed, mapped, sizes, mode):
    numbers = lax.GatherDimensionNumbers(offset, collapsed, mapped)
    fun = lambda a, at: lax.gather(a, at, numbers, sizes, mode=mode, fill_value=0.0)  # noqa: E731
    return fun, A, places(len(mapped), mode)


def scatter(windows, inserted, mapped, size, mode):
    numbers, sizes = lax.ScatterDimensionNumbers(windows, inserted, mapped), iter(size)
    shape = [next(sizes) if axis in windows else 6 for axis in range(1 + len(windows))]
    fun = lambda y, at: lax.scatter_add(A, at, y, numbers, mode=mode)  # noqa: E731
    return fun, RNG.normal(size=shape).astype(np.float32), places(len(mapped), mode)


GATHERS = [
    ((1, 2), (0,), (0,), (1, 5, 3)), ((0, 2), (1,), (1,), (4, 1, 3)),
    ((1,), (0, 2), (2, 0), (1, 2, 1)), ((0, 1, 2), (), (1, 0), (2, 3, 3)),
    ((), (0, 1, 2), (0, 1, 2), (1, 1, 1)),
]  # fmt: skip
SCATTERS = [
    ((1, 2), (0,), (0,), (5, 3)), ((1,), (0, 2), (2, 0), (2,)), ((0, 1, 2), (), (1, 0), (2, 3, 3)),
]  # fmt: skip
CASES = [
    *thinned((gather(*where, mode) for mode, where in product(MODES, GATHERS)), 4),
    *thinned((scatter(*where, mode) for mode, where in product(MODES, SCATTERS)), 4),
    (jax.vmap(lambda x, i: x.at[i].get(mode="fill", fill_value=0.0)), A, OUTSIDE),
    (jax.vmap(lambda x, i: x.at[i, 1:].get(mode="fill", fill_value=0.0), (1, 1)), A,
        np.array([[0, 3, 1, 2, 3], [2, 1, 9, 0, 1]], np.int32)),
    (lambda y, at: jax.vmap(lambda x, i, v: x.at[i, :].add(v, mode="drop"), (1, 1, 2))(A, at, y),
        np.ones((2, 3, 5), np.float32), np.arange(10, dtype=np.int32).reshape(2, 5) % 4),
    (lambda a, at: a[:, at], A, np.array([[4, 1, 0], [2, 3, 1]], np.int32)),
    (lambda a, at: a[at, 1:3, 0], A, np.array([3, 0, 2], np.int32)),
]  # fmt: skip


@pytest.mark.parametrize(("fun", "x", "at"), CASES)
def test_entries_are_where_xla_reads_and_writes(fun, x, at):
    """By indices that are known as by those that are arguments, whose entries may be zeros."""
    known = veenv.jacve(lambda x: fun(x, at), sparse_representation=True)
    computed = veenv.jacve(fun, sparse_representation=True)
    found, late, dense = together([lambda x, _: known(x), computed, jax.jacrev(fun)], x, at)
    np.testing.assert_array_equal(found.todense(), dense)
    np.testing.assert_array_equal(late.todense(), dense)
    assert found.nse == np.count_nonzero(dense)
    assert late.nse <= max(x.size, jnp.size(dense) // x.size)
