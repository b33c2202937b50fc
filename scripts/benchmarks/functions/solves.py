"""Solves of other libraries at one point, as the pages of these call them.

Each is a function of one number (and of a key, where it is random), so that a batch is many solves;
nothing of a library is patched, and errors are raised as it raises them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import blackjax  # pyright: ignore[reportMissingImports]
import diffrax as dfx  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import jaxopt  # pyright: ignore[reportMissingImports]
import lineax as lx  # pyright: ignore[reportMissingImports]
import numpy as np
import optax
import optimistix as optx  # pyright: ignore[reportMissingImports]
from jax import Array, lax


@dataclass(frozen=True)
class Solve:
    """One solve.

    Attributes:
      fun: of a parameter, and of a key where it is `random`.
      high: the largest parameter; the least is 5.
      tolerance: how far float32 results may be apart in relation to the largest: what the solver
        is asked for, or rounding.
      random: whether it takes a key.
      mode: the mode of JAX that its derivative has, None where it is not measured.
    """

    fun: Callable[..., Any]
    high: float = 21.0
    tolerance: float = 1e-4
    random: bool = False
    mode: Callable[..., Any] | None = None

    def points(self, count: int) -> tuple[Any, ...]:
        """The arguments of many solves."""
        values = jnp.linspace(5.0, self.high, count)
        return (values, jax.random.split(jax.random.key(0), count)) if self.random else (values,)


def _lorenz(t: Any, y: Array, rho: Any) -> Array:
    x, y_, z = y
    return jnp.stack([10.0 * (y_ - x), x * (rho - z) - y_, x * y_ - 8 / 3 * z])


def _robertson(t: Any, y: Array, rate: Any) -> Array:
    a, b, c = 0.04 * y[0], 3e7 * y[1] ** 2, rate * 1e3 * y[1] * y[2]
    return jnp.stack([c - a, a - c - b, b])


def _van_der_pol(t: Any, y: Array, mu: Any) -> Array:
    return jnp.stack([y[1], 0.1 * mu * (1 - y[0] ** 2) * y[1] - y[0]])


_START = {_lorenz: (1.0, 0.0, 0.0), _robertson: (1.0, 0.0, 0.0), _van_der_pol: (2.0, 0.0)}


def _ode(
    field: Callable[..., Any], solver: Any, end: float, step: float, within: float = 1e-4,
    mode: Any = None, **options: Any,
) -> Solve:  # fmt: skip
    """The state at the end, `at` some times, or what else `saveat` and `read` want.

    With `tolerances` steps adapt.
    """
    tolerances, read = options.pop("tolerances", None), options.pop("read", lambda s: s.ys)
    at = options.pop("at", None)
    if tolerances:
        options["stepsize_controller"] = dfx.PIDController(*tolerances)

    def fun(parameter: Any) -> Any:
        start = jnp.array(_START[field])
        saved: Any = {} if at is None else {"saveat": dfx.SaveAt(ts=jnp.array(at))}
        term = dfx.ODETerm(field)
        return read(dfx.diffeqsolve(
            term, solver, 0.0, end, step, start, args=parameter, **options, **saved
        ))  # fmt: skip

    return Solve(fun, tolerance=within, mode=mode)


def _fall(height: Any) -> Any:
    """When and how fast a ball hits the ground."""
    field = dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -9.81 + 0 * y[0]]))
    hit = dfx.Event(lambda t, y, args, **_: y[0], optx.Newton(1e-5, 1e-5))
    start = jnp.stack([height, 0 * height])
    solution = dfx.diffeqsolve(field, dfx.Tsit5(), 0.0, jnp.inf, 0.1, start, event=hit)
    return solution.ts, solution.ys


def _noisy(rate: Any, key: Any) -> Any:
    path = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(), key=key)
    drift = dfx.ODETerm(lambda t, y, args: -0.1 * rate * y)
    terms = dfx.MultiTerm(drift, dfx.ControlTerm(lambda t, y, args: 0.1 * jnp.ones_like(y), path))
    return dfx.diffeqsolve(terms, dfx.Euler(), 0.0, 1.0, 0.05, jnp.ones_like(rate)).ys


def _pendulum(rate: Any) -> Any:
    terms = dfx.ODETerm(lambda t, p, args: p), dfx.ODETerm(lambda t, q, args: -rate * jnp.sin(q))
    start = jnp.ones_like(rate), 0 * rate
    return dfx.diffeqsolve(terms, dfx.SemiImplicitEuler(), 0.0, 5.0, 0.05, start).ys


def _driven(rate: Any) -> Any:
    times = jnp.linspace(0.0, 1.0, 6)
    knots = dfx.backward_hermite_coefficients(times, jnp.sin(0.1 * rate * times)[:, None])
    path = dfx.CubicInterpolation(times, knots)
    term = dfx.ControlTerm(lambda t, y, args: jnp.tanh(y)[:, None] + 0.1, path).to_ode()
    return dfx.diffeqsolve(
        term, dfx.Tsit5(), 0.0, 1.0, 0.1, jnp.array([1.0, 0.5]),
        stepsize_controller=dfx.PIDController(1e-4, 1e-6),
    ).ys  # fmt: skip


_LOOSE: Any = {"tolerances": (1e-4, 1e-6)}
_STIFF: Any = {"tolerances": (1e-4, 1e-7)}
_FORWARD: Any = {"adjoint": dfx.ForwardMode(), "mode": jax.jacfwd}
_SHORT: Any = {"max_steps": 32, "mode": jax.jacrev}

DIFFRAX: Mapping[str, Solve] = {
    "Tsit5, fixed steps": _ode(_lorenz, dfx.Tsit5(), 1.0, 0.01),
    "Tsit5": _ode(_lorenz, dfx.Tsit5(), 1.0, 0.01, 2e-3, **_LOOSE),
    "Dopri5, SaveAt(ts)": _ode(
        _van_der_pol, dfx.Dopri5(), 6.0, 0.1, 2e-3, **_LOOSE, at=[0.5 * k for k in range(13)]
    ),
    "Dopri8": _ode(_van_der_pol, dfx.Dopri8(), 6.0, 0.1, 2e-3, **_LOOSE),
    "Euler, SaveAt(steps)": _ode(
        _van_der_pol, dfx.Euler(), 1.0, 0.02, max_steps=64, saveat=dfx.SaveAt(steps=True)
    ),
    "Bosh3, dense": _ode(
        _van_der_pol, dfx.Bosh3(), 2.0, 0.1, 2e-2, tolerances=(1e-3, 1e-5), max_steps=40,
        saveat=dfx.SaveAt(dense=True), read=lambda s: s.evaluate(1.23),
    ),
    "Kvaerno3": _ode(_van_der_pol, dfx.Kvaerno3(), 3.0, 0.01, 2e-3, **_LOOSE),
    "Kvaerno5, Robertson": _ode(_robertson, dfx.Kvaerno5(), 10.0, 1e-4, 1e-3, **_STIFF),
    "ImplicitEuler": _ode(
        _robertson, dfx.ImplicitEuler(), 1.0, 0.05, 1e-2, tolerances=(1e-3, 1e-6)
    ),
    "Event": Solve(_fall),
    "VirtualBrownianTree": Solve(_noisy, random=True),
    "SemiImplicitEuler": Solve(_pendulum),
    # Steps are refused at the knots by a hair: JAX's float32 is as far from its float64.
    "CubicInterpolation": Solve(_driven, tolerance=5e-2),
}  # fmt: skip


def _two(y: Array, a: Any) -> Array:
    return jnp.stack([y[0] ** 2 + y[1] - a, y[1] ** 3 - y[0] - 0.1])


def _decay(y: Array, a: Any) -> Array:
    """Residuals of a fit."""
    x = jnp.linspace(0.0, 1.0, 8)
    return y[0] * jnp.exp(-y[1] * x) - 2.0 * jnp.exp(-0.1 * a * x)


def _valley(y: Array, a: Any) -> Array:
    return (1 - y[0]) ** 2 + a * (y[1] - y[0] ** 2) ** 2


def _bowl(y: Array, a: Any) -> Array:
    return (y[0] - a) ** 2 + 3 * (y[1] - 1) ** 2


def _optx(
    find: Callable[..., Any], fun: Any, solver: Any, start: Any = (1.0, 1.0),
    within: float = 1e-4, high: float = 21.0, **options: Any,
) -> Solve:  # fmt: skip
    """The value that optimistix finds."""
    solve = lambda a: find(fun, solver, jnp.array(start), a, **options).value  # noqa: E731
    return Solve(solve, high=high, tolerance=within)


_CLOSE, _NEAR = (1e-5, 1e-5), (1.5, 0.8)

OPTIMISTIX: Mapping[str, Solve] = {
    "Newton": _optx(optx.root_find, _two, optx.Newton(*_CLOSE)),
    "Chord": _optx(optx.root_find, lambda y, a: y - 0.01 * a * jnp.cos(y), optx.Chord(*_CLOSE)),
    "Dogleg": _optx(optx.root_find, _two, optx.Dogleg(*_CLOSE)),
    "Bisection": _optx(
        optx.root_find, lambda y, a: y**3 - a, optx.Bisection(*_CLOSE), 1.0,
        options={"lower": 0.0, "upper": 5.0},
    ),
    "LevenbergMarquardt": _optx(optx.least_squares, _decay, optx.LevenbergMarquardt(*_CLOSE)),
    "IndirectLevenbergMarquardt": _optx(
        optx.least_squares, _decay, optx.IndirectLevenbergMarquardt(*_CLOSE)
    ),
    "GaussNewton": _optx(optx.least_squares, _decay, optx.GaussNewton(*_CLOSE), _NEAR),
    "BFGS": _optx(optx.minimise, _valley, optx.BFGS(1e-4, 1e-4), (-0.5, 0.5), 1e-2),
    "NelderMead": _optx(optx.minimise, _valley, optx.NelderMead(1e-3, 1e-3), (0.5, 0.5), 2e-2),
    "NonlinearCG": _optx(optx.minimise, _bowl, optx.NonlinearCG(1e-4, 1e-4), (0.5, 0.5), 1e-2),
    "FixedPointIteration": _optx(
        optx.fixed_point, lambda y, a: 0.05 * a * jnp.cos(y), optx.FixedPointIteration(*_CLOSE),
        high=12.0,
    ),
}  # fmt: skip


def _system(solver: Any, rows: int = 4, definite: bool = False) -> Callable[[Any], Any]:
    """A system of four unknowns."""

    def fun(a: Any) -> Any:
        numbers = jnp.arange(rows * 4, dtype=jnp.result_type(a)).reshape(rows, 4)
        matrix = jnp.sin(numbers * a) + 3 * jnp.eye(rows, 4, dtype=numbers.dtype)
        tags = lx.positive_semidefinite_tag if definite else frozenset()
        operator = lx.MatrixLinearOperator(matrix @ matrix.T if definite else matrix, tags)
        return lx.linear_solve(operator, jnp.cos(numbers[:, 0] * a / 4), solver).value

    return fun


def _tridiagonal(a: Any) -> Any:
    middle = 3 + jnp.sin(jnp.arange(6) * a)
    operator = lx.TridiagonalLinearOperator(middle, 0.3 * middle[1:], 0.2 * middle[:-1])
    return lx.linear_solve(operator, jnp.cos(middle)).value


LINEAX: Mapping[str, Solve] = {
    "LU": Solve(_system(lx.LU())),
    "QR": Solve(_system(lx.QR())),
    "QR, least squares": Solve(_system(lx.QR(), rows=6)),
    "SVD": Solve(_system(lx.SVD())),
    "Cholesky": Solve(_system(lx.Cholesky(), definite=True), tolerance=5e-4),
    "CG": Solve(_system(lx.CG(*_CLOSE), definite=True), tolerance=2e-3),
    "GMRES": Solve(_system(lx.GMRES(*_CLOSE)), tolerance=1e-3),
    "AutoLinearSolver": Solve(_system(lx.AutoLinearSolver(well_posed=True))),
    "AutoLinearSolver, least squares": Solve(_system(lx.AutoLinearSolver(well_posed=None), rows=6)),
    "Tridiagonal": Solve(_tridiagonal),
}


def _nearest(project: Callable[..., Any], start: float) -> Callable[[Any], Any]:
    """The nearest point of a set."""

    def fun(a: Any) -> Any:
        wanted = jnp.stack([0.1 * a, 0.3 + 0 * a, -a])
        solver = jaxopt.ProjectedGradient(
            lambda y, to: ((y - to) ** 2).sum(), project, maxiter=60, tol=1e-5
        )
        return solver.run(jnp.full(3, start), None, wanted).params

    return fun


def _quadratic(a: Any) -> Any:
    matrix, linear = jnp.array([[4.0, 1.0], [1.0, 2.0]]), jnp.stack([1.0 + 0 * a, 0.1 * a])
    within, most = jnp.array([[1.0, 1.0], [1.0, 0.0]]), jnp.array([1.0, 0.7])
    solver = jaxopt.BoxOSQP(tol=1e-4, maxiter=100)
    return solver.run(None, (matrix, linear), within, (-most, most)).params.primal


def _jaxopt(solver: Any, start: Sequence[float], within: float = 1e-4) -> Solve:
    return Solve(lambda a: solver.run(jnp.array(start), a).params, tolerance=within)


_DESCENT = {"maxiter": 50, "tol": 1e-4}

JAXOPT: Mapping[str, Solve] = {
    "GaussNewton": _jaxopt(jaxopt.GaussNewton(_decay), _NEAR),
    "LevenbergMarquardt": _jaxopt(jaxopt.LevenbergMarquardt(_decay), _NEAR),
    "LBFGS": _jaxopt(jaxopt.LBFGS(_valley, **_DESCENT), (-0.5, 0.5), 1e-2),
    "BFGS": _jaxopt(jaxopt.BFGS(_valley, **_DESCENT), (-0.5, 0.5), 1e-2),
    "GradientDescent": _jaxopt(jaxopt.GradientDescent(_bowl, maxiter=100, tol=1e-5), (0.5, 0.5)),
    "ProjectedGradient": Solve(_nearest(jaxopt.projection.projection_non_negative, 1.0)),
    "ProjectedGradient, simplex": Solve(_nearest(jaxopt.projection.projection_simplex, 1 / 3)),
    "BoxOSQP": Solve(_quadratic, tolerance=1e-3),
}


def _adam(a: Any) -> Any:
    """Two hundred steps."""
    optimizer, start = optax.adam(0.05), jnp.array([-0.5, 0.5])

    def step(carry: Any, _: None) -> tuple[Any, None]:
        y, state = carry
        updates, state = optimizer.update(jax.grad(_valley)(y, a), state)
        return (optax.apply_updates(y, updates), state), None

    return lax.scan(step, (start, optimizer.init(start)), None, length=200)[0][0]


def _adamw(a: Any) -> Any:
    """Until the gradient is small."""
    schedule = optax.cosine_decay_schedule(0.05, 200)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    start = jnp.array([-0.5, 0.5])

    def step(carry: Any) -> Any:
        y, state, count, _ = carry
        slope = jax.grad(_valley)(y, a)
        updates, state = optimizer.update(slope, state, y)
        return optax.apply_updates(y, updates), state, count + 1, jnp.linalg.norm(slope)

    carry = start, optimizer.init(start), 0, jnp.ones_like(a)
    return lax.while_loop(lambda c: (c[2] < 200) & (c[3] > 1e-3), step, carry)[0]


def _line_search(a: Any) -> Any:
    """Twenty steps of L-BFGS, each with a line search."""
    fun, optimizer = functools.partial(_valley, a=a), optax.lbfgs()
    both, start = optax.value_and_grad_from_state(fun), jnp.array([-0.5, 0.5])

    def step(carry: Any, _: None) -> tuple[Any, None]:
        y, state = carry
        value, grad = both(y, state=state)
        updates, state = optimizer.update(grad, state, y, value=value, grad=grad, value_fn=fun)
        return (optax.apply_updates(y, updates), state), None

    return lax.scan(step, (start, optimizer.init(start)), None, length=20)[0][0]


OPTAX: Mapping[str, Solve] = {
    "adam, scan": Solve(_adam, tolerance=1e-3),
    "adamw, while_loop": Solve(_adamw, tolerance=1e-3),
    "lbfgs": Solve(_line_search, tolerance=1e-2),
}


def _chain(kernel: Any, **options: Any) -> Callable[..., Any]:
    """The last position of a chain, and the mean of all."""

    def run(a: Any, key: Any) -> Any:
        def density(x: Array) -> Array:
            return -0.5 * jnp.sum(x**2 * jnp.array([1.0, 4.0, 0.2])) - 0.01 * a * jnp.sum(x**4)

        sampler = kernel(density, **options)

        def step(state: Any, key: Any) -> tuple[Any, Array]:
            state = sampler.step(key, state)[0]
            return state, state.position

        start = sampler.init(jnp.zeros(3))
        state, passed = lax.scan(step, start, jax.random.split(key, 50))
        return state.position, passed.mean(0)

    return run


_HAMILTONIAN = {"step_size": 0.1, "inverse_mass_matrix": np.ones(3, np.float32)}
BLACKJAX: Mapping[str, Solve] = {
    "hmc": Solve(_chain(blackjax.hmc, num_integration_steps=8, **_HAMILTONIAN), random=True),
    "nuts": Solve(_chain(blackjax.nuts, **_HAMILTONIAN), random=True),
    "mala": Solve(_chain(blackjax.mala, step_size=0.1), random=True),
}

DERIVATIVES: Mapping[str, Solve] = {
    "diffrax ForwardMode": _ode(_lorenz, dfx.Tsit5(), 1.0, 0.01, 1e-2, **_LOOSE, **_FORWARD),
    "diffrax DirectAdjoint": _ode(
        _van_der_pol, dfx.Heun(), 1.0, 0.05, **_SHORT, adjoint=dfx.DirectAdjoint()
    ),
    "diffrax RecursiveCheckpointAdjoint": _ode(_van_der_pol, dfx.Heun(), 1.0, 0.05, **_SHORT),
    "diffrax ForwardMode, Kvaerno3": _ode(
        _van_der_pol, dfx.Kvaerno3(), 1.0, 0.05, 1e-2, **_LOOSE, **_FORWARD
    ),
    "optimistix Newton": replace(OPTIMISTIX["Newton"], mode=jax.jacrev),
    **{
        f"{library} {name}": replace(solves[name], mode=mode, tolerance=within)
        for library, solves, name, mode, within in (
            ("optimistix", OPTIMISTIX, "LevenbergMarquardt", jax.jacfwd, 1e-3),
            ("optimistix", OPTIMISTIX, "FixedPointIteration", jax.jacrev, 1e-3),
            ("lineax", LINEAX, "LU", jax.jacrev, 1e-3), ("lineax", LINEAX, "QR", jax.jacfwd, 1e-3),
        )
    },
    "optax adam": Solve(_adam, mode=jax.jacfwd, tolerance=1e-2),
}  # fmt: skip
"""Solves whose derivative by the parameter is measured; those of optimistix are implicit."""

SCALED = (
    "diffrax Tsit5", "diffrax Kvaerno5, Robertson", "optimistix Newton",
    "optimistix LevenbergMarquardt", "lineax QR", "jaxopt BFGS", "optax adam, scan",
)  # fmt: skip
"""Solves that are measured at other numbers than 2,048, too."""

SOLVES: Mapping[str, Solve] = {
    f"{library} {name}": solve
    for library, solves in {
        "diffrax": DIFFRAX, "optimistix": OPTIMISTIX, "lineax": LINEAX, "jaxopt": JAXOPT,
        "optax": OPTAX, "blackjax": BLACKJAX,
    }.items()
    for name, solve in solves.items()
}  # fmt: skip
