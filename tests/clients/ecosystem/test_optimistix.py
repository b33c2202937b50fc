"""Nonlinear solves: roots, least squares, fixed points and minima, differentiated implicitly."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from tests.clients.ecosystem.check import jacobian_test, library
from tests.engine.corpus.case import case, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
optx = library("optimistix")
TIGHT = {"rtol": 1e-12, "atol": 1e-12}
X = uniform(3)


def _equations(y, x):
    return jnp.stack(
        [
            y[0] ** 3 + y[1] - x[0],
            jnp.tanh(y[1]) + 2.0 * y[1] - x[1] * y[2],
            y[2] + 0.1 * y[0] - x[2],
        ]
    )


def _root(solver, **options):
    def fun(x):
        found = optx.root_find(_equations, solver, 0.5 + 0.0 * x, args=x, max_steps=200, **options)
        return found.value * jnp.sin(x)

    return fun


def _interval(x):
    """A scalar root between two bounds."""
    solver, options = optx.Bisection(**TIGHT), {"lower": 0.0, "upper": 3.0}
    return optx.root_find(
        lambda y, a: y**3 + a[0] * y - a[1] - a[2], solver, jnp.asarray(1.0), x, options=options
    ).value


def _fixed_point(solver):
    def fun(x):
        return optx.fixed_point(
            lambda y, a: 0.4 * jnp.cos(y * a) + 0.2 * jnp.roll(y, 1), solver, jnp.zeros(3), x
        ).value

    return fun


def _minimum(solver):
    def energy(y, a):
        return jnp.sum((y - a) ** 2) + 0.1 * jnp.sum(y**4) + 0.3 * y[0] * y[1] * a[2]

    return lambda x: optx.minimise(energy, solver, jnp.full(3, 0.4), x, max_steps=500).value


UNROLLED = {"adjoint": optx.RecursiveCheckpointAdjoint()}
CASES = [
    case("root_bisection", _interval, X),
    case("root_unrolled", _root(optx.Newton(**TIGHT), **UNROLLED), X),
    case("fixed_point_newton", _fixed_point(optx.Newton(**TIGHT)), normal(3)),
    case("minimum_gradient_descent", _minimum(optx.GradientDescent(0.1, **TIGHT)), X),
]


test_jacobian = jacobian_test(CASES)
