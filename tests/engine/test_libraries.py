"""Every order gives the Jacobian that JAX has: solvers and loops of the libraries that are claimed.

Their rules are told what moves, hold iterations that stop at once for zeros, take complex numbers,
or are linear only as their library says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.clients.ecosystem.check import library, usual_promotion
from tests.oracles.jacobians import orders, together
from tests.sampling import spared
from veenv.kernel.scalar_program import CannotFuseError

pytestmark = pytest.mark.usefixtures("x64")
bx, dfx, eqxi = map(library, ("blackjax", "diffrax", "equinox.internal"))
jaxopt, lx, optax, optx = map(library, ("jaxopt", "lineax", "optax", "optimistix"))

X = (0.7, -0.4)
MIXING = np.array([[1.0, 0.3], [0.3, -1.0]])
CLOSE, FAST = {"rtol": 1e-12, "atol": 1e-12}, {"rtol": 1e-6, "atol": 1e-6}


def _numbers(y: Any) -> Any:
    """Real numbers, of complex ones both parts."""
    leaves = [jnp.ravel(x) for x in jax.tree.leaves(y)]
    split = [(x.real, x.imag) if jnp.iscomplexobj(x) else (x,) for x in leaves]
    return jnp.concatenate([*itertools.chain(*split)])


def _turned(a: Any, y: Any) -> Any:
    """What a step of a loop, or of an equation, adds to its state."""
    factor = 1j * a[0] if jnp.iscomplexobj(y) else a[0]
    return 0.2 * (factor * (MIXING.astype(y.dtype) @ y) + a[1] * y * y)


def _state(a: Any, dtype: str) -> Any:
    return jnp.array([1.0, 0.5]).astype(jnp.promote_types(dtype, a.dtype)) * (1 + a[0])


def _loop(kind: str, dtype: str = "complex64", steps: int = 4, **options: Any) -> Any:
    """A loop of equinox with a real number beside the state."""

    def fun(a: Any) -> Any:
        def step(s: Any) -> Any:
            turn, y, beside = s
            return turn + 1, y + _turned(a, y), beside * a[1] + (y * y.conj()).real[0]

        start = 0, _state(a, dtype), jnp.sum(a)
        unfinished = lambda s: (s[0] < steps) & (abs(s[1]).sum() < 99)  # noqa: E731
        return _numbers(eqxi.while_loop(unfinished, step, start, kind=kind, **options)[1:])

    return fun


def _scan(kind: str, **options: Any) -> Any:
    def fun(a: Any) -> Any:
        step = lambda y, t: (y + t * _turned(a, y), y[0])  # noqa: E731
        rows = jnp.linspace(0.5, 1.0, 3)
        return _numbers(eqxi.scan(step, _state(a, "complex64"), rows, kind=kind, **options))

    return fun


def _ode(solver: Any, dtype: str = "complex64", at: Any = None, **options: Any) -> Any:
    def fun(a: Any) -> Any:
        saved = dfx.SaveAt(t1=True) if at is None else dfx.SaveAt(ts=np.array(at))
        term = dfx.ODETerm(lambda t, y, a: jnp.cos(t) * _turned(a, y))
        return _numbers(
            dfx.diffeqsolve(
                term, solver, 0.0, 0.5, 0.25, _state(a, dtype), a, saveat=saved, max_steps=4,
                **options,
            ).ys
        )  # fmt: skip

    return fun


def _at_rest(a: Any) -> Any:
    """The steady state of a decay, by the theorem of implicit functions."""
    rest = dfx.Event(dfx.steady_state_event(rtol=1e-9, atol=1e-9))
    return dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, a: jnp.cos(a * y) - 4 * y), dfx.Tsit5(), 0.0, jnp.inf, None,
        jnp.ones(2), a, max_steps=None, event=rest, adjoint=dfx.ImplicitAdjoint(),
        stepsize_controller=dfx.PIDController(rtol=1e-9, atol=1e-9),
    ).ys[0]  # fmt: skip


POSITIVE = lx.positive_semidefinite_tag
LINEAR = {
    "LU": lx.LU(), "QR": lx.QR(), "SVD": lx.SVD(), "Cholesky": lx.Cholesky(), "CG": lx.CG(**CLOSE),
    "AutoLinearSolver": lx.AutoLinearSolver(well_posed=None), "GMRES": lx.GMRES(**CLOSE),
    "BiCGStab": lx.BiCGStab(**CLOSE), "NormalCG": lx.Normal(lx.CG(**CLOSE)),
    "LSMR": lx.LSMR(**CLOSE), "NormalCholesky": lx.Normal(lx.Cholesky()),
}  # fmt: skip


def _linear(solver: Any) -> Any:
    """A solve, and a function of one's own whose tangent is one."""

    def solved(a: Any, b: Any) -> Any:
        matrix = jnp.array([[2.0, 0.1], [0.1, 3.0]], b.dtype) + a[0] * jnp.eye(2, dtype=b.dtype)
        return lx.linear_solve(lx.MatrixLinearOperator(matrix, POSITIVE), b, solver).value

    @jax.custom_jvp
    def implicit(a: Any) -> Any:
        return a / 2

    @implicit.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return implicit(*primals), solved(primals[0], tangents[0])

    return lambda a: implicit(jnp.sin(a)) * solved(a, a)


def _residual(y: Any, a: Any) -> Any:
    """Two equations, whose Jacobian by y is symmetric and positive."""
    return jnp.stack([y[0] ** 3 + 2 * y[0] + 0.1 * y[1] - a[0], 3 * y[1] + 0.1 * y[0] - a[1]])


def _energy(y: Any, a: Any) -> Any:
    return jnp.sum((y - a) ** 2) + 0.1 * jnp.sum(y**4) + 0.1 * y[0] * y[1]


def _found(find: Any, fun: Any, solver: Any, linear: str, scalar: bool = False) -> Any:
    """What optimistix finds, by implicit derivatives through a linear solver."""
    start = 0.3 if scalar else (0.3, 0.3)

    def solution(a: Any) -> Any:
        adjoint = optx.ImplicitAdjoint(LINEAR[linear])
        return find(fun, solver, jnp.array(start), a, max_steps=200, adjoint=adjoint).value * a[0]

    return solution


def _pair(y: Any, a: Any) -> Any:
    first, second = _residual(jnp.stack([y[0], y[1]["b"]]), a)
    return first, {"b": second}


def _tree(a: Any) -> Any:
    """A root that is a tree."""
    adjoint = optx.ImplicitAdjoint(LINEAR["NormalCG"])
    start = jnp.asarray(0.3), {"b": jnp.asarray(0.2)}
    return _numbers(optx.root_find(_pair, optx.Newton(**CLOSE), start, a, adjoint=adjoint).value)


def _descent(optimizer: Any) -> Any:
    """Three steps of optax."""

    def fun(a: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            y, state = carry
            updates, state = optimizer.update(jax.grad(_energy)(y, a), state, y)
            return (optax.apply_updates(y, updates), state), None

        start = a * a
        return lax.scan(step, (start, optimizer.init(start)), None, length=3)[0][0]

    return fun


def _chain(kernel: Any, **options: Any) -> Any:
    """Two samples of a chain, by a density's parameters."""

    def fun(a: Any) -> Any:
        sampler = kernel(lambda x: -_energy(x, a), **options)
        state = sampler.init(a + 1)
        for key in jax.random.split(jax.random.key(2)):
            state = sampler.step(key, state)[0]
        return state.position

    return fun


ROOT, LEAST, LEAP = optx.root_find, optx.least_squares, np.ones(2)
IMPLICIT = {"implicit_diff": True, "tol": 1e-12}
CASES: dict[str, Callable[..., Any]] = {
    "equinox checkpointed": _loop("checkpointed", max_steps=5),
    "equinox checkpointed, real": _loop("checkpointed", "float32", max_steps=5),
    "equinox few checkpoints": _loop("checkpointed", checkpoints=2),
    "equinox bounded": _loop("bounded", max_steps=5),
    "equinox one step": _loop("checkpointed", steps=1, max_steps=1),
    "equinox lax": _loop("lax"),
    "equinox scan, checkpointed": _scan("checkpointed", checkpoints=2),
    "equinox scan": _scan("lax"), "diffrax Euler": _ode(dfx.Euler()),
    "diffrax Euler, SaveAt(ts)": _ode(dfx.Euler(), at=(0.1, 0.5)),
    "diffrax Tsit5, PID": _ode(dfx.Tsit5(), stepsize_controller=dfx.PIDController(rtol=1e-1,
        atol=1e-1)),
    "diffrax ImplicitEuler": _ode(dfx.ImplicitEuler(dfx.VeryChord(**FAST)), "float32"),
    "diffrax DirectAdjoint": _ode(dfx.Euler(), adjoint=dfx.DirectAdjoint()),
    "diffrax BacksolveAdjoint": _ode(dfx.Euler(), "float32", adjoint=dfx.BacksolveAdjoint()),
    "diffrax ForwardMode": _ode(dfx.Euler(), adjoint=dfx.ForwardMode()),
    "diffrax ImplicitAdjoint": _at_rest,
    # BiCGStab breaks down at a solve of these, for JAX as well.
    **{f"lineax {name}": _linear(LINEAR[name]) for name in LINEAR if name != "BiCGStab"},
    "optimistix Newton": _found(ROOT, _residual, optx.Newton(**CLOSE), "NormalCG"),
    "optimistix Newton, CG": _found(ROOT, _residual, optx.Newton(**CLOSE), "LSMR"),
    "optimistix Newton, scalar": _found(ROOT, lambda y, a: y**3 + y - a[0], optx.Newton(**CLOSE),
        "GMRES", scalar=True),
    "optimistix Newton, tree": _tree,
    "optimistix Chord": _found(ROOT, _residual, optx.Chord(**CLOSE), "BiCGStab"),
    "optimistix Dogleg": _found(ROOT, _residual, optx.Dogleg(**CLOSE), "SVD"),
    "optimistix BFGS": _found(optx.minimise, _energy, optx.BFGS(**CLOSE), "NormalCG"),
    "optimistix LevenbergMarquardt": _found(LEAST, _residual, optx.LevenbergMarquardt(**CLOSE),
        "QR"),
    "optimistix IndirectLevenbergMarquardt": _found(LEAST, _residual,
        optx.IndirectLevenbergMarquardt(**CLOSE), "NormalCG"),
    "optimistix FixedPointIteration": _found(optx.fixed_point,
        lambda y, a: 0.4 * jnp.cos(y * a) + 0.1 * y[::-1], optx.FixedPointIteration(**CLOSE),
        "GMRES"),
    "jaxopt GradientDescent": lambda a: (jaxopt.GradientDescent(_energy, **IMPLICIT).run(a * 0,
        a).params),
    "jaxopt LBFGS": lambda a: jaxopt.LBFGS(_energy, **IMPLICIT).run(a * 0, a).params,
    "jaxopt GaussNewton": lambda a: jaxopt.GaussNewton(_residual, **IMPLICIT).run(a * 0, a).params,
    "optax adam": _descent(optax.adam(0.1)),
    "optax clip": _descent(optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.1))),
    "blackjax hmc": _chain(bx.hmc, step_size=0.1, num_integration_steps=2,
        inverse_mass_matrix=LEAP),
    "blackjax mala": _chain(bx.mala, step_size=0.1),
}  # fmt: skip
SOON = (
    "equinox checkpointed", "equinox bounded", "lineax NormalCG", "optimistix Newton",
    "optax clip",
)  # fmt: skip


def _of_jax(fun: Any, at: Any) -> Iterator[Any]:
    """Yields the modes that JAX has of a function."""
    for mode in (jax.jacrev, jax.jacfwd):
        with suppress(Exception):  # of whichever library
            jax.eval_shape(mode(fun), at)
            yield mode


@pytest.mark.filterwarnings("ignore:Complex dtype support in Diffrax")
@pytest.mark.parametrize("name", spared(CASES, *SOON))
def test_every_order_is_the_mode_that_jax_has(name):
    fun, at = CASES[name], np.array(X)
    with usual_promotion():
        mode, *_ = _of_jax(fun, at)
        graph = veenv.make_graph(fun)(at)
        several = ["auto", *orders(graph, num_random=1)]
        ours = [veenv.jacve(fun, order, kernel="xla") for order in several]
        expected, *found = together([mode(fun), *ours], at)
    assert np.isfinite(expected).all()
    assert np.any(expected)
    for order, x in zip(several, found, strict=True):
        np.testing.assert_allclose(x, expected, rtol=1e-7, atol=1e-9, err_msg=str(order))


@pytest.mark.filterwarnings("ignore:Complex dtype support in Diffrax")
@pytest.mark.parametrize("name", spared(CASES, "lineax NormalCG", "equinox bounded"))
def test_batches_and_kernels_have_it_too(name):
    fun, at = CASES[name], np.array([X, (0.6, -0.5)])
    with usual_promotion():
        mode, *_ = _of_jax(fun, at[0])
        expected = jax.jit(jax.vmap(mode(fun)))(at)
        ours = {
            "default": veenv.jacve(fun),
            "XLA": veenv.jacve(fun, kernel="xla"),
            "kernel": veenv.jacve(fun, kernel="fused"),
            "JAX's": veenv.fuse(mode(fun)),
        }
        if jax.jacfwd in _of_jax(fun, at[0].astype("float32")):
            ours["float32"] = lambda a: veenv.jacve(fun, "forward")(a.astype("float32"))
        for how, jacobian in ours.items():
            with suppress(CannotFuseError):
                found = jax.jit(jax.vmap(jacobian))(at)
                tol = 1e-6 if found.dtype == np.float64 else 2e-3
                np.testing.assert_allclose(found, expected, rtol=tol, atol=tol, err_msg=how)
