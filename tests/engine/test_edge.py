"""Products and sums of structured edges against dense tensors."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.multiplications import count_multiplications
from tests.oracles.structures import random_edge, random_structure
from veenv.engine import edge
from veenv.engine import product as edge_product
from veenv.structure import product, structure
from veenv.structure.structure import Link


def in_float64(test):
    """Runs a test with 64-bit types (a fixture would not be renewed for each example)."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        with jax.enable_x64(True):
            return test(*args, **kwargs)

    return run


def random_shape(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.choice([2, 3], size=rank))


def dense(e: edge.Edge) -> np.ndarray:
    s = e.structure
    return np.asarray(edge.todense(e, s.out_shape, s.in_shape, jnp.float64))


def assert_multiplies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    out, mid, inn = (random_shape(rng, int(rng.integers(0, 3))) for _ in range(3))
    post, post_dense = random_edge(rng, random_structure(rng, out, mid))
    pre, pre_dense = random_edge(rng, random_structure(rng, mid, inn))
    expected = np.tensordot(post_dense, pre_dense, axes=len(mid))
    predicted = product.multiply(post.structure, pre.structure)
    result = edge_product.multiply(post, pre)
    assert result.structure == predicted.structure
    if result.values is not None:
        assert result.values.shape == predicted.structure.value_shape
    np.testing.assert_allclose(dense(result), expected, atol=1e-12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
@in_float64
def test_product_equals_dense_product(seed):
    assert_multiplies(seed)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
@in_float64
def test_sum_equals_dense_sum(seed):
    rng = np.random.default_rng(seed)
    out, inn = (random_shape(rng, int(rng.integers(0, 4))) for _ in range(2))
    a, a_dense = random_edge(rng, random_structure(rng, out, inn))
    b, b_dense = random_edge(rng, random_structure(rng, out, inn))
    total = edge.add(a, b)
    assert total.structure == structure.add(a.structure, b.structure)
    np.testing.assert_allclose(dense(total), a_dense + b_dense, atol=1e-12)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
@in_float64
def test_count_is_what_the_emitted_program_multiplies(seed):
    rng = np.random.default_rng(seed)
    out, mid, inn = (random_shape(rng, int(rng.integers(0, 3))) for _ in range(3))
    # An operator's own arithmetic (here a matrix product) is not the elimination's.
    a, b = random_structure(rng, out, mid), random_structure(rng, mid, inn)
    if Link.OPERATOR in (a.link, b.link):
        return
    post, _ = random_edge(rng, a)
    pre, _ = random_edge(rng, b)
    post = _moving_link(post)
    pre = _moving_link(pre)

    def values(x, y):
        e = edge_product.multiply(
            edge.Edge(a, x, post.dtype, post.sign, post.link),
            edge.Edge(b, y, pre.dtype, pre.sign, pre.link),
        )
        return e.values

    jaxpr = jax.make_jaxpr(values)(post.values, pre.values)
    assert count_multiplications(jaxpr) == product.multiply(a, b).multiplications


def _moving_link(e: edge.Edge) -> edge.Edge:
    """The edge with a link that moves values by indexing, so that it multiplies nothing."""
    if e.link is None:
        return e
    n, m = int(np.prod(e.link.out_shape)), int(np.prod(e.link.in_shape))
    size = min(n, m)

    def move(x, count, shape):
        flat = x.reshape(-1)[:size]
        return jnp.pad(flat, (0, count - size)).reshape(shape)

    link = edge.LinearMap(
        e.link.out_shape,
        e.link.in_shape,
        lambda x: move(x, n, e.link.out_shape),
        lambda x: move(x, m, e.link.in_shape),
    )
    return edge.Edge(e.structure, e.values, e.dtype, e.sign, link)


def test_shapes_must_meet():
    a = structure.diagonal((3,), valued=True)
    b = structure.diagonal((2,), valued=True)
    with pytest.raises(ValueError, match="out shape"):
        product.multiply(a, b)
    with pytest.raises(ValueError, match="different shapes"):
        structure.add(a, b)


@pytest.mark.parametrize(
    ("post", "pre", "count", "described"),
    [
        # elementwise after elementwise
        (structure.diagonal((5,), valued=True), structure.diagonal((5,), valued=True), 5, "i,i:i"),
        # a matrix product in front of an elementwise function
        (
            structure.make((4,), (5,), out_values=[0], in_values=[0]),
            structure.diagonal((5,), valued=True),
            20,
            "i,j:ij",
        ),
        # a sum of an elementwise function: nothing to multiply
        (structure.make((), (5,), unit=True), structure.diagonal((5,), valued=True), 0, ",i:i"),
        # dense times dense
        (structure.dense((2,), (3,)), structure.dense((3,), (4,)), 24, "i,j:ij"),
        # the gradient row of W @ x by W, then by an elementwise function of W
        (
            structure.make((2,), (2, 3), [(0, 0)], in_values=[1]),
            structure.diagonal((2, 3), valued=True),
            6,
            "i,ij:ij",
        ),
    ],
)
def test_counts_by_hand(post, pre, count, described):
    found = product.multiply(post, pre)
    assert found.multiplications == count
    assert found.structure.describe() == described
