"""Sets as bits, against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sampling import spared
from veenv.env.bits import count_columns, count_in_sets, member, pack_flags
from veenv.env.graph_view import decode_edges
from veenv.env.lists import members, running_sum

COUNTED = [(1, 1), (15, 33), (240, 40), (241, 64), (700, 31)]
ROOMS = [(20, 1), (70, 40), (70, 900), (300, 2047), (300, 2048)]


@pytest.mark.parametrize(("num_sets", "n"), spared(COUNTED, (1, 1), (241, 64), (700, 31)))
def test_members_are_counted_over_many_sets(num_sets, n):
    """More than 240 sets overflow no byte, full ones neither."""
    flags = np.random.default_rng(0).random((num_sets, n)) < 0.7
    flags[:, 0] = True
    words = pack_flags(jnp.asarray(flags)).T
    found = jax.jit(count_in_sets, static_argnums=1)(words, n)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, flags.sum(0))
    np.testing.assert_array_equal(count_columns(words), flags.sum(1))


@pytest.mark.parametrize("n", [31, 64, 100])
def test_the_member_of_a_rank(n):
    flags = np.random.default_rng(4).random((20, n)) < 0.3
    flags[0], flags[1], flags[1, -1], flags[2, :5] = True, False, True, True
    sets, expected = np.nonzero(flags)
    rank = np.concatenate([np.arange(one.sum()) for one in flags])
    words = pack_flags(jnp.asarray(flags))[sets]
    np.testing.assert_array_equal(jax.jit(member)(words, jnp.asarray(rank, jnp.int32)), expected)


@pytest.mark.parametrize("n", [1, 64, 65, 1500])
def test_running_sums(n):
    numbers = np.random.default_rng(1).integers(0, 9999, n).astype(np.float32)
    numbers[-1] = 2**24 - numbers[:-1].sum()
    found = jax.jit(running_sum)(numbers)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, numbers.astype(np.int64).cumsum())


@pytest.mark.parametrize(("n", "room"), spared(ROOMS, (20, 1), (70, 900), (300, 2048)))
def test_members_of_many_sets_in_a_row(n, room):
    """In sets of less than one unit of 128, of one, and of several; a large room has two tables."""
    flags = np.random.default_rng(2).random((50, n)) < 0.2
    flags[[0, 1, 7, 49]] = False
    flags[5] = True
    sets = pack_flags(jnp.asarray(flags)).T
    own, one, used, total = jax.jit(members, static_argnums=1)(sets, room)
    expected = np.argwhere(flags)
    assert int(total) == len(expected)
    num = min(room, len(expected))
    np.testing.assert_array_equal(used, np.arange(room) < len(expected))
    np.testing.assert_array_equal(np.stack([own, one], 1)[:num], expected[:num])
    assert not np.asarray(own[num:]).any()
    assert not np.asarray(one[num:]).any()


@pytest.mark.parametrize("links", [False, True])
def test_edges_are_decoded_bit_by_bit(links):
    codes = np.random.default_rng(5).integers(0, 2**31, (2, 30), dtype=np.int32)
    found = np.asarray(decode_edges(jnp.asarray(codes), 2, links))
    for index, code in np.ndenumerate(codes):
        bits = [code >> 1 & 1]
        bits += [(code >> (2 + 3 * k) & 7) == 1 + j for k in range(2) for j in range(2)]
        bits += [code >> first & 1 for first in (14, 15, 18, 19)]
        bits += [code >> first & 1 for first in (22, 23, 26, 27, 30)] if links else []
        assert found[index].tolist() == [float(bit) for bit in bits]
