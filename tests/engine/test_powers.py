"""Powers of one value that are stored are computed as one array, and as exactly as alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from veenv import _compat
from veenv.engine.powers import joined

X = np.linspace(0.2, 2.0, 7)


def pulls(exponent):
    """Forces between all pairs of points: a power and its slope, both used many times."""

    def fun(x):
        d = x[:, None, :] - x[None, :, :]
        r = jnp.sum(d * d, -1) + 0.1
        return jnp.sum(d * r[..., None] ** exponent, 1)

    return fun


def spread(exponent):
    return lambda x: jnp.outer(x**exponent, jnp.sin(x**exponent) * x)


def powers_of(fun, *args) -> int:
    """The number of powers that the compiler is given."""
    return jax.jit(fun).lower(*args).as_text().count("stablehlo.power")


def points(shape=(9, 3), size=64):
    return np.random.default_rng(0).normal(size=(size, *shape)).astype(np.float32)


@pytest.mark.parametrize("order", ["auto", "reverse", "forward"])
def test_a_power_and_its_slope_are_one(order):
    jacobian = jax.vmap(veenv.jacve(pulls(-1.5), order, kernel="xla"))
    assert powers_of(jacobian, points()) == (1 if _compat.STACKED_POWERS else 2)
    assert powers_of(jax.vmap(jax.jacfwd(pulls(-1.5))), points()) > 1


@pytest.mark.parametrize("exponent", [0.5, -0.5, 1.5])
def test_what_is_computed_faster_otherwise_stays_by_itself(exponent):
    jacobian = jax.vmap(veenv.jacve(pulls(exponent), "reverse", kernel="xla"))
    text = jax.jit(jacobian).lower(points()).as_text()
    assert text.count("stablehlo.power") == 2
    assert "tensor<64x2x9x9" not in text


def test_nothing_is_joined_that_is_not_stored():
    def once(x):
        return x**-1.5 + x**2.5

    assert powers_of(jax.vmap(veenv.jacve(once, kernel="xla")), points((5,), 4096)) == 2


@pytest.mark.parametrize("exponent", [-2.5, -1.5, 1.3, 2.7, 0.3])
@pytest.mark.parametrize("order", ["auto", "reverse", "forward"])
def test_values_are_those_of_jacrev(exponent, order, x64):
    fun, x = spread(exponent), np.stack([X, 3 * X, X / 7])
    found = jax.jit(jax.vmap(veenv.jacve(fun, order, kernel="xla")))(x)
    wanted = jax.vmap(jax.jacrev(fun))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("exponent", [-1.5, 1.3, 0.3])
def test_so_they_are_where_powers_end(exponent, x64):
    x = np.array([0.0, np.inf, 1e-300, 1e200, -1.0, 1.0])
    fun = lambda x: jnp.stack([x**exponent, 3 * x**exponent])  # noqa: E731
    found = jax.vmap(veenv.jacve(fun, kernel="xla"))(x)
    np.testing.assert_allclose(found, jax.vmap(jax.jacfwd(fun))(x), rtol=1e-13)


def test_derivatives_of_the_jacobian(x64):
    x = np.random.default_rng(1).normal(size=(3, 5, 3))
    fun = pulls(-1.5)
    found = jax.vmap(jax.jacfwd(veenv.jacve(fun, "reverse", kernel="xla")))(x)
    wanted = jax.vmap(jax.jacfwd(jax.jacrev(fun)))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(not _compat.STACKED_POWERS, reason="powers are not joined")
def test_they_are_in_the_order_of_the_program():
    def fun(x):
        value = lax.pow(x, np.float32(-1.5))
        used = jnp.sin(value)
        slope = lax.optimization_barrier(lax.pow(x, np.float32(-2.5)))
        return used, slope, lax.optimization_barrier(value)

    equations = jax.make_jaxpr(fun)(np.float32(X)).jaxpr.eqns
    stored = {e.outvars[0]: 1 for e in equations if e.primitive.name == "optimization_barrier"}
    (group,) = joined(equations, stored)
    assert [float(e) for e in group.exponents] == [-1.5, -2.5]
    assert group.results == tuple(e.outvars[0] for e in equations if e.primitive.name == "pow")
    assert group.barriers == frozenset(stored)


def test_powers_with_unknown_exponents_are_left_alone():
    def fun(x, e):
        y = x**e
        return jnp.outer(y, jnp.sin(y))

    x = points((7,))
    jacobian = jax.vmap(veenv.jacve(fun, "reverse", kernel="xla"), (0, None))
    wanted = jax.vmap(jax.jacrev(fun), (0, None))
    found = jacobian(np.abs(x), np.float32(1.7))
    np.testing.assert_allclose(found, wanted(np.abs(x), np.float32(1.7)), rtol=2e-5)
