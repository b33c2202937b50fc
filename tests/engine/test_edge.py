"""Products and sums of structured edges against dense tensors."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.multiplications import count_multiplications
from tests.oracles.structures import random_edge, random_structure
from tests.sampling import on_seeds
from veenv.engine import edge
from veenv.engine import product as edge_product
from veenv.linear.linear_map import Operator, Selection
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


@on_seeds(3, 150)
@in_float64
def test_product_equals_dense_product(seed):
    assert_multiplies(seed)


@on_seeds(3, 100)
@in_float64
def test_sum_equals_dense_sum(seed):
    rng = np.random.default_rng(seed)
    out, inn = (random_shape(rng, int(rng.integers(0, 4))) for _ in range(2))
    a, a_dense = random_edge(rng, random_structure(rng, out, inn))
    b, b_dense = random_edge(rng, random_structure(rng, out, inn))
    total = edge.add(a, b)
    assert total.structure == structure.add(a.structure, b.structure)
    np.testing.assert_allclose(dense(total), a_dense + b_dense, atol=1e-12)


@on_seeds(15, 100)
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

    link = Operator(
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


def shut_out(rng: np.random.Generator, e: edge.Edge) -> edge.Edge:
    """The edge with a random mask, which depends on some of the axes of its values."""
    if e.values is None:
        return e
    shape = [n if rng.random() < 0.7 else 1 for n in e.values.shape]
    mask = jnp.asarray(rng.random(shape) < 0.5)
    return dataclasses.replace(e, values=edge.select(mask, e.values, 0), mask=mask)


def there(e: edge.Edge) -> np.ndarray:
    """Where the dense tensor of an edge is neither shut out nor a structural zero."""
    ones = jnp.ones(()) if e.values is None else jnp.ones(e.values.shape)
    if e.mask is not None:
        ones = edge.select(e.mask, ones, 0)
    return dense(edge.Edge(e.structure, ones, e.dtype, 1, e.link)) != 0


def spoilt(e: edge.Edge, rows: np.ndarray) -> edge.Edge:
    """The edge, infinite at its stored values that no out entry but those of `rows` comes from."""
    if e.values is None:
        return e
    size = e.values.size
    units = jnp.eye(size).reshape(size, *e.values.shape)
    touched = np.stack([dense(dataclasses.replace(e, values=unit)) != 0 for unit in units])
    touched = touched.reshape(size, *rows.shape, -1).any(-1)
    alone = jnp.asarray((touched <= rows).reshape(size, -1).all(1).reshape(e.values.shape))
    infinite = jnp.full_like(e.values, jnp.inf)
    return dataclasses.replace(e, values=edge.select(alone, infinite, e.values))


@on_seeds(5, 60)
@in_float64
def test_what_a_mask_shuts_out_may_be_infinite(seed):
    rng = np.random.default_rng(seed)
    out, mid, inn = (random_shape(rng, int(rng.integers(0, 3))) for _ in range(3))
    post = random_edge(rng, random_structure(rng, out, mid))[0]
    pre = random_edge(rng, random_structure(rng, mid, inn))[0]
    if Link.OPERATOR in (post.structure.link, pre.structure.link):
        return
    # A selection never multiplies, as the matrices of random ones do.
    post, pre = (e if isinstance(e.link, Selection) else _moving_link(e) for e in (post, pre))
    post = shut_out(rng, post)
    if post.mask is None:
        return
    closed = ~there(post).reshape(-1, *mid).any(0)
    expected = np.tensordot(dense(post), dense(pre), axes=len(mid))
    result = edge_product.multiply(post, spoilt(pre, closed))
    np.testing.assert_allclose(dense(result), expected, atol=1e-12)
    flipped = edge_product.multiply(edge.transpose(spoilt(pre, closed)), edge.transpose(post))
    assert_transposed(flipped, expected, len(out))


def assert_transposed(e: edge.Edge, expected: np.ndarray, num_out: int) -> None:
    axes = [*range(num_out, expected.ndim), *range(num_out)]
    np.testing.assert_allclose(dense(e), expected.transpose(axes), atol=1e-12)
