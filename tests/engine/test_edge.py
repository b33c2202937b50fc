"""Products and sums of structured edges against dense tensors."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles.by_numpy import run
from tests.oracles.multiplications import count_additions, count_multiplications
from tests.oracles.structures import random_edge, random_structure
from tests.sampling import on_seeds
from veenv.engine import edge, edge_product, sums
from veenv.linear.linear_map import Operator, Selection
from veenv.structure import product, structure
from veenv.structure.structure import Link

pytestmark = pytest.mark.usefixtures("x64")


def random_shape(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.choice([2, 3], size=rank))


def tensor_of(e: edge.Edge) -> jax.Array:
    """The dense tensor of an edge, as a part of a program."""
    s = e.structure
    return edge.todense(e, s.out_shape, s.in_shape, jnp.float64)


def dense(e: edge.Edge) -> np.ndarray:
    return run(lambda x: tensor_of(with_values(e, x)), e.values)


def with_values(e: edge.Edge, values) -> edge.Edge:
    return dataclasses.replace(e, values=values)


def by_numpy(combine, a: edge.Edge, b: edge.Edge, predicted: structure.Structure) -> np.ndarray:
    """The dense tensor of what two edges are combined to, which has the predicted structure."""

    def values(x, y):
        result = combine(with_values(a, x), with_values(b, y))
        assert result.structure == predicted
        shape = None if result.values is None else result.values.shape
        assert shape == (None if predicted.unit else predicted.value_shape)
        return tensor_of(result)

    return run(values, a.values, b.values)


def some_shapes(rng: np.random.Generator, number: int) -> list[tuple[int, ...]]:
    return [random_shape(rng, int(rng.integers(0, 4))) for _ in range(number)]


@on_seeds(120, 2000)
def test_product_equals_dense_product(seed):
    """With the zeros of a diagonal in what is dense, and without."""
    rng = np.random.default_rng(seed)
    out, mid, inn = some_shapes(rng, 3)
    post, post_dense = random_edge(rng, random_structure(rng, out, mid))
    pre, pre_dense = random_edge(rng, random_structure(rng, mid, inn))
    keep = bool(rng.random() < 0.4)
    pairs = (edge.diagonal_pairs(post), edge.diagonal_pairs(pre)) if keep else ()
    predicted = product.multiply(post.structure, pre.structure, *pairs).structure
    found = by_numpy(functools.partial(edge_product.multiply, keep=keep), post, pre, predicted)
    np.testing.assert_allclose(found, np.tensordot(post_dense, pre_dense, len(mid)), atol=1e-12)


@on_seeds(50, 1000)
def test_sum_equals_dense_sum(seed):
    rng = np.random.default_rng(seed)
    out, inn = some_shapes(rng, 2)
    a, a_dense = random_edge(rng, random_structure(rng, out, inn))
    b, b_dense = random_edge(rng, random_structure(rng, out, inn))
    found = by_numpy(edge.add, a, b, structure.add(a.structure, b.structure))
    np.testing.assert_allclose(found, a_dense + b_dense, atol=1e-12)


@on_seeds(50, 1000)
def test_counts_are_those_of_the_emitted_program(seed):
    rng = np.random.default_rng(seed)
    out, mid, inn = some_shapes(rng, 3)
    # An operator's own arithmetic (here a matrix product) is not the elimination's.
    a, b = random_structure(rng, out, mid), random_structure(rng, mid, inn)
    if Link.OPERATOR in (a.link, b.link):
        return
    post, pre = (_moving_link(random_edge(rng, s)[0]) for s in (a, b))

    def values(x, y):
        return edge_product.multiply(with_values(post, x), with_values(pre, y)).values

    jaxpr = jax.make_jaxpr(values)(post.values, pre.values)
    plan = product.multiply(a, b)
    assert count_multiplications(jaxpr) == plan.multiplications
    assert count_additions(jaxpr) == plan.additions


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
    return dataclasses.replace(e, link=link)


def test_shapes_must_meet():
    a = structure.diagonal((3,), valued=True)
    b = structure.diagonal((2,), valued=True)
    with pytest.raises(ValueError, match="out shape"):
        product.multiply(a, b)
    with pytest.raises(ValueError, match="different shapes"):
        structure.add(a, b)


def shut_out(rng: np.random.Generator, e: edge.Edge) -> edge.Edge:
    """The edge with a random mask, which depends on some of the axes of its values."""
    if e.values is None:
        return e
    shape = [n if rng.random() < 0.7 else 1 for n in e.values.shape]
    mask = rng.random(shape) < 0.5
    return dataclasses.replace(e, values=jnp.where(mask, e.values, 0), mask=jnp.asarray(mask))


def there(e: edge.Edge) -> np.ndarray:
    """Where the dense tensor of an edge is neither shut out nor a structural zero."""
    ones = None if e.values is None else np.ones(e.values.shape)
    if ones is not None and e.mask is not None:
        ones = np.where(e.mask, ones, 0)
    return dense(edge.Edge(e.structure, ones, e.dtype, 1, e.link)) != 0


def spoilt(rng: np.random.Generator, e: edge.Edge) -> edge.Edge:
    """The edge, infinite at some of its values that are not shut out."""
    if e.values is None:
        return e
    some = (rng.random(e.values.shape) < 0.25) & (np.asarray(e.values) != 0)
    return dataclasses.replace(e, values=jnp.asarray(np.where(some, np.inf, e.values)))


def random_masked(rng: np.random.Generator, out, inn) -> edge.Edge:
    """An edge whose link, if any, moves values to known places; most have a mask."""
    while True:
        s = random_structure(rng, out, inn)
        e = random_edge(rng, s)[0]
        if (e.link is None or isinstance(e.link, Selection)) and (not s.unit or rng.random() < 0.2):
            return shut_out(rng, e) if rng.random() < 0.7 else e


@on_seeds(40, 1000)
def test_what_a_mask_shuts_out_may_be_infinite(seed):
    """Entries are exact where no infinite value meets one that is there, of sums, too."""
    rng = np.random.default_rng(seed)
    out, mid, inn = some_shapes(rng, 3)
    several = [random_masked(rng, out, mid) for _ in range(rng.integers(1, 3))]
    pre = random_masked(rng, mid, inn)
    if len(several) > 1 and all(e.mask is None for e in several):
        return  # zeros of one structure that are stored for another one are no select's
    sum_is_spoilt = rng.random() < 0.5
    if sum_is_spoilt:
        several[0] = spoilt(rng, several[0])
    else:
        pre = spoilt(rng, pre)
    flipped = rng.random() < 0.5
    size = math.prod(mid)
    left = [np.where(there(e), dense(e), 0).reshape(-1, size, 1) for e in several]
    right = np.where(there(pre), dense(pre), 0).reshape(1, size, -1)
    met = sum(x != 0 for x in left) * (right != 0) != 0
    with np.errstate(all="ignore"):
        expected = np.where(met, sum(left) * right, 0).sum(1)

    def product_of(values):
        *posts, last = (with_values(e, x) for e, x in zip([*several, pre], values, strict=True))
        a, b = functools.reduce(sums.add, posts), last
        if flipped:
            a, b = edge.transpose(b), edge.transpose(sums.formed(a))
        plan = product.multiply(a.structure, b.structure)
        found = tensor_of(sums.formed(sums.multiply(a, b, plan)))
        if flipped:
            return found.reshape(math.prod(inn), -1).T
        return found.reshape(math.prod(out), -1)

    found = run(product_of, [e.values for e in (*several, pre)])
    sure = np.isfinite(expected)
    np.testing.assert_allclose(found[sure], expected[sure], atol=1e-12)


@on_seeds(50, 1000)
def test_factors_are_combined_as_by_einsum(seed):
    """Sums over the labels that are left out; a mask has every entry that may not be zero."""
    rng = np.random.default_rng(seed)
    sizes, factors = dict(zip("abcd", rng.permutation([2, 3, 3, 2]).tolist(), strict=True)), []
    for _ in range(2):
        labels = rng.permutation([*"abcd"])[: rng.integers(0, 5)].tolist()
        x = rng.normal(size=[sizes[a] for a in labels])
        mask = rng.random([n if rng.random() < 0.7 else 1 for n in x.shape]) < 0.6
        mask = mask if rng.random() < 0.7 else None
        factors.append((x if mask is None else np.where(mask, x, 0), labels, mask))
    union = sorted({*factors[0][1], *factors[1][1]})
    target = rng.permutation(union)[: rng.integers(0, len(union) + 1)].tolist()
    limit = edge_product._SMALL if rng.random() < 0.5 else 0  # no sum is small, then

    def combined(values):
        pairs = zip(values, factors, strict=True)
        both = (edge_product.Factor(x, labels, mask) for x, (_, labels, mask) in pairs)
        return edge_product.combine(*both, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_product, "_SMALL", limit)
        found, mask = run(combined, [x for x, *_ in factors])
    sums_of = ",".join("".join(labels) for _, labels, _ in factors) + "->" + "".join(target)
    expected = np.einsum(sums_of, *(x for x, *_ in factors))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    if mask is not None:
        met = np.einsum(sums_of, *((x != 0).astype(int) for x, *_ in factors)) > 0
        assert not (met & ~mask).any()
