"""Names of selections along one axis against their matrices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from veenv.linear.linear_map import Affine, Operator, canonical, chain, compose


@st.composite
def selections(draw, out_size, in_size):
    steps = st.sampled_from([-3, -2, -1, 1, 2, 3])
    out_step, in_step = draw(steps), draw(steps)
    start = st.integers(0, out_size - 1), st.integers(0, in_size - 1)
    out_start, in_start = draw(start[0]), draw(start[1])
    size = 0
    while (
        size < 5
        and 0 <= out_start + out_step * size < out_size
        and 0 <= in_start + in_step * size < in_size
    ):
        size += 1
    size = draw(st.integers(0, size))
    return canonical(out_size, in_size, out_start, out_step, in_start, in_step, size)


def matrix(a: Affine) -> np.ndarray:
    m = np.zeros((a.out_size, a.in_size), int)
    for t in range(a.size):
        m[a.out_start + a.out_step * t, a.in_start + a.in_step * t] = 1
    return m


@given(st.data(), st.integers(1, 7), st.integers(1, 7), st.integers(1, 7))
def test_composition_is_the_matrix_product(data, out_size, mid, in_size):
    post, pre = data.draw(selections(out_size, mid)), data.draw(selections(mid, in_size))
    both = compose(post, pre)
    np.testing.assert_array_equal(matrix(both), matrix(post) @ matrix(pre))
    np.testing.assert_array_equal(matrix(post.T), matrix(post).T)
    joined = [int(row.argmax()) if row.any() else -1 for row in matrix(post)]
    np.testing.assert_array_equal(post.columns(), joined)


@given(st.data(), st.integers(1, 6), st.integers(1, 6))
def test_one_name_for_one_selection(data, out_size, in_size):
    a, b = data.draw(selections(out_size, in_size)), data.draw(selections(out_size, in_size))
    assert (a == b) == np.array_equal(matrix(a), matrix(b))


def test_maps_that_are_not_affine_keep_their_own_keys():
    a, b = (Operator((2,), (2,), lambda x: x, lambda x: x) for _ in range(2))
    assert chain(a, b).key == chain(a, b).key
    assert chain(a, b).key != chain(b, a).key
