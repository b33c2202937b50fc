"""What an elimination emits: the side operators are passed from, sums of pieces."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same
from veenv import _compat
from veenv.orders.resolve import resolve_order

X = np.linspace(0.3, 1.7, 24)


def equations_of(jacobian, x):
    return _compat.open_jaxpr(jax.make_jaxpr(jacobian)(x)).eqns


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
    made = [v.aval.size for e in equations_of(jacobian, x) for v in e.outvars]  # around the loop
    assert max(made) < X.size**2


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_mask_that_goes_with_an_axis_leaves_products_of_matrices_as_they_are(order, x64):
    """Of three such products one is the function's and one is by a diagonal."""
    wide, narrow = np.sin(np.arange(20.0)).reshape(4, 5), np.cos(np.arange(15.0)).reshape(5, 3)

    def f(x):
        y = narrow @ x
        return wide @ jnp.where(y > 0, jnp.sin(y), 0.0)

    ids = getattr(veenv.make_graph(f)(X[:3]), order)()
    jacobian = veenv.jacve(f, ids, kernel="xla")
    assert_compiled_same([(jacobian, jax.jacrev(f))], X[:3])
    names = [e.primitive.name for e in equations_of(jacobian, X[:3])]
    assert names.count("dot_general") == 2


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
