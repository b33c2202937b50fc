"""Sets as bits, against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veenv.env.bits import count_in_sets, pack_flags, running_sum
from veenv.env.graph_view import members, with_columns


@pytest.mark.parametrize(("num_sets", "n"), [(1, 1), (8, 33), (248, 40), (249, 64), (700, 31)])
def test_members_are_counted_over_many_sets(num_sets, n):
    """More than 248 sets overflow no byte, full ones neither."""
    flags = np.random.default_rng(0).random((num_sets, n)) < 0.7
    flags[:, 0] = True
    words = pack_flags(jnp.asarray(flags)).T
    found = jax.jit(count_in_sets, static_argnums=1)(words, n)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, flags.sum(0))


@pytest.mark.parametrize("n", [1, 16, 17, 300])
def test_running_sums(n):
    numbers = np.random.default_rng(1).integers(0, 99, n, dtype=np.int32)
    found = jax.jit(running_sum)(numbers)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, numbers.cumsum())


@pytest.mark.parametrize("room", [1, 40, 900])
def test_members_of_many_sets_in_a_row(room):
    flags = np.random.default_rng(2).random((50, 70)) < 0.2
    flags[[0, 1, 7, 49]] = False
    own, one, used, total = jax.jit(members, static_argnums=1)(pack_flags(jnp.asarray(flags)), room)
    expected = np.argwhere(flags)
    assert int(total) == len(expected)
    num = min(room, len(expected))
    np.testing.assert_array_equal(used, np.arange(room) < len(expected))
    np.testing.assert_array_equal(np.stack([own, one], 1)[:num], expected[:num])


def test_columns_are_replaced():
    table = jnp.zeros((2, 3))
    found = with_columns(table, {2: jnp.array([1.0, 2.0])})
    assert found.tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 2.0]]
