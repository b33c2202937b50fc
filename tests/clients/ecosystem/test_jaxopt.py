"""Solutions of optimisation problems by jaxopt, implicit and unrolled; projections and losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.clients.ecosystem.check import jacobian_test, library
from tests.engine.corpus.case import case, definite, distinct, normal, uniform

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
jaxopt = library("jaxopt")
from jaxopt import projection, prox
from jaxopt.implicit_diff import custom_root

A, B = normal(5, 3), normal(5)
LIMITS = {"maxiter": 300, "tol": 1e-12}


def _loss(weights, strength, target):
    return jnp.mean((A @ weights - target) ** 2) + 0.5 * strength * jnp.sum(weights**2)


def _minimum(solver, **options):
    """Ridge regression, by its strength and its targets."""

    def fun(strength, target):
        return solver(_loss, **{**LIMITS, **options}).run(jnp.zeros(3), strength, target).params

    return fun


@custom_root(jax.grad(_loss))
def _ridge(start, strength, target):
    """A closed form whose derivative comes from the condition that it fulfils."""
    del start
    return jnp.linalg.solve(A.T @ A / 5 + 0.5 * strength * jnp.eye(3), A.T @ target / 5)


def _lasso(strength, target):
    """Proximal gradient steps to a minimum with a kink."""
    solver = jaxopt.ProximalGradient(
        lambda w, t: jnp.mean((A @ w - t) ** 2), prox.prox_lasso, maxiter=500, tol=1e-10
    )
    return solver.run(jnp.zeros(3), strength, target).params


def _projected(target):
    """Least squares within the simplex."""
    solver = jaxopt.ProjectedGradient(
        lambda w, t: jnp.sum((w - t) ** 2), projection.projection_simplex, maxiter=200, tol=1e-10
    )
    return solver.run(jnp.full(3, 1.0 / 3.0), hyperparams_proj=1.0, t=target).params


def _anderson(x):
    solver = jaxopt.AndersonAcceleration(lambda y, x: 0.4 * jnp.cos(y * x) + 0.1, **LIMITS)
    return solver.run(jnp.zeros(3), x).params


def _quadratic(Q, c):
    """A quadratic programme with one equality, by its conditions of optimality."""
    solver = jaxopt.EqualityConstrainedQP()
    solution = solver.run(
        params_obj=(Q @ Q.T, c), params_eq=(jnp.ones((1, 3)), jnp.array([0.7]))
    ).params
    return solution.primal


def _levenberg_marquardt(x, **options):
    def residual(y, x):
        return jnp.stack([y[0] ** 2 + y[1] - x[0], y[1] ** 3 - x[1] * y[0], y[0] - 0.3 * x[2]])

    solver = jaxopt.LevenbergMarquardt(residual, **LIMITS, **options)
    return solver.run(jnp.array([1.0, 0.5]), x).params


STRENGTH = np.asarray(0.4)
BOTH = {"argnums": (0, 1), "tol": 1e-7}
CASES = [
    case("bfgs", _minimum(jaxopt.BFGS), STRENGTH, B, **BOTH),
    case("custom_root", lambda s, t: _ridge(None, s, t), STRENGTH, B, **BOTH),
    case("lasso", _lasso, np.asarray(0.05), B, **BOTH),
    case("projected_gradient", _projected, distinct(3), tol=1e-7),
    case("anderson_fixed_point", _anderson, uniform(3), tol=1e-7),
    case("equality_constrained", _quadratic, definite(3), normal(3), **BOTH),
    case("levenberg_marquardt", _levenberg_marquardt, uniform(3), tol=1e-7),
]  # fmt: skip


test_jacobian = pytest.mark.filterwarnings("ignore::DeprecationWarning")(jacobian_test(CASES))


@pytest.mark.parametrize("solver", ["cholesky", "inv"])
@pytest.mark.filterwarnings("ignore:The linear solver")
def test_derivatives_of_a_kernel(solver):
    fun = lambda x: _levenberg_marquardt(x, solver=solver)  # noqa: E731
    wanted = jax.jacrev(fun)(uniform(3))
    np.testing.assert_allclose(jax.jacrev(veenv.fuse(fun))(uniform(3)), wanted, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"implicit_diff": False}, {"history_size": 20}], ids=str)
def test_steps_within_bounds_are_a_kernel(options):
    """Their systems are twice as large as the history."""
    bounds = jnp.full(2, -0.5), jnp.full(2, 0.5)

    def fun(x):
        loss = lambda y, x: jnp.sum((y - x) ** 2) + 0.1 * jnp.sum(y**4)  # noqa: E731
        solver = jaxopt.LBFGSB(loss, maxiter=20, **options)
        return solver.run(jnp.zeros(2), bounds=bounds, x=x).params

    x = jnp.array([[0.7, -0.4], [0.2, 0.9]])
    found, wanted = (jax.jit(jax.vmap(f))(x) for f in (veenv.fuse(fun), fun))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
