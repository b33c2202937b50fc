"""Differential equations, beside what `tests/engine/test_libraries.py` has of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.ecosystem.check import jacobian_test, library, usual_promotion
from tests.engine.corpus.case import case, uniform
from veenv import fuse, jacve

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("x64")]
dfx = library("diffrax")
X, RATES = uniform(2), uniform(3)
ADAPTIVE = {"stepsize_controller": dfx.PIDController(rtol=1e-5, atol=1e-7)}


def _pendulum(t, y, rates):
    return jnp.stack([y[1], -rates[0] * jnp.sin(y[0]) - rates[1] * y[1] + rates[2] * jnp.cos(t)])


def _final(solver, saveat=None, **options):
    """The states at the end (or where `saveat` says), by the start and the rates."""

    def fun(start, rates):
        solution = dfx.diffeqsolve(
            dfx.ODETerm(_pendulum), solver, 0.0, 0.5, 0.125, start, rates, max_steps=16,
            saveat=saveat() if saveat else dfx.SaveAt(t1=True), **options,
        )  # fmt: skip
        return solution.ys * start[0]

    return fun


def _dense(start, rates):
    """The interpolated solution between steps."""
    solution = dfx.diffeqsolve(
        dfx.ODETerm(_pendulum), dfx.Dopri5(), 0.0, 0.5, 0.125, start, rates, max_steps=8,
        saveat=dfx.SaveAt(dense=True),
    )  # fmt: skip
    return jax.vmap(solution.evaluate)(jnp.array([0.11, 0.3]))


def _noisy(start, rates):
    """A stochastic equation along one Brownian path."""
    path = dfx.VirtualBrownianTree(0.0, 0.5, 1e-3, shape=(2,), key=jax.random.key(1))
    noise = dfx.ControlTerm(lambda t, y, a: jnp.diag(0.3 + a[0] * y**2), path)
    terms = dfx.MultiTerm(dfx.ODETerm(_pendulum), noise)
    return dfx.diffeqsolve(terms, dfx.Heun(), 0.0, 0.5, 0.125, start, rates, max_steps=8).ys


def _controlled(start, points):
    """A controlled equation driven by a cubic through given points."""
    times = jnp.linspace(0.0, 0.5, 4)
    control = dfx.CubicInterpolation(times, dfx.backward_hermite_coefficients(times, points))
    term = dfx.ControlTerm(lambda t, y, a: jnp.outer(jnp.tanh(y), y + 1.0), control).to_ode()
    return dfx.diffeqsolve(term, dfx.Midpoint(), 0.0, 0.5, 0.125, start, max_steps=8).ys


def _symplectic(start, rates):
    terms = (
        dfx.ODETerm(lambda t, p, a: a[0] * p),
        dfx.ODETerm(lambda t, q, a: -a[1] * jnp.sin(q) + a[2]),
    )
    solution = dfx.diffeqsolve(
        terms, dfx.SemiImplicitEuler(), 0.0, 0.5, 0.125, (start[0], start[1]), rates, max_steps=8
    )
    return jnp.stack(solution.ys)


def _at():
    """Made where it is used: its times are JAX arrays, which would be float32 at import."""
    return dfx.SaveAt(ts=np.array([0.1, 0.3, 0.5]))


BOTH = {"argnums": (0, 1)}
CASES = [
    case("dopri8_saved", _final(dfx.Dopri8(), _at), X, RATES, **BOTH),
    case("kvaerno5", _final(dfx.Kvaerno5(), **ADAPTIVE), X, RATES, **BOTH),
    case("dense_output", _dense, X, RATES, **BOTH), case("stochastic", _noisy, X, RATES, **BOTH),
    case("controlled", _controlled, X, uniform(4, 2, seed=1), **BOTH),
    case("symplectic", _symplectic, X, RATES, **BOTH),
]  # fmt: skip


test_jacobian = jacobian_test(CASES)


def test_loops_have_the_modes_that_jax_has():
    """Their rules refuse every tangent, of values that have none."""
    forward = _final(dfx.Tsit5(), adjoint=dfx.ForwardMode(), **ADAPTIVE)
    direct = _final(dfx.Tsit5(), adjoint=dfx.DirectAdjoint(), **ADAPTIVE)
    with usual_promotion():
        expected = jax.jit(jax.jacfwd(forward, 1))(X, RATES)
        for jacobian in (jacve(forward, argnums=1), jacve(direct, "forward", 1)):
            np.testing.assert_allclose(jax.jit(jacobian)(X, RATES), expected, rtol=1e-9)


@pytest.mark.parametrize("solver", [dfx.Tsit5, dfx.Dopri5])
def test_interpolations_of_as_many_steps_as_there_are_by_default_are_kernels(solver):
    """Arrays of 4,096 rows are memory of the loop; what is read of them is all that counts."""

    def fun(start, rates):
        solution = dfx.diffeqsolve(
            dfx.ODETerm(_pendulum), solver(), 0.0, 0.5, 0.125, start, rates,
            saveat=dfx.SaveAt(dense=True), stepsize_controller=dfx.PIDController(1e-4, 1e-6),
        )  # fmt: skip
        return solution.evaluate(0.3), solution.derivative(0.11)

    point = jnp.array([0.4, 0.2]), jnp.array([0.3, 1.1, 0.2])
    found, wanted = fuse(fun)(*point), fun(*point)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5), found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "count"), [(dfx.Tsit5, 150), (dfx.Bosh3, 200)])
def test_reverse_mode_of_many_saved_times_is_a_kernel(solver, count):
    """One loop around has all cotangents, 300 or 400, in arrays that its steps go through."""

    def fun(rates):
        return dfx.diffeqsolve(
            dfx.ODETerm(_pendulum), solver(), 0.0, 0.5, 0.125, jnp.array([0.4, 0.2]), rates,
            saveat=dfx.SaveAt(ts=jnp.linspace(0, 0.5, count)),
            stepsize_controller=dfx.PIDController(1e-4, 1e-6),
        ).ys  # fmt: skip

    rates = jnp.array([[0.3, 1.1, 0.2], [0.2, 0.9, 0.4]])
    found, wanted = (jax.jit(jax.vmap(f))(rates) for f in (fuse(jax.jacrev(fun)), jax.jacrev(fun)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
