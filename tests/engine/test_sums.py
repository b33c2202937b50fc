"""Sums that wait to be formed, against dense tensors and the algebra's structures and counts."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_edge import in_float64, random_shape
from tests.oracles.jacobians import quick_jit
from tests.oracles.structures import random_edge, random_structure
from tests.sampling import few
from tests.test_invariant import assert_emitted_counts
from veenv import jacve, make_graph, structure
from veenv.engine import edge, sums
from veenv.engine.sums import Sum
from veenv.linear.linear_map import Selection, canonical
from veenv.structure import product
from veenv.tasks.dynamics import lorenz96_step


def random_sum(rng, out, inn, several):
    """A sum of random edges, and the dense tensor it stands for."""
    edges, dense = zip(
        *(random_edge(rng, random_structure(rng, out, inn)) for _ in range(several)), strict=True
    )
    total = reduce(sums.add, edges)
    expected = reduce(structure.add, [e.structure for e in edges])
    assert total.structure == expected
    return total, sum(dense)


def assert_stands_for(e, expected):
    whole = sums.formed(e)
    s = whole.structure
    assert s == e.structure
    if whole.values is not None:
        assert whole.values.shape == s.value_shape
    found = edge.todense(whole, s.out_shape, s.in_shape, jnp.float64)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def assert_multiplies(seed):
    rng = np.random.default_rng(seed)
    shapes = [random_shape(rng, int(rng.integers(0, 3))) for _ in range(3)]
    out, mid, inn = shapes
    sizes = [(1, 3), (3, 1), (2, 2)][rng.integers(3)]
    post, post_dense = random_sum(rng, out, mid, sizes[0])
    pre, pre_dense = random_sum(rng, mid, inn, sizes[1])
    predicted = product.multiply(post.structure, pre.structure)
    both = sums.multiply(post, pre, predicted)
    assert both.structure == predicted.structure
    expected = np.tensordot(post_dense, pre_dense, axes=len(mid))
    more, more_dense = random_edge(rng, random_structure(rng, out, inn))
    assert_stands_for(sums.add(both, more), expected + more_dense)
    assert_stands_for(both, expected)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=few(4, of=8), deadline=None)
@in_float64
def test_products_and_sums_of_sums_equal_dense_ones(seed):
    assert_multiplies(seed)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=500, deadline=None)
@in_float64
def test_many_products_and_sums_of_sums_equal_dense_ones(seed):
    assert_multiplies(seed)


def _cut(start, size, n=6):
    """x[start : start + size] of a vector of n, as a unit edge."""
    s = structure.make(
        (size,),
        (n,),
        unit=True,
        link=structure.Link.SELECTION,
        link_out=(0,),
        link_in=(0,),
    )
    name = canonical(size, n, 0, 1, start, 1, size)
    return edge.Edge(s, None, np.float64, 1, Selection(name, (size,), (n,)))


def test_pieces_of_one_diagonal_become_one_term(x64):
    first = edge.transpose(_cut(0, 2))  # puts two entries in front
    second = edge.transpose(_cut(3, 2))
    products = [
        sums.multiply(put, cut, product.multiply(put.structure, cut.structure))
        for put, cut in ((first, _cut(0, 2)), (second, _cut(3, 2)), (second, _cut(0, 2)))
    ]
    total = reduce(sums.add, products)
    assert isinstance(total, Sum)
    assert len(total.terms) == 2
    expected = np.zeros((6, 6))
    for o, i in ((0, 0), (1, 1), (3, 3), (4, 4), (3, 0), (4, 1)):
        expected[o, i] = 1
    assert_stands_for(total, expected)


def test_free_products_leave_a_sum_unformed(x64):
    total = sums.add(_cut(0, 4), _cut(2, 4))
    put = edge.transpose(_cut(1, 4))
    moved = sums.multiply(put, total, product.multiply(put.structure, total.structure))
    assert isinstance(moved, Sum)
    assert all(e.values is None or e.values.ndim <= 1 for e in moved.terms)
    scaled = edge.Edge(structure.scaled((4,)), jnp.asarray(2.0), np.float64)
    formed = sums.multiply(scaled, total, product.multiply(scaled.structure, total.structure))
    assert isinstance(formed, edge.Edge)


def waves(x, forcing):
    return lorenz96_step(x, forcing, jnp.asarray(0.05))


def test_counts_of_a_program_of_shifts_are_those_of_its_graph():
    assert_emitted_counts(waves, (np.arange(6.0), np.array(8.0)), 0, 1)


def test_jacobian_of_shifts_is_right_in_any_order(x64):
    args = np.arange(7.0) * np.array([1, -1, 2, 0.3, 1, -2, 0.7]), np.array(8.0)
    graph = make_graph(waves)(*args)
    rng = np.random.default_rng(4)
    orders = [graph.markowitz(), rng.permutation(graph.eliminable).tolist()]
    every = [jax.jacrev(waves), *(jacve(waves, order) for order in orders)]
    expected, *found = quick_jit(lambda *a: [jacobian(*a) for jacobian in every])(*args)
    for got in found:
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)
