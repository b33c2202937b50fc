"""Indices that depend on the input, sorting and searching in kernels, against XLA."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.kernel.test_primitives import assert_as_xla
from tests.oracles.jacobians import assert_same
from tests.oracles.scalar_program import run
from veenv.kernel.building.reductions import _network
from veenv.kernel.building.unrolling import unroll
from veenv.kernel.fusing import fuse
from veenv.kernel.scalar_program import CannotFuseError

COUNT = 40
RNG = np.random.default_rng(0)
TABLES = RNG.normal(size=(COUNT, 5, 3)).astype(np.float32)
OUTSIDE = RNG.integers(-9, 9, (COUNT, 4)).astype(np.int32)


@pytest.mark.parametrize("mode", ["clip", "fill", "wrap"])
def test_entries_and_rows_at_indices_of_the_input(mode: str):
    def several(table: Any, index: Any) -> list[Any]:
        rows = jnp.take(table, index, axis=0, mode=mode)
        entry = jnp.take(table[:, 0], index[0], mode=mode)
        columns = jnp.take(table, index % 3, axis=1, mode=mode)
        return [rows, entry, columns, jnp.take_along_axis(table, index[:, None] % 5, axis=0)]

    assert_as_xla(several, TABLES, OUTSIDE)


@pytest.mark.parametrize("mode", ["clip", "drop", "promise_in_bounds"])
def test_entries_and_rows_that_are_changed(mode: str):
    def several(table: Any, index: Any) -> list[Any]:
        if mode == "promise_in_bounds":
            index = index % 5
        rows = table[: index.size] + 1
        both = table.at[index, index[::-1] % 3]
        at, one = table.at[index], table.at[index[0]].set(rows[0], mode=mode)
        changed = [getattr(at, way)(rows, mode=mode) for way in ("add", "max", "subtract")]
        return [*changed, one, both.mul(rows[:, 0], mode=mode)]

    assert_as_xla(several, TABLES, OUTSIDE)


def test_many_changes_at_known_places_come_one_after_the_other():
    """Three hundred at places that repeat, and outside: added and multiplied in their order."""
    places = np.random.default_rng(1).integers(-12, 12, 300)
    values = np.random.default_rng(2).uniform(0.9, 1.1, (COUNT, 300)).astype(np.float32)

    def several(x: Any, y: Any) -> list[Any]:
        added = x.at[places].add(y, mode="drop"), x[:0].at[places].add(y, mode="drop")
        return [*added, x.at[places].multiply(y, mode="drop"), x.at[places].max(y, mode="drop")]

    assert_as_xla(several, TABLES[:, :, 0].copy(), values)
    program = unroll(jax.make_jaxpr(several)(TABLES[0, :, 0], values[0]))
    added = TABLES[0, :, 0].copy()
    for place, y in zip(places, values[0], strict=True):
        if -5 <= place < 5:
            added[place] += y
    assert (run(program, TABLES[0, :, 0], values[0])[0] == added).all()  # to the last bit


def test_sorted_entries_with_their_places():
    values = TABLES.reshape(COUNT, 15).copy()
    values[:, 3], values[:20, 7], values[:, 5], values[:, 9] = np.nan, -np.inf, 0.0, -0.0
    values[5:, 2] = values[5:, 4]

    def several(x: Any, index: Any) -> list[Any]:
        by = [jnp.sort(x), jnp.argsort(x), jnp.sort(index), jnp.sort(index > 0)]
        return [*by, lax.sort((index, x[:4]), num_keys=1), jnp.sort(x.reshape(5, 3), axis=0)]

    assert_as_xla(several, values, OUTSIDE)


@pytest.mark.parametrize("size", [*range(1, 18), 31, 33, 127, 128])
def test_every_size_is_sorted(size: int):
    """A network that sorts all rows of zeros and ones sorts everything (Knuth 1973)."""
    rng = np.random.default_rng(size)
    rows = rng.random((400, size)) < rng.random((400, 1))
    every = np.arange(1 << min(size, 12))[:, None] >> np.arange(size) & 1
    for row in (rows, every.astype(bool)):
        found = row.copy()
        for i, j in _network(size):
            x, y = found[:, i].copy(), found[:, j].copy()
            found[:, i], found[:, j] = x & y, x | y
        np.testing.assert_array_equal(found, np.sort(row, axis=1))


def test_long_rows_are_sorted_as_xla_does():
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(size=(9, 40)), 1).astype(np.float32)
    values[:, 7], values[:4, 30] = np.nan, np.inf

    def several(x: Any) -> list[Any]:
        return [jnp.sort(x), jnp.argsort(x), jnp.median(x[:31]), jax.lax.top_k(x, 3)[1]]

    assert_as_xla(several, values)


def test_comparisons_that_order_all_floats():
    special = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40], np.float32)
    x, y = (v.ravel() for v in np.meshgrid(special, special))

    def several(x: Any, y: Any) -> list[Any]:
        return [lax.lt_to_p.bind(x, y), lax.le_to_p.bind(x, y), lax.lt_to_p.bind(x > 0, y > 0)]

    assert_as_xla(several, x, y)


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_a_sorted_table(side: str):
    def several(table: Any, wanted: Any) -> Any:
        return jnp.searchsorted(jnp.sort(table[:, 0]), wanted.ravel(), side=side)

    wanted = np.concatenate([TABLES[:, :2], TABLES[:, :2] * 100], axis=2)
    assert_as_xla(several, TABLES, wanted)


def test_derivatives_of_tables_medians_and_sorted_values():
    def interpolated(x: Any, values: Any) -> Any:
        return jnp.interp(x, jnp.linspace(-1.0, 1.0, 5), values)

    functions = [interpolated, lambda x, v: jnp.median(v) * x, lambda x, v: jnp.sort(v * v) * x[0]]
    x, values = TABLES[:, 0], TABLES[:, :, 1]
    for fun in functions:
        got = jax.vmap(veenv.jacve(fun, argnums=(0, 1), kernel="fused"))(x, values)
        wanted = jax.jit(jax.vmap(jax.jacfwd(fun, (0, 1))))(x, values)
        assert_same(got, wanted, 1e-5)


def test_what_is_too_large_is_named():
    with pytest.raises(CannotFuseError, match=r"'sort'.*at most 128"):
        fuse(jnp.sort)(jnp.arange(129.0))
