"""graphax's names and conventions: one import changed, its users' code runs."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same, assert_same
from veenv import graphax
from veenv.engine.graphax import filter_jacve, jacve, tree_allclose, vertex_elimination_jaxpr

pytestmark = pytest.mark.usefixtures("x64")

X, Y = np.array([0.3, -0.7, 1.1]), np.array([0.9, 0.4, -1.2])
ORDERS = ["fwd", "forward", "rev", "reverse", [1, 2, 3], [2, 1, 3]]


def product(x, y):
    return jnp.cos(jnp.sin(x * y)) * y


def several(x, y):
    return x * y, jnp.sin(x).sum()


def test_the_module_is_reached_as_the_documentation_says():
    assert graphax is veenv.graphax
    assert set(graphax.__all__) <= set(dir(graphax))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_several_arguments_make_a_tuple(order):
    given = (range(2), (0, 1)), ([0, 1], (0, 1)), ((0, 1), (0, 1)), ((1, 0), (1, 0))
    pairs = [(jacve(product, order, nums), jax.jacrev(product, same)) for nums, same in given]
    assert_compiled_same(pairs, X, Y)


def test_one_argument_makes_none_and_the_default_is_the_first():
    expected = jax.jacrev(product)(X, Y)
    assert_same(jacve(product, "rev")(X, Y), expected)
    assert_same(jacve(product, "rev", argnums=(0,))(X, Y), expected)
    assert_same(jacve(product, "rev", argnums=[1])(X, Y), jax.jacrev(product, 1)(X, Y))


def test_the_one_output_of_a_function_of_one_array_is_in_a_tuple():
    """As `jax.jacrev` has it with ``argnums=(0,)``, which graphax's users compare with."""
    assert_same(jacve(jnp.sin, "rev")(X), jax.jacrev(jnp.sin, argnums=(0,))(X))


def test_several_outputs_make_a_flat_tuple():
    assert_same(jacve(several, "fwd")(X, Y), jax.jacrev(several)(X, Y))
    both = jax.jacrev(several, argnums=(0, 1))(X, Y)
    assert_same(jacve(several, "fwd", (0, 1))(X, Y), both)
    tree = jacve(lambda x, y: {"b": x * y, "a": [y]}, "fwd", (0, 1))(X, Y)
    assert_same(tree[1], jax.jacrev(lambda x, y: x * y, argnums=(0, 1))(X, Y))
    assert not np.asarray(tree[0][0]).any()


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_counts_are_a_dictionary(jit):
    run = jacve(product, "rev", argnums=range(2), count_ops=True)
    blocks, counts = (jax.jit(run) if jit else run)(X, Y)
    assert_same(blocks, jax.jacrev(product, argnums=(0, 1))(X, Y))
    _, ours = veenv.jacve(product, "rev", (0, 1), count_ops=True)(X, Y)
    assert counts["num_muls"] == ours.multiplications
    assert counts["num_adds"] == ours.additions
    per_vertex = zip(ours.order, ours.multiplications_per_vertex, strict=True)
    assert [tuple(map(int, pair)) for pair in counts["order_counts"]] == list(per_vertex)


def test_has_aux_puts_the_value_in_front():
    value, jacobian = jacve(product, "rev", has_aux=True)(X, Y)
    assert_same((value, jacobian), (product(X, Y), jax.jacrev(product)(X, Y)))
    values, jacobians = jacve(several, "rev", argnums=(0, 1), has_aux=True)(X, Y)
    assert_same(values, tuple(several(jnp.asarray(X), Y)))
    assert_same(jacobians, jax.jacrev(several, argnums=(0, 1))(X, Y))
    values, jacobians = jacve(jnp.sin, "rev", has_aux=True)(X)
    assert_same((values, jacobians), ((jnp.sin(X),), (jax.jacrev(jnp.sin)(X),)))


def test_sparse_blocks_are_made_dense_with_a_unit_matrix():
    def fun(x, y):
        return jnp.sin(x), x @ y

    rows = jacve(fun, "rev", argnums=(0, 1), sparse_representation=True)(X, Y)
    assert isinstance(rows[0][0], graphax.SparseTensor)
    assert rows[0][1] is None  # the first output does not depend on y
    np.testing.assert_allclose(rows[0][0].dense(jnp.eye(3)), np.diag(np.cos(X)))
    np.testing.assert_allclose(rows[1][0].dense(None), Y)
    zeros = graphax.sparse_tensor_zeros_like(rows[0][0])
    assert (zeros.shape, zeros.nse, float(abs(zeros.dense()).sum())) == ((3, 3), 0, 0.0)


def test_a_jaxpr_gives_lists():
    closed = jax.make_jaxpr(several)(X, Y)
    rows = vertex_elimination_jaxpr(closed.jaxpr, "rev", closed.consts, X, Y, argnums=range(2))
    assert_same(rows, list(jax.jacrev(several, argnums=(0, 1))(X, Y)))
    rows, counts = vertex_elimination_jaxpr(closed, "rev", (), X, Y, count_ops=True)
    assert_same(rows, list(jax.jacrev(several)(X, Y)))
    assert set(counts) == {"num_muls", "num_adds", "order_counts"}
    values, _ = vertex_elimination_jaxpr(closed, "rev", (), X, Y, has_aux=True)
    assert_same(values, list(several(jnp.asarray(X), Y)))


def test_filter_jacve():
    model = eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))

    def loss(model, x):
        return jnp.mean(model(x) ** 2)

    @eqx.filter_jit
    def run(model, x):
        ours = filter_jacve(loss, order="rev"), filter_jacve(order="fwd")(loss)
        return eqx.filter_grad(loss)(model, x), [jacobian(model, x) for jacobian in ours]

    expected, found = run(model, X)
    assert all(tree_allclose(blocks, expected) for blocks in found)
    blocks, counts = filter_jacve(loss, order="rev", count_ops=True)(model, X)
    assert tree_allclose(blocks, expected)
    assert counts["num_muls"] > 0
    with pytest.raises(ValueError, match="argnums"):
        filter_jacve(loss, order="rev", argnums=(0,))


def test_tree_allclose_has_graphaxs_tolerance():
    assert tree_allclose((X, Y), (X * (1 + 5e-5), Y + 5e-6))
    assert not tree_allclose((X, Y), (X * 1.001, Y))
    assert not tree_allclose((X, Y), [X, Y])
    assert not tree_allclose(X, X[:, None])
    nan = np.array([np.nan])
    assert not tree_allclose(nan, nan)
    assert tree_allclose(nan, nan, equal_nan=True)
    assert jax.jit(tree_allclose)((X,), (X,))
