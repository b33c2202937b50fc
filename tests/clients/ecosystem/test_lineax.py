"""Linear solves with structured operators, and of least squares."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.ecosystem.check import jacobian_test, library
from tests.engine.corpus.case import case, normal

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
lx = library("lineax")

A, B = normal(4, 4) + 3.0 * np.eye(4), normal(4)
TALL, LONG = normal(6, 3), normal(6)
TIGHT = {"rtol": 1e-13, "atol": 1e-13}
POSITIVE = lx.positive_semidefinite_tag


def _solve(solver, tags=frozenset()):
    """The solution of a system, by its matrix and its right-hand side."""

    def fun(matrix, vector):
        operator = lx.MatrixLinearOperator(jnp.sin(matrix) + 2.0 * matrix, tags)
        return lx.linear_solve(operator, jnp.exp(vector), solver).value * vector[:1]

    return fun


def _tridiagonal(diagonal, lower, upper, vector):
    operator = lx.TridiagonalLinearOperator(3.0 + diagonal**2, lower, upper)
    return lx.linear_solve(operator, vector, lx.Tridiagonal()).value


def _matrix_free(x, vector):
    """CG with an operator that is only known by what it does."""
    shape = jax.ShapeDtypeStruct((4,), jnp.float64)
    operator = lx.FunctionLinearOperator(lambda v: (2.0 + x**2) * v + x * (x @ v), shape, POSITIVE)
    return lx.linear_solve(operator, vector, lx.CG(**TIGHT)).value


def _newton_step(x):
    """One step of Newton's method with the function's Jacobian as the operator."""

    def residual(y, args):
        return y**3 + jnp.roll(y, 1) + 4.0 * y - x

    operator = lx.JacobianLinearOperator(residual, x)
    return x - lx.linear_solve(operator, residual(x, None), lx.LU()).value


def _log_likelihood(matrix, vector):
    """A Gaussian's log density, with one factorisation for the solve and the determinant."""
    operator = lx.MatrixLinearOperator(matrix @ matrix.T + jnp.eye(4), POSITIVE)
    solver = lx.Cholesky()
    state = solver.init(operator, {})
    quadratic = vector @ lx.linear_solve(operator, vector, solver, state=state).value
    return 0.5 * quadratic + jnp.linalg.slogdet(operator.as_matrix())[1]


BOTH = {"argnums": (0, 1)}
CASES = [
    case("svd_least_squares", _solve(lx.SVD()), TALL, LONG, **BOTH),
    case("cg_matrix_free", _matrix_free, normal(4), B, tol=1e-7, **BOTH),
    case("tridiagonal", _tridiagonal, B, B[:3], B[1:], B, argnums=(0, 1, 3)),
    case("auto_in_vmap", jax.vmap(_solve(lx.AutoLinearSolver(well_posed=None)), (None, 0)), A,
        normal(2, 4), **BOTH),
    case("newton_step", _newton_step, B),
    case("log_likelihood", _log_likelihood, A, B, **BOTH),
]  # fmt: skip


test_jacobian = jacobian_test(CASES)
