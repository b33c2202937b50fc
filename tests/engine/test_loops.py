"""Functions that are loops, mostly: one of JAX's modes is taken where it does less."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import veenv
from tests.oracles import by_numpy
from tests.oracles.jacobians import quick_jit

pytestmark = pytest.mark.kernels

X, W = np.array([0.3, -0.2, 0.5]), np.linspace(-0.4, 0.6, 9).reshape(3, 3)


def steps(x, w, length=1000):
    """States of a recurrent network: two operators, into one loop."""
    return jax.lax.scan(lambda c, _: (jnp.tanh(w @ c + x), c), x, None, length=length)[0]


def wide(x):
    return steps(x, jnp.outer(x, x))


def solved(x, length=3):
    """A short loop that no kernel has."""

    def step(c, _):
        return jnp.linalg.eigvalsh(jnp.diag(jnp.arange(3.0) + 4) + jnp.outer(c, x)), None

    return jax.lax.scan(step, jnp.sin(x), None, length=length)[0]


def waist(x):
    """A loop of one number between many."""
    one = jax.lax.scan(lambda c, _: (jnp.sin(c) * c, None), jnp.sum(x * x), None, length=10000)[0]
    return one * jnp.cos(x)


def mapped(x):
    """A loop for each number: its partials are diagonal."""
    one = lambda c: jax.lax.scan(lambda c, _: (c - jnp.sin(c), None), c, None, length=10000)[0]  # noqa: E731
    return jax.vmap(one)(jnp.cos(x)) * x


def beside(x):
    """A short loop, and more of something else."""
    big = jnp.tanh(jnp.outer(jnp.arange(4000.0), x)).sum(0)
    return jax.lax.scan(lambda c, _: (jnp.sin(c) * x, None), big, None, length=4)[0]


def test_a_mode_is_said_to_be_taken():
    """One of few passes, or one that keeps no tape of many steps."""
    for fun in (wide, solved, waist, mapped):
        rows = veenv.explain(fun, X.astype(np.float32)).rows
        assert {row.label.split(",")[0].split(" ")[0] for row in rows if row.taken} == {"jacfwd"}


@pytest.mark.parametrize("fun", [wide, solved, waist, mapped, beside], ids=lambda f: f.__name__)
def test_values(x64, fun):
    points = np.stack([X, X + 0.1, X - 0.2])
    ways = itertools.product(("reverse", "auto"), ("auto", "xla"))
    every = [jax.jacrev(fun), *(veenv.jacve(fun, order, kernel=kernel) for order, kernel in ways)]
    expected, *found = quick_jit(lambda x: [jax.vmap(f)(x) for f in every])(points)
    for jacobian in found:
        np.testing.assert_allclose(jacobian, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("kernel", ["auto", "xla"])
@pytest.mark.parametrize("order", ["reverse", "auto"])
def test_values_auxiliaries_and_several_arguments(x64, order, kernel):
    def fun(x, w, scale):
        return {"last": steps(x, w) * scale}, {"scale": scale, "name": None}

    both = veenv.value_and_jacve(fun, order, argnums=(1, 0), has_aux=True, kernel=kernel)
    (value, aux), found = quick_jit(both)(X, W, 2.0)
    expected, _ = quick_jit(jax.jacrev(fun, argnums=(1, 0), has_aux=True))(X, W, 2.0)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert veenv.tree_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(value["last"], fun(X, W, 2.0)[0]["last"], rtol=1e-12)
    assert aux["name"] is None
    np.testing.assert_allclose(aux["scale"], 2.0)


def test_dtypes_and_weak_types():
    x = X.astype(np.float32)
    found, expected = (jax.eval_shape(m(solved), x) for m in (veenv.jacve, jax.jacrev))
    assert (found.dtype, found.weak_type) == (expected.dtype, expected.weak_type)
    loss = lambda a, x: solved(a * x).sum()  # noqa: E731
    both = lambda *a: veenv.value_and_jacve(loss, argnums=(1, 0))(*a)[1][1]  # noqa: E731
    for jacobian in (jax.jacrev(loss), veenv.jacve(loss), both):
        assert jax.eval_shape(jacobian, 1.0, x).weak_type


def test_values_of_a_trace_around_it(x64):
    def around(w, points):
        return jax.vmap(veenv.jacve(lambda x: steps(x, w)))(0.9 * points)

    points = np.stack([X, X + 0.1])
    expected = quick_jit(jax.vmap(jax.jacrev(lambda x: steps(x, W))))(0.9 * points)
    with jax.checking_leaks():
        np.testing.assert_allclose(quick_jit(around)(W, points), expected, rtol=1e-10)


@pytest.mark.parametrize("kernel", ["auto", "xla"])
def test_devices_that_differ_in_some_of_the_values_eliminate(x64, kernel):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    points = np.stack([X, X + 0.1])
    jacobian = jax.vmap(veenv.jacve(steps, argnums=(0, 1), kernel=kernel), (0, None))
    shared = jax.shard_map(jacobian, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
    expected = quick_jit(jax.vmap(jax.jacfwd(steps, (0, 1)), (0, None)))(points, W)
    for a, b in zip(quick_jit(shared)(points, W), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_two_sources_of_one_loop_pass_through_it_apart(x64):
    """Its results share their passes, in every order, but not those of different operands."""

    def fun(x, y):
        step = lambda c, a: (jnp.sin(W[:2, :2] @ c) * a, c.sum() * c)  # noqa: E731
        end, seen = jax.lax.scan(step, x * y, jnp.array([1.0, 2.0]))
        return seen * 2, end

    args = np.array([0.3, -0.7]), np.array([1.1, 0.4])
    orders = itertools.permutations(veenv.make_graph(fun, (0, 1))(*args).eliminable)
    every = [jax.jacrev(fun, (0, 1)), *(veenv.jacve(fun, o, (0, 1), kernel="xla") for o in orders)]
    expected, *found = by_numpy.run(lambda *a: [jacobian(*a) for jacobian in every], *args)
    for jacobian in found:
        assert veenv.tree_allclose(jacobian, expected, rtol=1e-9, atol=1e-12)
