"""The algebra on integers equals the algebra of structures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.structures import dense_meaning, random_structure
from tests.sampling import few
from veenv.structure import packed, packed_product
from veenv.structure import structure as algebra
from veenv.structure.product import multiply as multiply_structures

SIZES = (2, 3, 3, 5)


def random_shape(rng, rank):
    return tuple(int(n) for n in rng.choice(SIZES, rng.integers(0, rank + 1)))


def random_product(seed, rank=4):
    rng = np.random.default_rng(seed)
    shapes = [random_shape(rng, rank) for _ in range(3)]
    post = random_structure(rng, shapes[0], shapes[1])
    pre = random_structure(rng, shapes[1], shapes[2])
    return post, pre


def random_sum(seed, rank=4):
    rng = np.random.default_rng(seed)
    shapes = random_shape(rng, rank), random_shape(rng, rank)
    return random_structure(rng, *shapes), random_structure(rng, *shapes)


def padded(shape):
    return (*shape, 1, 1, 1, 1)[:4]


@pytest.mark.parametrize("rank", [1, 2, 4])
@settings(max_examples=few(300, of=2000))
@given(seed=st.integers(0, 2**32))
def test_pack_and_multiply(rank, seed):
    post, pre = random_product(seed, rank)
    for s in (post, pre):
        code = packed.pack(s)
        assert 0 < code < 2**31
        assert packed.unpack(code, s.out_shape, s.in_shape) == s
    product = multiply_structures(post, pre)
    sizes = [padded(s) for s in (post.out_shape, pre.out_shape, pre.in_shape)]
    code, count, additions = packed_product.multiply(
        packed.pack(post), packed.pack(pre), *sizes, rank
    )
    assert packed.unpack(code, post.out_shape, pre.in_shape) == product.structure
    assert code == packed.pack(product.structure)
    assert count == product.multiplications
    assert additions == product.additions


@pytest.mark.parametrize("rank", [1, 2, 4])
@settings(max_examples=few(150, of=1000))
@given(seed=st.integers(0, 2**32))
def test_add(rank, seed):
    a, b = random_sum(seed, rank)
    code, total = packed.add(packed.pack(a), packed.pack(b), rank), algebra.add(a, b)
    assert code == packed.pack(total)
    sizes = padded(total.out_shape), padded(total.in_shape)
    assert packed.num_values(code, *sizes, rank) == total.num_values


def unlinked(pairs):
    return [p for p in pairs if all(s.link is algebra.Link.NONE for s in p)]


def columns(pairs):
    """Codes and sizes of many products as arrays."""
    post, pre = (np.array([packed.pack(p[i]) for p in pairs], np.int32) for i in (0, 1))
    shapes = [(p[0].out_shape, p[1].out_shape, p[1].in_shape) for p in pairs]
    sizes = [np.array([padded(s[i]) for s in shapes], np.int32).T for i in range(3)]
    return post, pre, *sizes


@pytest.mark.parametrize("number", [600, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("links", [True, False])
def test_jax_arrays_agree(links, number):
    pairs = [random_product(seed) for seed in range(number)]
    pairs = pairs if links else unlinked(pairs)
    products = [multiply_structures(*p) for p in pairs]
    run = jax.jit(lambda *x: packed_product.multiply(*x, links=links))
    code, count, additions = run(*map(jnp.asarray, columns(pairs)))
    assert code.dtype == count.dtype == additions.dtype == jnp.int32
    np.testing.assert_array_equal(code, [packed.pack(p.structure) for p in products])
    np.testing.assert_array_equal(count, [p.multiplications for p in products])
    np.testing.assert_array_equal(additions, [p.additions for p in products])
    sums = [random_sum(seed) for seed in range(number)]
    sums = sums if links else unlinked(sums)
    a, b = (jnp.array([packed.pack(s[i]) for s in sums], jnp.int32) for i in (0, 1))
    added = jax.jit(lambda a, b: packed.add(a, b, links=links))(a, b)
    np.testing.assert_array_equal(added, [packed.pack(algebra.add(*s)) for s in sums])


@pytest.mark.parametrize(("num_out", "num_in"), [(5, 5), (5, 0), (1, 5)])
def test_more_than_four_axes_are_refused(num_out, num_in):
    with pytest.raises(ValueError, match="at most 4 axes"):
        packed.pack(algebra.dense((2,) * num_out, (2,) * num_in))


@pytest.mark.parametrize("rank", [1, 2, 3])
@settings(max_examples=few(60, of=500))
@given(seed=st.integers(0, 2**32))
def test_entries_are_those_of_the_dense_tensor(rank, seed):
    """A full selection joins all of its smaller side."""
    for s in random_product(seed, rank):
        rows, columns = s.linked_sizes
        values = None if s.unit else np.full(s.value_shape, 2.0)
        assert s.num_values == (0 if values is None else values.size)
        entries = np.count_nonzero(dense_meaning(s, values, np.eye(rows, columns)) == 2)
        assert s.num_entries == (0 if s.link is algebra.Link.OPERATOR else entries)
