"""A select is a mask: what it shuts out is zero, whatever it is multiplied by."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import veenv
from tests.oracles import by_numpy
from tests.oracles.jacobians import dense, orders, quick_jit, together
from tests.oracles.masked_programs import random_masked_program
from tests.sampling import few, on_seeds, spared
from tests.test_invariant import assert_emitted_counts
from veenv.engine import edge_product

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.0, 4.0, -1.0])


def compare(fun: Callable, x: np.ndarray, num_random: int = 1) -> float:
    """Compares orders, dense and sparse, where both of JAX's modes are finite and agree.

    Returns:
      The share of entries that were compared.
    """
    named = orders(veenv.make_graph(fun)(x), num_random)

    def every(x: jax.Array) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        found = {name: veenv.jacve(fun, order)(x) for order, name in named.items()}
        for order, name in list(named.items())[:2]:
            found[f"{name} sparse"] = dense(veenv.jacve(fun, order, sparse_representation=True)(x))
        return jax.jacrev(fun)(x), jax.jacfwd(fun)(x), found

    rev, fwd, found = by_numpy.run(every, x)
    sure = np.isfinite(rev) & np.isfinite(fwd) & np.isclose(rev, fwd, rtol=1e-9, atol=1e-12)
    for name, got in found.items():
        np.testing.assert_allclose(got[sure], rev[sure], rtol=1e-9, atol=1e-11, err_msg=name)
    return float(sure.mean())


def safe(inner: Callable, x: jax.Array, on: jax.Array, inside: float = 0.0) -> jax.Array:
    """The idiom: a select before a function that is infinite, and one behind it."""
    return jnp.where(on, inner(jnp.where(on, x, inside)), 0.0)


def distances(x: jax.Array) -> jax.Array:
    """Distances between points on a line: the diagonal's square root is at zero."""
    apart = ~jnp.eye(x.size, dtype=bool)
    return safe(jnp.sqrt, (x[:, None] - x[None]) ** 2, apart).sum(1)


def phased(x: jax.Array) -> jax.Array:
    return lax.complex(jnp.sqrt(x), jnp.ones_like(x))


def by_scalar_conds(v: jax.Array) -> jax.Array:
    on = v[0] > 0
    x = lax.cond(on, lambda x: x, lambda x: jnp.zeros(()), v[0])
    return lax.cond(on, lambda y: y, lambda y: jnp.zeros(()), jnp.sqrt(x)) * v


def by_three_cases(x: jax.Array) -> jax.Array:
    case = (x > 0).astype(jnp.int32) + (x > 1).astype(jnp.int32)
    z = lax.select_n(case, jnp.zeros_like(x), jnp.zeros_like(x), x)
    return lax.select_n(case, x, x * x, jnp.log(z) ** 2)


PROGRAMS: dict[str, Callable] = {
    "safe sqrt": lambda x: safe(jnp.sqrt, x, x > 0),
    "safe log of a product": lambda x: safe(jnp.log, x * x[1], x > 0),
    "safe reciprocal of a dot": lambda x: safe(lambda y: 1 / y, jnp.ones((3, 3)) @ x - 3, x > 9),
    "dot behind": lambda x: jnp.ones((2, 3)) @ safe(jnp.sqrt, x, x > 0),
    "dot inside": lambda x: safe(lambda y: jnp.diag(X) @ jnp.sqrt(y), x, x > 0),
    "sum behind": lambda x: safe(jnp.sqrt, x, x > 0).sum() ** 2,
    "one mask for all": lambda x: safe(jnp.sqrt, x, x[2] > 0).sum(),
    "one case": lambda x: lax.select_n(x > 0, x) * safe(jnp.sqrt, x, x > 0),
    "norm at zero": lambda x: safe(jnp.sqrt, (0 * x).sum(), (0 * x).sum() > 0) * x,
    "distances": distances,
    "two in a row": lambda x: safe(lambda y: jnp.sqrt(jnp.sqrt(y)), x, x > 0),
    "slices": lambda x: jnp.concatenate([safe(jnp.sqrt, x[:2], x[:2] > 0), x[1:]])[::-1],
    "cumulative sum": lambda x: jnp.cumsum(safe(jnp.sqrt, x, x > 0)) * x,
    "padded": lambda x: jnp.pad(safe(jnp.sqrt, x, x > 0), 1) ** 2,
    "vmap of cond": jax.vmap(lambda x: lax.cond(x > 0, jnp.sqrt, lambda x: 0 * x, x)),
    "vmap of cond twice": jax.vmap(lambda x: lax.cond(x > 0, lambda x: jnp.log(x) / x, lambda x: x,
        x)),
    "scalar conds": by_scalar_conds, "three cases": by_three_cases,
    "complex": lambda x: jnp.abs(jnp.where(x > 0, phased(jnp.where(x > 0, x, 0)), 1.0)),
    "beta": lambda x: stats.beta.logpdf(jnp.abs(x) / 4, 2.0, 3.0),
    "clamp": lambda x: jnp.sqrt(lax.clamp(0.0, safe(jnp.sqrt, x, x > 0), 1.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_masks(name):
    if name == "one case" and jax.__version_info__ < (0, 11):
        pytest.skip("this JAX cannot differentiate it itself")
    assert compare(PROGRAMS[name], X) > 0.1


def test_a_row_that_is_shut_out_meets_one_that_is_not():
    """In every order; a product may be masked entry by entry in one factor only."""
    weights, rows = np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([[0.0, 0.0], [1.0, 2.0]])

    def fun(x):
        return weights @ jnp.where(rows @ x > 0, jnp.sqrt(rows @ x), 0.0)

    x = np.array([1.0, 0.5])
    expected = weights @ np.diag([0, 0.5 / np.sqrt(2)]) @ rows
    graph = veenv.make_graph(fun)(x)
    for order in itertools.permutations(graph.eliminable):
        found = by_numpy.run(veenv.jacve(fun, order, kernel="xla"), x)
        np.testing.assert_allclose(found, expected, atol=1e-12, err_msg=str(order))


@pytest.mark.parametrize(("n", "rank"), spared([(2, 1), (3, 0), (3, 1), (4, 2)], (3, 1)))
def test_determinants_of_singular_matrices(n, rank):
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))
    assert compare(jnp.linalg.det, matrix, 0) == 1.0


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev, veenv.jacve])
def test_second_derivatives_stay_masked(outer):
    def fun(x):
        return safe(jnp.sqrt, x, x > 0)

    found, expected = together([outer(veenv.jacve(fun)), jax.jacfwd(jax.jacrev(fun))], X)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_one_select_behind_is_enough():
    """Better than `jax.jacrev`, which has 0 · inf there."""

    def fun(x):
        return jnp.where(x > 0, jnp.sqrt(x), 0.0)

    for order in ("forward", "reverse"):
        np.testing.assert_array_equal(veenv.jacve(fun, order)(X), np.diag([0, 0.25, 0]))


CHAINS: dict[str, tuple[Callable, np.ndarray, np.ndarray]] = {
    "two selects": (lambda x: jnp.where(x > 2, jnp.where(x > 0, x, 0.0), 0.0),
        np.array([-1.0, 1.0, 4.0, 9.0]), np.array([0.0, 0.0, 1.0, 1.0])),
    "beside what is not masked": (lambda x: jnp.concatenate([jnp.where(x[:2] > 0, x[:2], 0.0),
        x[2:]]), np.array([-1.0, 4.0, 1.0, 9.0]), np.array([0.0, 1.0, 1.0, 1.0])),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_shut_out_stays_so_on_its_way_to_infinity(name):
    """Better than `jax.jacfwd`, which has 0 · inf at the square root of zero."""
    fun, x, passed = CHAINS[name]
    root = lambda x: jnp.sqrt(fun(x))  # noqa: E731
    slope = np.where(passed, 0.5 / np.sqrt(np.abs(x)), 0.0)
    for order in itertools.permutations(veenv.make_graph(root)(x).eliminable):
        found = veenv.jacve(root, order, kernel="xla")(x)
        np.testing.assert_allclose(found, np.diag(slope), err_msg=str(order))


def test_what_is_shut_out_stays_so_behind_a_solve_for_each_row():
    factors = jnp.array([[[1.0, 0.0], [-0.5, 1.0]], [[2.0, 0.0], [-1.0, 1.0]]])

    def root(x):
        shut = jnp.where(x[:, :1] > 0, x, 0.0)[..., None]
        return jnp.sqrt(lax.linalg.triangular_solve(factors, shut, left_side=True, lower=True))

    x = np.array([[-1.0, 4.0], [9.0, 1.0]])
    every = [jax.jacrev(root), *(veenv.jacve(root, o) for o in ("forward", "reverse", "markowitz"))]
    expected, *found = quick_jit(lambda x: [jacobian(x)[..., 0, :, :] for jacobian in every])(x)
    for jacobian in found:
        np.testing.assert_array_equal(jacobian[0, :, 0], 0)
        np.testing.assert_allclose(jacobian[1, :, 1], expected[1, :, 1], rtol=1e-6)


def test_a_large_sum_is_masked_where_a_mask_shuts_out_all():
    """More products than are masked one by one: the common mask of a row or column."""
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(40, 40)))

    def fun(x):
        inner = (x > 0).astype(x.dtype) * (weights @ safe(jnp.sqrt, x, x > 0)) ** 2
        return weights @ safe(jnp.sqrt, inner, x > 0)

    x = np.linspace(-1, 1, 40)
    assert edge_product._SMALL < 40**3
    assert compare(fun, x) == 1.0


MOVES: dict[str, Callable] = {
    "gather": lambda x: x[jnp.array([0, 0, 2, 1])],
    "scatter": lambda x: jnp.zeros(4).at[jnp.array([3, 1, 1, 0])].add(x),
    "dynamic slice": lambda x: lax.dynamic_slice(jnp.concatenate([x, x]), (x.size // 2,), (4,)),
    "sort": lambda x: jnp.sort(x)[::-1],
    "cumulative sum": lambda x: jnp.cumsum(x[::-1]),
}


@pytest.mark.parametrize("name", spared(MOVES, "gather", "sort"))
def test_entries_that_are_moved_are_masked_by_themselves(name):
    """A loop has NaN where an infinite number enters it, in its own column only."""

    def fun(x):
        y = jax.nn.relu(MOVES[name](x))
        products = lax.scan(lambda c, v: (jnp.tanh(c + v), c * v), 0.0, y)[1]
        return jnp.clip(products, -1.0, 1.5)

    x = np.array([1.9, -0.7, np.inf, np.nan])
    every = itertools.permutations(veenv.make_graph(fun)(x).eliminable)
    found = [veenv.jacve(fun, order) for order in itertools.islice(every, 6)]
    rev, fwd, *got = together([jax.jacrev(fun), jax.jacfwd(fun), *found], x)
    sure = np.isfinite(rev) & np.isfinite(fwd) & np.isclose(rev, fwd)
    for values in got:
        np.testing.assert_allclose(values[sure], rev[sure], atol=1e-12)


@pytest.mark.parametrize("name", ["distances", "dot inside", "slices", "three cases", "padded"])
def test_counts_are_those_of_the_emitted_program(name):
    assert_emitted_counts(PROGRAMS[name], (X,), (0,), num_random=2)


@given(seed=st.integers(0, 100_000))
@settings(max_examples=few(3, of=100))
def test_random_masked_programs(seed):
    fun, x = random_masked_program(seed)
    assert compare(fun, x) > 0


@on_seeds(1, 60)
def test_random_masked_programs_at_infinite_points(seed):
    fun, x = random_masked_program(seed)
    rng = np.random.default_rng(seed)
    compare(fun, np.where(rng.random(3) < 0.4, rng.choice([np.inf, -np.inf, np.nan], 3), x))
