"""Sums that wait to be formed, against dense tensors and the algebra's structures and counts."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.engine.test_edge import shut_out, some_shapes, tensor_of, with_values
from tests.oracles import by_numpy
from tests.oracles.by_numpy import run
from tests.oracles.jacobians import assert_same
from tests.oracles.structures import (
    dense_meaning,
    matrix_map,
    random_diagonal,
    random_edge,
    random_structure,
)
from tests.sampling import on_seeds
from tests.test_invariant import assert_emitted_counts
from veenv import structure
from veenv.engine import edge, sums
from veenv.linear.linear_map import Selection, canonical
from veenv.structure import product
from veenv.tasks.dynamics import lorenz96_step


def random_edges(rng, out, inn, several):
    """Random edges between the same nodes, and the dense tensor of their sum."""
    pairs = [random_edge(rng, random_structure(rng, out, inn)) for _ in range(several)]
    return [e for e, _ in pairs], sum(dense for _, dense in pairs)


def whole(e):
    """The dense tensor of an edge or a sum."""
    formed = sums.formed(e)
    assert formed.structure == e.structure
    if formed.values is not None:
        assert formed.values.shape == e.structure.value_shape
    return tensor_of(formed)


@pytest.mark.usefixtures("x64")
@on_seeds(60, 1000)
def test_products_and_sums_of_sums_equal_dense_ones(seed):
    """As one edge, as terms that are merged, and as terms that are stored apart."""
    rng = np.random.default_rng(seed)
    out, mid, inn = some_shapes(rng, 3)
    sizes = [(1, 3), (3, 1), (2, 2)][rng.integers(3)]
    posts, post_dense = random_edges(rng, out, mid, sizes[0])
    pres, pre_dense = random_edges(rng, mid, inn, sizes[1])
    more, more_dense = random_edges(rng, out, inn, 2)

    def results(values):
        given = [*posts, *pres, *more]
        every = iter([with_values(e, x) for e, x in zip(given, values, strict=True)])
        post, pre = (reduce(sums.add, [next(every) for _ in range(n)]) for n in sizes)
        predicted = product.multiply(post.structure, pre.structure)
        both = sums.multiply(post, pre, predicted)
        assert both.structure == predicted.structure
        rest = [*every]
        total = reduce(sums.add, [both, *rest])
        assert total.structure == reduce(structure.add, [e.structure for e in (both, *rest)])
        terms, _ = sums.gathered(rest)
        assert not sums.gathered(rest[:1])[1]  # one term is never as much as a dense one
        merged = sum(whole(e) for e in sums.absorbed(sums.evaluated(terms)))
        return whole(both), whole(total), merged

    both, total, merged = run(results, [e.values for e in (*posts, *pres, *more)])
    expected = np.tensordot(post_dense, pre_dense, axes=len(mid))
    np.testing.assert_allclose(both, expected, atol=1e-12)
    np.testing.assert_allclose(total, expected + more_dense, atol=1e-12)
    np.testing.assert_allclose(merged, more_dense, atol=1e-12)


@on_seeds(60, 1000)
def test_entries_are_counted_as_the_dense_tensor_has_them(seed):
    """Of a full selection, and of an operator but for its diagonal axes."""
    rng = np.random.default_rng(seed)
    s = random_structure(rng, *some_shapes(rng, 2))
    shapes = [s.out_shape[k] for k in s.link_out], [s.in_shape[j] for j in s.link_in]
    matrix, diagonal = np.eye(*s.linked_sizes), ()
    if s.link is structure.Link.OPERATOR:
        matrix, diagonal = random_diagonal(rng, np.ones(s.linked_sizes), *shapes)
    link = None if s.link is structure.Link.NONE else matrix_map(matrix, *shapes, diagonal)
    found = sums.num_entries(edge.Edge(s, None, np.float64, 1, link))
    assert found == np.count_nonzero(dense_meaning(s, None, matrix))


@pytest.mark.usefixtures("x64")
@on_seeds(12, 300)
def test_terms_of_one_operator_are_merged(seed):
    """Also where values lie along other axes, and where a select has shut some of them out."""
    rng = np.random.default_rng(seed)
    s = random_structure(rng, *some_shapes(rng, 2))
    while s.link is not structure.Link.OPERATOR:
        s = random_structure(rng, *some_shapes(rng, 2))
    outs = tuple(k not in s.link_out for k in range(len(s.out_shape)))
    ins = tuple(j not in (*s.link_in, *s.pairs) for j in range(len(s.in_shape)))
    valued = replace(s, unit=False, out_values=outs, in_values=ins)
    first, _ = random_edge(rng, s)
    other, _ = random_edge(rng, s if rng.random() < 0.5 else valued)
    several = [shut_out(rng, e) for e in (first, replace(other, link=first.link))]

    def results(values):
        a, b = map(with_values, several, values)
        return whole(sums.merge(a, b)), whole(a) + whole(b)

    np.testing.assert_allclose(*run(results, [e.values for e in several]), atol=1e-12)


def test_a_cut_of_nothing_has_no_entries():
    s = structure.make(
        (0,), (6,), unit=True, link=structure.Link.SELECTION, link_out=(0,), link_in=(0,)
    )
    link = Selection(canonical(0, 6, 0, 1, 2, 1, 0), (0,), (6,))
    nothing = edge.Edge(s, None, np.float64, 1, link)
    assert sums.num_entries(nothing) == 0
    assert sums.gathered([nothing]) == ((nothing,), False)


def shifted(x):
    """Neighbours in both directions of a grid, some of them twice, and what is far away."""
    down = lax.pad(x[1:], 0.0, ((0, 1, 0), (0, 0, 0)))
    up = lax.pad(x[:-1], 0.0, ((1, 0, 0), (0, 0, 0)))
    right = lax.pad(x[:, :-1], 0.0, ((0, 0, 0), (1, 0, 0)))
    far = lax.pad(x[2:], 0.0, ((0, 2, 0), (0, 0, 0)))
    y = jnp.sin(x) + down + up * x + right + 2 * down + right * far + x[::-1]
    return y[1:] * y[:-1], y + y[:, ::-1]


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_shifts_along_both_axes_are_right(order, x64):
    x = np.random.default_rng(0).normal(size=(3, 3))

    def every(x):
        sparse = veenv.jacve(shifted, order, kernel="xla", sparse_representation=True)(x)
        dense = veenv.jacve(shifted, order, kernel="xla")(x)
        return jax.jacrev(shifted)(x), dense, [block.todense() for block in sparse]

    expected, *found = (jax.tree.leaves(tree) for tree in by_numpy.run(every, x))
    for blocks in found:
        assert_same(blocks, expected, 1e-7, atol=1e-12)


def test_counts_of_a_program_of_shifts_are_those_of_its_graph():
    waves = lambda x, forcing: lorenz96_step(x, forcing, jnp.asarray(0.05))  # noqa: E731
    assert_emitted_counts(waves, (np.arange(6.0), np.array(8.0)), 0, 1)
