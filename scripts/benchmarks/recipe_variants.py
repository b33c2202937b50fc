"""Ways to solve the problems of recipe_problems.py that differ in their Jacobians."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import veenv
from scripts.benchmarks.functions.solved import SolverProblem

Solve = Callable[[], tuple[Any, str]]
"""Solves the problem: what to compare of the solution, and what it took."""

Ways = dict[str, tuple[tuple[str, ...], Callable[[], Solve]]]
"""For each way the modules it needs, and what prepares it (jit, colouring) and gives a `Solve`."""


_DENSE = 3000
"""Most unknowns of a dense Jacobian."""


def _veenv(p: SolverProblem, form: str) -> Callable[[Any], Any]:
    jacobian = jax.jit(veenv.jacve(p.fun, sparse_representation=True))
    return lambda x: jacobian(x).to_scipy(form)


def _asdex(p: SolverProblem, form: str) -> Callable[[Any], Any]:
    asdex = importlib.import_module("asdex")
    return asdex.jacobian(p.fun, jnp.asarray(p.start), output_format=f"scipy_{form}")


def _dense(p: SolverProblem) -> Callable[[Any], Any]:
    """By forward mode of JAX, a hundred columns at once: more would not fit in memory."""

    @jax.jit
    def jacobian(x: Any) -> Any:
        _, push = jax.linearize(p.fun, x)
        return jax.lax.map(push, jnp.eye(x.size), batch_size=100).T

    return jacobian


def _pattern(p: SolverProblem) -> Any:
    matrix = p.by_hand(p.start) if p.by_hand else _veenv(p, "csr")(p.start)
    matrix.data = np.ones_like(matrix.data)
    return matrix


def _symmetric_bdf() -> Any:
    """SciPy's BDF with SuperLU's ordering for symmetric patterns, as docs/sparse.md has it."""
    from scipy.integrate import BDF
    from scipy.sparse.linalg import splu

    class SymmetricBDF(BDF):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            self.lu = self.factors

        def factors(self, matrix: Any) -> Any:
            self.nlu += 1
            return splu(matrix, permc_spec="MMD_AT_PLUS_A")

    return SymmetricBDF


def integrate(p: SolverProblem, span: tuple[float, float]) -> Ways:
    """``scipy.integrate.solve_ivp`` with BDF, by where the Jacobian comes from."""
    from scipy.integrate import solve_ivp

    def way(
        jacobian: Callable[[Any], Any] | None = None, method: Any = "BDF", **options: Any
    ) -> Solve:
        slope = jax.jit(p.fun)
        if jacobian is not None:
            options["jac"] = lambda t, y: jacobian(y)

        def solve() -> tuple[Any, str]:
            r = solve_ivp(lambda t, y: slope(y), span, p.start, method=method, **options)
            return r.y[:, -1], f"{r.nfev} slopes, {r.njev} Jacobians, {r.nlu} LU"

        return solve

    def dense() -> Solve:
        jacobian = _dense(p)
        return way(lambda y: np.asarray(jacobian(y)))

    return {
        "veenv": ((), lambda: way(_veenv(p, "csc"), _symmetric_bdf())),
        "veenv, SciPy's ordering": ((), lambda: way(_veenv(p, "csc"))),
        "by hand": ((), lambda: way(p.by_hand)),
        "asdex": (("asdex",), lambda: way(_asdex(p, "csc"))),
        "differences, pattern given": ((), lambda: way(jac_sparsity=_pattern(p))),
        "jax.jacfwd, dense": ((), dense),
    }


def _newton(p: SolverProblem, step: Callable[[Any, Any], Any]) -> Solve:
    """Newton's method from a problem's start; `step` solves with the Jacobian."""
    value = jax.jit(p.fun)

    def solve() -> tuple[Any, str]:
        x = jnp.asarray(p.start)
        for taken in range(30):
            r = value(x)
            if float(jnp.abs(r).max()) < 1e-9:
                return np.asarray(x), f"{taken} steps"
            x = x - step(x, r)
        raise RuntimeError("no convergence in 30 steps of Newton's method")

    return solve


def newton(p: SolverProblem) -> Ways:
    """Newton's method with symmetric Jacobians, by Jacobian and linear solver."""
    from scipy.sparse.linalg import spsolve

    sparse = veenv.jacve(p.fun, sparse_representation=True)

    def products(linear: Callable[[Any], Callable[[Any], Any]]) -> Solve:
        cg = jax.scipy.sparse.linalg.cg
        return _newton(p, jax.jit(lambda x, r: cg(linear(x), r, tol=1e-6)[0]))

    def by_colours() -> Solve:
        jacobian = _asdex(p, "csc")
        return _newton(p, lambda x, r: spsolve(jacobian(x), np.asarray(r)))

    def dense() -> Solve:
        jacobian = _dense(p)
        return _newton(p, lambda x, r: jnp.linalg.solve(jacobian(x), r))

    ways: Ways = {
        "veenv, solve": ((), lambda: _newton(p, jax.jit(lambda x, r: sparse(x).solve(r)))),
        "veenv, cg": ((), lambda: products(lambda x: sparse(x).__matmul__)),
        "asdex, spsolve": (("asdex",), by_colours),
        "jax.linearize, cg": ((), lambda: products(lambda x: jax.linearize(p.fun, x)[1])),
    }
    return ways | ({"JAX, dense": ((), dense)} if p.start.size <= _DENSE else {})


def _marquardt(trial: Callable[[Any, float], tuple[Any, Any, Any]], start: Any) -> tuple[Any, str]:
    """Damped Gauss-Newton steps until the cost falls by less than 1e-8 of it.

    Args:
      trial: unknowns and damping to the new unknowns, the old cost and the new one.
      start: the unknowns at the start.
    """
    z, damping = jnp.asarray(start), 1.0
    for taken in range(1, 200):
        fresh, cost, less = trial(z, damping)
        if not float(less) < float(cost):
            damping *= 4
            continue
        z, damping = fresh, damping / 3
        if float(cost) - float(less) < 1e-8 * float(cost):
            return np.asarray(less), f"{taken} steps, cost {float(less):.4f}"
    raise RuntimeError("no convergence in 200 steps of Levenberg and Marquardt's method")


def adjust(p: SolverProblem, *, by_scipy: bool = True) -> Ways:
    """Least squares: damped Gauss-Newton with solves, and SciPy's `least_squares`."""
    from scipy import optimize, sparse

    def cost(z: Any) -> Any:
        return jnp.sum(p.fun(z) ** 2) / 2

    def descent(both: Any, step: Callable[..., Any], compiled: bool = True) -> Solve:
        """By what gives residuals and Jacobian, and a solution of the damped normal equations."""
        costs = jax.jit(cost)

        def trial(z: Any, damping: Any) -> Any:
            r, j = both(z)
            fresh = z - step(z, r, j, damping)
            return fresh, jnp.sum(r * r) / 2, costs(fresh)

        run = jax.jit(trial) if compiled else trial
        return lambda: _marquardt(run, p.start)

    def ours() -> Solve:
        def step(z: Any, r: Any, j: Any, damping: Any) -> Any:
            unit = veenv.jacve(lambda z: damping * z, sparse_representation=True)(z)
            return (j.T @ j + unit).solve(r @ j)

        return descent(veenv.value_and_jacve(p.fun, sparse_representation=True), step)

    def by_colours() -> Solve:
        jacobian, value = _asdex(p, "csc"), jax.jit(p.fun)
        unit = sparse.eye_array(p.start.size, format="csc")

        def step(z: Any, r: Any, j: Any, damping: Any) -> Any:
            return sparse.linalg.spsolve((j.T @ j + damping * unit).tocsc(), j.T @ r)

        return descent(lambda z: (np.asarray(value(z)), jacobian(z)), step, compiled=False)

    def dense() -> Solve:
        jacobian = _dense(p)

        def step(z: Any, r: Any, j: Any, damping: Any) -> Any:
            return jnp.linalg.solve(j.T @ j + damping * jnp.eye(z.size), r @ j)

        return descent(lambda z: (p.fun(z), jacobian(z)), step)

    def scipy(**options: Any) -> Solve:
        value = jax.jit(p.fun)

        def solve() -> tuple[Any, str]:
            r = optimize.least_squares(value, p.start, tr_solver="lsmr", x_scale="jac", **options)
            return np.asarray(r.cost), f"{r.nfev} values, cost {r.cost:.4f}"

        return solve

    ways: Ways = {
        "veenv, solve": ((), ours),
        "asdex, spsolve": (("asdex",), by_colours),
        "JAX, dense": ((), dense),
    }
    more: Ways = {
        "least_squares, veenv": ((), lambda: scipy(jac=_veenv(p, "csr"))),
        "least_squares, asdex": (("asdex",), lambda: scipy(jac=_asdex(p, "csr"))),
        "least_squares, differences": ((), lambda: scipy(jac_sparsity=_pattern(p))),
    }
    return ways | (more if by_scipy else {})


def implicit(p: SolverProblem, end: float) -> Ways:
    """diffrax's Kvaerno5, by the linear solver of its root finder."""

    def way(linear_solver: Callable[[], Any]) -> Solve:
        import diffrax  # pyright: ignore[reportMissingImports]  # optional

        tolerance: Any = {"rtol": 1e-6, "atol": 1e-6}
        finder = diffrax.VeryChord(**tolerance, linear_solver=linear_solver())

        @jax.jit
        def run(y: Any) -> Any:
            return diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, args: p.fun(y)),
                diffrax.Kvaerno5(root_finder=finder),
                0.0, end, 1e-3, y,
                stepsize_controller=diffrax.PIDController(**tolerance),
            )  # fmt: skip

        def solve() -> tuple[Any, str]:
            found = run(p.start)
            return np.asarray(found.ys[-1]), f"{int(found.stats['num_steps'])} steps"

        return solve

    def auto() -> Any:
        lineax = importlib.import_module("lineax")
        return lineax.AutoLinearSolver(well_posed=None)

    return {
        "veenv.sparse_solver()": (("diffrax",), lambda: way(veenv.sparse_solver)),
        "diffrax's own": (("diffrax",), lambda: way(auto)),
    }
