"""What an elimination emits: the side operators are passed from, sums of pieces, the default."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same, quick_jit
from veenv import _compat
from veenv.engine import candidates, choose
from veenv.orders.resolve import resolve_order

X = np.linspace(0.3, 1.7, 24)


def equations_of(jacobian, *args):
    return list(_compat.open_jaxpr(jax.make_jaxpr(jacobian)(*args)).eqns)


def largest(jacobian, *args) -> int:
    """Size of the largest array that a program makes, its loops' insides left out."""
    return max(v.aval.size for e in equations_of(jacobian, *args) for v in e.outvars)


def gathered(x):
    """Two numbers out of a loop over values of functions of x."""
    start = jnp.ones(2, x.dtype)
    return jax.lax.scan(lambda c, s: (jnp.tanh(c * s) + c[::-1], None), start, jnp.sin(x))[0]


def scattered(x):
    """Functions of what a loop makes of two numbers."""
    steps = np.linspace(0.1, 1.0, 24)
    return jnp.sin(jax.lax.scan(lambda c, s: (jnp.cos(c * s), c[0] * c[1]), x, steps)[1])


@pytest.mark.parametrize(("fun", "order"), [(gathered, "reverse"), (scattered, "forward")])
def test_an_operator_that_meets_a_diagonal_is_passed_from_its_smaller_side(fun, order, x64):
    x = X if fun is gathered else X[:2]
    jacobian = veenv.jacve(fun, resolve_order(order, veenv.make_graph(fun)(x)))
    assert_compiled_same([(jacobian, jax.jacrev(fun))], x)
    assert largest(jacobian, x) < X.size**2


def test_infinity_that_a_select_shuts_out_stays_out_of_a_pulled_operator(x64):
    def f(x):
        return gathered(jnp.where(x > 0.5, jnp.sqrt(jnp.abs(x - 0.5)), 0.0))

    at = np.where(X < 0.5, 0.5, X)
    both = quick_jit(lambda x: (veenv.jacve(f, "reverse")(x), jax.jacrev(f)(x)))
    found, expected = both(at)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, at > 0.5], expected[:, at > 0.5], rtol=1e-9)


def assembled(x):
    """Two numbers of a matrix that outer products are scattered into."""
    e = jnp.stack([jnp.sin(x), jnp.cos(x), x], 1)
    pieces = e[:, :, None] * e[:, None, :]
    at = np.arange(24)[:, None] % 7 + np.arange(3)
    whole = jnp.zeros((9, 9), x.dtype).at[at[:, :, None], at[:, None, :]].add(pieces)
    return jnp.stack([jnp.sum(whole[0] * whole[1]), whole[2, 3] * whole[4, 4]])


def test_an_operator_that_meets_a_sum_beside_a_diagonal_is_passed_from_its_smaller_side(x64):
    jacobian = veenv.jacve(assembled, veenv.make_graph(assembled)(X).reverse())
    assert_compiled_same([(jacobian, jax.jacrev(assembled))], X)
    scatters = [
        e for e in equations_of(jacobian, X) if e.primitive.name in ("gather", "scatter-add")
    ]
    assert max(e.outvars[0].aval.size for e in scatters) <= 2 * 24 * 3 * 3


def rings(y):
    """Differences to neighbours on two rings, stacked."""
    u, v = y
    steps = [0.1 * (jnp.roll(z, 1) - 2 * z + jnp.roll(z, -1)) for z in (u, v)]
    return jnp.stack([steps[0] + u * v, steps[1] - u * v])


@pytest.mark.parametrize("order", ["forward", "reverse", "markowitz"])
def test_pieces_on_several_axes_are_written_once(order, x64):
    y = np.stack([X, X**2])
    ids = getattr(veenv.make_graph(rings)(y), order)()  # a name may stand for JAX's own mode
    jacobian = veenv.jacve(rings, ids)
    assert_compiled_same([(jacobian, jax.jacfwd(rings))], y)
    cut = [e for e in equations_of(jacobian, y) if e.primitive.name in ("slice", "pad")]
    assert not [e for e in cut if e.outvars[0].aval.size >= X.size * (X.size - 1)]


def whitened(theta):
    """A Cholesky factor of what three numbers say, one kept positive, and a solve with it."""
    x = jnp.linspace(0.0, 2.0, 8)
    cover = theta[0] ** 2 * jnp.exp(-((x[:, None] - x[None]) ** 2) / theta[1])
    noise = jnp.where(theta[2] > 0, theta[2], 0.1)  # which keeps JAX's modes out
    lower = jnp.linalg.cholesky(cover + noise**2 * jnp.eye(8))
    return jax.scipy.linalg.solve_triangular(lower, jnp.cos(x), lower=True)


def passes(fun, *args) -> list[list[tuple]]:
    """Solves in the programs of "reverse", of the ids of that order and of the forward one."""
    graph = veenv.make_graph(fun)(*args)
    orders = ("reverse", graph.reverse(), graph.forward())
    every = [equations_of(veenv.jacve(fun, order, kernel="xla"), *args) for order in orders]
    return [
        [e.outvars[0].aval.shape for e in found if e.primitive.name == "triangular_solve"]
        for found in every
    ]


def test_few_arguments_of_operators_are_pushed_forward_for_the_reverse_order(x64, monkeypatch):
    monkeypatch.setattr(candidates, "own_modes", lambda lin: ())
    theta = np.array([1.0, 0.4, 0.3])
    named, reverse, forward = passes(whitened, theta)
    assert named == forward != reverse
    assert_compiled_same([(veenv.jacve(whitened, "reverse"), jax.jacfwd(whitened))], theta)


def test_without_operators_or_with_many_arguments_reverse_is_kept(monkeypatch):
    monkeypatch.setattr(choose.Form, "seconds", None)  # nothing is compared
    for fun, x in ((lambda x: jnp.outer(x, jnp.asarray(X)), X[:3]), (gathered, X)):
        orders = "reverse", veenv.make_graph(fun)(x).reverse()
        named, reverse = (str(jax.make_jaxpr(veenv.jacve(fun, o))(x)) for o in orders)
        assert named == reverse


@pytest.mark.parametrize(("size", "compared"), [(8, False), (40, True)])
@pytest.mark.parametrize("fun", [jnp.sin, lambda x: jnp.roll(x, 1)], ids=["delta", "selection"])
def test_small_masks_are_constants_and_large_ones_are_compared(fun, size, compared, x64):
    x = np.linspace(0.1, 1.0, size)
    found = veenv.jacve(lambda x: fun(x) * x, "reverse", kernel="xla", pin=False)
    names = [e.primitive.name for e in equations_of(found, x)]
    assert ("iota" in names) == compared
    assert_compiled_same([(found, jax.jacrev(lambda x: fun(x) * x))], x)
