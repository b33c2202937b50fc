"""Whole solutions of sparse problems, by where the Jacobian comes from."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
from scipy.integrate import BDF, solve_ivp

import veenv
from scripts.benchmarks.functions.sparse_cases import adjustment, brusselator
from scripts.benchmarks.programs import difference
from scripts.benchmarks.tables import Table
from veenv.measure.timing import interleaved

sparse: Any = scipy.sparse  # SciPy's stubs know one kind of `offsets` only
Solve = Callable[[], tuple[Any, str]]
"""Solves the problem; returns what to compare of the solution, and what it took."""

Ways = dict[str, Callable[[], Solve]]
"""What prepares each way (jit, colouring)."""

_LONG = 5.0
"""Seconds after which a way is not run again."""


class Problem(NamedTuple):
    """A function of one flat vector and where a solver starts.

    Attributes:
      fun: the function.
      start: [n] the unknowns at the start.
      by_hand: its Jacobian as a matrix of SciPy, written without a library; None: nobody did.
    """

    fun: Callable[[Any], Any]
    start: np.ndarray
    by_hand: Callable[[np.ndarray], Any] | None = None


def brusselator_grid(size: int) -> Problem:
    """The two-dimensional Brusselator on a periodic grid, as Hairer & Wanner (1996) start it."""
    n = round((size // 2) ** 0.5)
    place = np.arange(n) / n
    bump = (place * (1 - place)) ** 1.5
    start = np.stack([np.tile(22 * bump, (n, 1)).T, np.tile(27 * bump, (n, 1))]).ravel()
    ones = np.ones(n)
    ring = sparse.diags_array(
        [ones, ones, -2 * ones, ones, ones], offsets=[1 - n, -1, 0, 1, n - 1], shape=(n, n)
    )
    one = sparse.eye_array(n)
    second = sparse.kron(ring, one) + sparse.kron(one, ring)
    spread = 0.02 * (n - 1) ** 2 * second

    def by_hand(z: np.ndarray) -> Any:
        u, v = z.reshape(2, n * n)
        upper = [sparse.diags_array(2 * u * v - 4.4) + spread, sparse.diags_array(u * u)]
        lower = [sparse.diags_array(3.4 - 2 * u * v), sparse.diags_array(-u * u) + spread]
        return sparse.block_array([upper, lower], format="csc")

    return Problem(lambda z: brusselator(z, n), start, by_hand)


def phase_line(size: int) -> Problem:
    """A large implicit step of the Allen–Cahn equation on a line."""
    start = np.tanh(np.sin(np.arange(size) * 20 / size))

    def residual(u: Any) -> Any:
        w = jnp.pad(u, 1, mode="edge")
        return u - start - (u - u**3) / 2 - 50 * (w[2:] - 2 * u + w[:-2])

    return Problem(residual, start)


def phase_grid(size: int) -> Problem:
    """A large implicit step of the Allen–Cahn equation on a grid."""
    width = max(d for d in range(1, int(size**0.5) + 1) if size % d == 0)
    place = np.arange(size).reshape(-1, width)
    start = np.tanh(np.sin(place * 20 / size) + np.cos(place % width * 20 / width)).ravel()

    def residual(z: Any) -> Any:
        u = z.reshape(-1, width)
        w = jnp.pad(u, 1, mode="edge")
        around = w[2:, 1:-1] + w[:-2, 1:-1] + w[1:-1, 2:] + w[1:-1, :-2]
        return z - start - (z - z**3) / 2 - 5 * (around - 4 * u).ravel()

    return Problem(residual, start)


def cameras(size: int) -> Problem:
    """Ten cameras that see points with errors of half a pixel: 9 unknowns a camera, 3 a point."""
    rng = np.random.default_rng(1)
    points = (size - 90) // 3
    seen = 10 * points // 3
    project = adjustment(10, points, seen)
    views = rng.normal(size=(10, 9)) * [0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 5, 0.01, 0.01]
    views[:, 6] += 500
    truth = np.concatenate([views.ravel(), rng.uniform(-1, 1, 3 * points)])
    observed = np.asarray(project(truth)) + 0.5 * rng.normal(size=2 * seen)
    start = truth + rng.normal(size=truth.size) * 0.05
    return Problem(lambda z: project(z) - observed, start)


def _veenv(p: Problem, form: str) -> Callable[[Any], Any]:
    jacobian = jax.jit(veenv.jacve(p.fun, sparse_representation=True))
    return lambda x: jacobian(x).to_scipy(form)


def _asdex(p: Problem, form: str) -> Callable[[Any], Any]:
    asdex = importlib.import_module("asdex")
    return asdex.jacobian(p.fun, jnp.asarray(p.start), output_format=f"scipy_{form}")


class SymmetricBDF(BDF):
    """SciPy's BDF with SuperLU's ordering for symmetric patterns, as docs/sparse.md has it."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.lu = self.factors

    def factors(self, matrix: Any) -> Any:
        """The factors of a matrix."""
        self.nlu += 1
        return scipy.sparse.linalg.splu(matrix, permc_spec="MMD_AT_PLUS_A")


def integrate(p: Problem) -> Ways:
    """``scipy.integrate.solve_ivp`` with BDF, by where the Jacobian comes from."""

    def way(
        jacobian: Callable[[Any], Any] | None = None, method: Any = "BDF", **options: Any
    ) -> Solve:
        slope = jax.jit(p.fun)
        if jacobian is not None:
            options["jac"] = lambda t, y: jacobian(y)

        def solve() -> tuple[Any, str]:
            r = solve_ivp(lambda t, y: slope(y), (0, 11.5), p.start, method=method, **options)
            return r.y[:, -1], f"{r.nfev} slopes, {r.njev} Jacobians, {r.nlu} LU"

        return solve

    def pattern() -> Any:
        matrix = _veenv(p, "csr")(p.start)
        matrix.data = np.ones_like(matrix.data)
        return matrix

    return {
        "veenv": lambda: way(_veenv(p, "csc"), SymmetricBDF),
        "veenv, SciPy's ordering": lambda: way(_veenv(p, "csc")),
        "by hand": lambda: way(p.by_hand),
        "asdex": lambda: way(_asdex(p, "csc")),
        "differences, pattern given": lambda: way(jac_sparsity=pattern()),
    }


def _newton(p: Problem, step: Callable[[Any, Any], Any]) -> Solve:
    """Newton's method from a problem's start; `step` solves with the Jacobian."""
    value = jax.jit(p.fun)

    def solve() -> tuple[Any, str]:
        x = jnp.asarray(p.start)
        for count in range(30):
            r = value(x)
            if float(jnp.abs(r).max()) < 1e-9:
                return np.asarray(x), f"{count} steps"
            x = x - step(x, r)
        raise RuntimeError("no convergence in 30 steps of Newton's method")

    return solve


def newton(p: Problem) -> Ways:
    """Newton's method with symmetric Jacobians, by Jacobian and linear solver."""
    sparse = veenv.jacve(p.fun, sparse_representation=True)

    def products(linear: Callable[[Any], Callable[[Any], Any]]) -> Solve:
        cg = jax.scipy.sparse.linalg.cg
        return _newton(p, jax.jit(lambda x, r: cg(linear(x), r, tol=1e-6)[0]))

    def by_colours() -> Solve:
        jacobian = _asdex(p, "csc")
        return _newton(p, lambda x, r: scipy.sparse.linalg.spsolve(jacobian(x), np.asarray(r)))

    return {
        "veenv, solve": lambda: _newton(p, jax.jit(lambda x, r: sparse(x).solve(r))),
        "veenv, cg": lambda: products(lambda x: sparse(x).__matmul__),
        "asdex, spsolve": by_colours,
        "jax.linearize, cg": lambda: products(lambda x: jax.linearize(p.fun, x)[1]),
    }


def _marquardt(trial: Callable[[Any, float], tuple[Any, Any, Any]], start: Any) -> tuple[Any, str]:
    """Damped Gauss-Newton steps until the cost falls by less than 1e-8 of it.

    Args:
      trial: unknowns and damping to the new unknowns, the old cost and the new one.
      start: the unknowns at the start.
    """
    z, damping = jnp.asarray(start), 1.0
    for count in range(1, 200):
        fresh, cost, less = trial(z, damping)
        if not float(less) < float(cost):
            damping *= 4
            continue
        z, damping = fresh, damping / 3
        if float(cost) - float(less) < 1e-8 * float(cost):
            return np.asarray(less), f"{count} steps, cost {float(less):.4f}"
    raise RuntimeError("no convergence in 200 steps of Levenberg and Marquardt's method")


def adjust(p: Problem) -> Ways:
    """Least squares by damped Gauss-Newton steps."""

    def cost(z: Any) -> Any:
        return jnp.sum(p.fun(z) ** 2) / 2

    def descent(both: Any, step: Callable[..., Any], compiled: bool = True) -> Solve:
        """Descends by residuals with Jacobian, and a solver of the damped normal equations."""
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
            return scipy.sparse.linalg.spsolve((j.T @ j + damping * unit).tocsc(), j.T @ r)

        return descent(lambda z: (np.asarray(value(z)), jacobian(z)), step, compiled=False)

    def by_scipy(jacobian: Callable[[Any], Any]) -> Solve:
        value = jax.jit(p.fun)

        def solve() -> tuple[Any, str]:
            how: Any = {"tr_solver": "lsmr", "x_scale": "jac", "jac": jacobian}
            r = scipy.optimize.least_squares(value, p.start, **how)
            return np.asarray(r.cost), f"{r.nfev} values, cost {r.cost:.4f}"

        return solve

    return {
        "veenv, solve": ours,
        "asdex, spsolve": by_colours,
        "least_squares, veenv": lambda: by_scipy(_veenv(p, "csr")),
        "least_squares, asdex": lambda: by_scipy(_asdex(p, "csr")),
    }


def implicit(p: Problem) -> Ways:
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
                0.0, 0.02, 1e-3, y,
                stepsize_controller=diffrax.PIDController(**tolerance),
            )  # fmt: skip

        def solve() -> tuple[Any, str]:
            solution = run(p.start)
            return np.asarray(solution.ys[-1]), f"{int(solution.stats['num_steps'])} steps"

        return solve

    def auto() -> Any:
        lineax = importlib.import_module("lineax")
        return lineax.AutoLinearSolver(well_posed=None)

    return {
        "veenv.sparse_solver()": lambda: way(veenv.sparse_solver),
        "diffrax's own": lambda: way(auto),
    }


class Task(NamedTuple):
    """A problem and the ways to solve it.

    Attributes:
      problem: makes it, of the number of unknowns.
      ways: makes the ways.
      size: number of unknowns that is measured.
      small: number of unknowns that `--quick` takes.
    """

    problem: Callable[[int], Problem]
    ways: Callable[[Problem], Ways]
    size: int
    small: int


TASKS = {
    "solve_ivp, Brusselator 2-D": Task(brusselator_grid, integrate, 800, 32),
    "Newton on a line": Task(phase_line, newton, 100_000, 200),
    "Newton on a grid": Task(phase_grid, newton, 100_000, 200),
    "bundle adjustment": Task(cameras, adjust, 990, 120),
    "diffrax Kvaerno5, Brusselator 2-D": Task(brusselator_grid, implicit, 800, 32),
}


def solutions(names: Sequence[str], repeats: int, *, small: bool = False) -> Iterator[Table]:
    """For each problem, the seconds of each way to solve it.

    The first solution of a way is timed with all its preparation: compilation, colouring. Then the
    ways are run in turn. The ratio is to the fastest way without veenv. The error is the largest
    difference from the solution of the first way, in proportion to its largest number; of an
    adjustment it is that of the cost.

    Args:
      names: of `TASKS`.
      repeats: solutions of each way after the first, fewer of slow ways; the median is shown.
      small: solve for few unknowns: whether all of it works.
    """
    for peer in ("asdex", "diffrax"):
        with contextlib.suppress(ImportError):
            importlib.import_module(peer)  # no first solution pays for it
    table = Table("problem", "ratio", "way", "first", "seconds", "took", "off by")
    yield table
    absent = []
    for name in names:
        task, solvers = TASKS[name], dict[str, Solve]()
        solved: dict[str, tuple[Any, str, float]] = {}
        size = task.small if small else task.size
        for way, prepare in task.ways(task.problem(size)).items():
            start = time.perf_counter()
            try:
                solvers[way] = prepare()
            except ModuleNotFoundError as error:
                absent.append(f"{name} by {way} (needs {error.name})")
            except NotImplementedError:
                absent.append(f"{name} by {way} (needs a pattern of each primitive)")
            else:
                solved[way] = *solvers[way](), round(time.perf_counter() - start, 3)
        times = interleaved(solvers, (), repeats, _LONG, fewest=0)
        seconds = {way: round(float(np.median(t)), 4) for way, t in times.items()}
        rivals = [seconds[way] for way in seconds if "veenv" not in way]
        for way, (value, took, first) in solved.items():
            off = difference(value, next(iter(solved.values()))[0])
            ratio = f"{seconds[way] / min(rivals):.2f}" if rivals else "–"
            cells = str(first), str(seconds[way]), took, f"{off:.1e}"
            table.add(f"{name}, {size:,}", ratio, way, *cells)
    if absent:
        print(f"\nNot measured: {'; '.join(absent)}.", flush=True)
