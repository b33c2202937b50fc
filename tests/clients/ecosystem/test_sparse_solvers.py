"""Sparse Jacobians in the solvers of lineax, optimistix and diffrax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

lx = pytest.importorskip("lineax")
optx = pytest.importorskip("optimistix")
diffrax = pytest.importorskip("diffrax")

import veenv

pytestmark = pytest.mark.clients
N = 30


def ring(x, args=None):
    return x**3 + 4 * x - jnp.roll(x, 1) - 0.5 * jnp.roll(x, -1) - 1


def chain(x):
    return 4 * x + jnp.pad(x[1:] ** 2, (0, 1)) + jnp.pad(x[:-1], (1, 0))


def test_lineax_takes_the_operator(x64):
    x, b = jnp.linspace(0.1, 1.0, N), jnp.ones(N)
    for fun in (ring, chain, jnp.sin):
        operator = veenv.linear_operator(fun, x)
        dense = jax.jacrev(fun)(x)
        np.testing.assert_allclose(operator.as_matrix(), dense, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(operator.T.mv(b), dense.T @ b, rtol=1e-12)
        expected = jnp.linalg.solve(dense, b)
        for solver in (veenv.sparse_solver(), lx.AutoLinearSolver(well_posed=True)):
            found = lx.linear_solve(operator, b, solver).value
            np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert lx.is_tridiagonal(veenv.linear_operator(chain, x))
    assert lx.is_diagonal(veenv.linear_operator(jnp.sin, x))


def test_lineax_takes_the_solver_for_its_own_operators(x64):
    x, b = jnp.linspace(0.1, 1.0, N), jnp.ones(N)
    operator = lx.JacobianLinearOperator(ring, x)

    def total(b):
        return lx.linear_solve(operator, b, veenv.sparse_solver()).value.sum()

    dense = jax.jacrev(ring)(x)
    np.testing.assert_allclose(total(b), jnp.linalg.solve(dense, b).sum(), rtol=1e-9)
    expected = jnp.linalg.solve(dense.T, jnp.ones(N))
    np.testing.assert_allclose(jax.grad(total)(b), expected, rtol=1e-9)


@pytest.mark.parametrize("size", [100, 300])
def test_factors_solve_what_is_transposed_and_batched(size, x64):
    """Dense factors in the state of the solver, and sparse ones on the host."""
    x, b = jnp.linspace(0.1, 1.0, size), jnp.linspace(1.0, 2.0, 2 * size).reshape(2, size)
    dense = jax.jacrev(ring)(x)

    def solution(x, b):
        operator = lx.JacobianLinearOperator(ring, x)
        return lx.linear_solve(operator, b, veenv.sparse_solver()).value

    found = jax.jit(jax.vmap(solution, in_axes=(None, 0)))(x, b)
    np.testing.assert_allclose(found, jnp.linalg.solve(dense, b.T).T, rtol=1e-9)
    expected = jnp.linalg.solve(dense.T, jnp.ones(size))
    found = jax.grad(lambda b: solution(x, b).sum())(b[0])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    operator = veenv.linear_operator(ring, x).T
    found = lx.linear_solve(operator, b[0], veenv.sparse_solver()).value
    np.testing.assert_allclose(found, jnp.linalg.solve(dense.T, b[0]), rtol=1e-9)


def test_krylov_methods_take_the_operator(x64):
    def symmetric(x):
        return 5 * x + x**3 - jnp.roll(x, 1) - jnp.roll(x, -1)

    x, b = jnp.linspace(0.1, 1.0, N), jnp.ones(N)
    expected = jnp.linalg.solve(jax.jacrev(symmetric)(x), b)
    tagged = veenv.linear_operator(symmetric, x, lx.positive_semidefinite_tag)
    plain = veenv.linear_operator(symmetric, x)
    tolerance = {"rtol": 1e-12, "atol": 1e-12}
    for operator, solver in (
        (tagged, lx.CG(**tolerance)),
        (plain, lx.GMRES(**tolerance)),
        (plain, lx.BiCGStab(**tolerance)),
        (tagged, veenv.sparse_solver()),
    ):
        found = lx.linear_solve(operator, b, solver).value
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_optimistix_newton(x64):
    newton = optx.Newton(rtol=1e-10, atol=1e-10, linear_solver=veenv.sparse_solver())
    found = optx.root_find(ring, newton, jnp.full(N, 0.5))
    np.testing.assert_allclose(ring(found.value), 0, atol=1e-9)


def test_diffrax_implicit_solver(x64):
    def run(linear_solver):
        finder = diffrax.VeryChord(rtol=1e-8, atol=1e-8, linear_solver=linear_solver)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: -ring(y)),
            diffrax.Kvaerno5(root_finder=finder),
            0.0,
            2.0,
            0.1,
            jnp.full(N, 0.5),
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
        ).ys

    found, expected = (
        run(s) for s in (veenv.sparse_solver(), lx.AutoLinearSolver(well_posed=None))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
