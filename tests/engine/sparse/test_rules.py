"""Sparse Jacobians through derivative rules that come with functions, entry by entry."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import check_sparse, quick_jit

pytestmark = pytest.mark.usefixtures("x64")

PAIRS = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3, 3])
RULED = {
    "stencil": (lambda x: jnp.sin(x[1:]) * x[:-1], 18),
    "roll": (lambda x: jnp.sin(x) + jnp.roll(x, 1) ** 2, 20),
    "gather": (lambda x: (x * x)[np.array([1, 4, 7])], 3),
    "scatter": (lambda x: jnp.zeros(12).at[np.arange(10) + 1].add(x**2), 10),
    "segment sum": (lambda x: jax.ops.segment_sum(x * x, PAIRS, 4), 10),
    "cumulative sum": (lambda x: jnp.cumsum(x * x), 55),
    "permutation and passing on": (lambda x: x[::-1] * x[0], 19),
}
KINDS = ("jvp", "vjp")


def ruled(fun, kind: str):
    """A function with a derivative rule of its own, which gives twice its derivative."""
    if kind == "jvp":
        own = jax.custom_jvp(fun)

        @own.defjvp
        def _(primals, tangents):
            value, tangent = jax.jvp(fun, primals, tangents)
            return value, jax.tree.map(lambda t: 2 * t, tangent)

    else:
        own = jax.custom_vjp(fun)
        own.defvjp(
            lambda *xs: (fun(*xs), xs),
            lambda xs, g: jax.tree.map(lambda c: 2 * c, jax.vjp(fun, *xs)[1](g)),
        )
    return own


@pytest.mark.parametrize("name", RULED)
@pytest.mark.parametrize("kind", KINDS)
def test_rules_are_followed(name: str, kind: str):
    fun, stored = RULED[name]
    check_sparse(ruled(fun, kind), jnp.arange(1.0, 11) / 7, stored=stored)


@pytest.mark.parametrize("kind", KINDS)
def test_rules_in_rules_in_a_batch_of_several_operands(kind: str):
    inner = ruled(lambda x: jnp.sin(x[1:]) * x[:-1], kind)
    outer = ruled(lambda x, y: jnp.roll(inner(x), 1) * y[::-1], kind)

    def fun(z):
        z = z.reshape(3, 9)
        return jax.vmap(outer)(z[:, :5], z[:, 5:])

    check_sparse(fun, jnp.arange(1.0, 28) / 9, stored=3 * (8 + 4))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_rule_of_tangents_around_one_of_cotangents(sparse: bool):
    """JAX has no tangents of the inner one."""
    inner = ruled(lambda x: jnp.sin(x[1:]) * x[:-1], "vjp")
    outer, x = ruled(lambda x: inner(x * x), "jvp"), jnp.arange(1.0, 7) / 9
    found = quick_jit(veenv.jacve(outer, sparse_representation=sparse))(x)
    np.testing.assert_allclose(np.asarray(found), np.asarray(quick_jit(jax.jacrev(outer))(x)))


@pytest.mark.parametrize("kind", KINDS)
def test_rules_in_loops(kind: str):
    shift = ruled(lambda x: jnp.roll(x, 1), kind)

    def fun(x):
        return lax.scan(lambda c, _: (shift(c) * 0.4, c[0]), x, None, length=3)[0]

    check_sparse(fun, jnp.arange(1.0, 8) / 9, stored=7)


def test_indices_of_a_rule_may_be_known_where_it_is_called():
    @jax.custom_jvp
    def pick(x, at):
        return x[at] ** 2

    @pick.defjvp
    def _(primals, tangents):
        x, at = primals
        return pick(x, at), 2 * x[at] * tangents[0][at]

    check_sparse(lambda x: pick(x, 2 * jnp.arange(4)), jnp.arange(1.0, 10) / 9, stored=4)


def test_batches_stay_batches_through_second_derivatives_of_determinants():
    """A gradient of determinants holds permutations by computed pivots, one for each matrix."""

    def fun(z):
        return jax.vmap(jax.grad(lambda f: jnp.log(jnp.linalg.det(f))))(z.reshape(4, 3, 3)).ravel()

    x = np.random.default_rng(1).normal(size=(4, 3, 3)) + 3 * np.eye(3)
    check_sparse(fun, jnp.asarray(x).ravel(), stored=4 * 81)


@pytest.mark.parametrize("twice", [False, True], ids=["once", "there and back"])
def test_what_a_permutation_leaves_out_meets_no_infinity(twice: bool):
    """Beside the infinite slope of a root at zero there is no NaN."""

    def fun(x, at):
        y = jnp.sqrt(x).reshape(3, 2)
        y = jnp.zeros((3, 2)).at[np.arange(3)[:, None], at].add(y) if twice else y
        return jnp.take_along_axis(y, at, axis=1)

    x, at = jnp.array([0.0, 1, 2, 3, 4, 0]), jnp.array([[1, 0], [0, 1], [1, 0]])
    found = quick_jit(veenv.jacve(fun, sparse_representation=True))(x, at)
    expected = np.zeros((3, 2, 6))
    for i, j in np.ndindex(3, 2):
        k = 2 * i + (j if twice else int(at[i, j]))
        expected[i, j, k] = np.inf if x[k] == 0 else 0.5 / np.sqrt(x[k])
    np.testing.assert_allclose(np.asarray(found), expected)
