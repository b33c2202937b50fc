"""Solves of other libraries as one kernel: as their pages call them, beside `jit(vmap)`."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import veenv
from tests.clients.ecosystem.check import library, usual_promotion
from tests.docs.pages import blocks_of, run_block

pytestmark = pytest.mark.clients
for name in ("diffrax", "optimistix", "lineax", "jaxopt", "optax", "blackjax"):
    library(name)
with usual_promotion():
    from scripts.benchmarks.functions.solves import DERIVATIVES, SOLVES, Solve
    from scripts.benchmarks.programs import difference

BATCH = 12


def compared(solve: Solve, tolerance: float):
    """What `jit(vmap)` gives, which that of the kernel is near."""
    with usual_promotion():
        points = solve.points(BATCH)
        found = jax.jit(jax.vmap(veenv.fuse(solve.fun)))(*points)
        expected = jax.jit(jax.vmap(solve.fun))(*points)
    assert difference(found, expected) <= tolerance
    return expected


@pytest.mark.parametrize("name", SOLVES)
def test_values(name):
    expected = compared(SOLVES[name], SOLVES[name].tolerance)
    assert any(np.unique(leaf).size > 1 for leaf in jax.tree.leaves(expected))


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("place", ["inside", "outside"])
def test_derivatives(name, place):
    solve: Solve = DERIVATIVES[name]
    assert solve.mode is not None
    with usual_promotion():
        points = solve.points(BATCH)
        expected = jax.jit(jax.vmap(solve.mode(solve.fun)))(*points)
        fused = (
            veenv.fuse(solve.mode(solve.fun)) if place == "inside"
            else solve.mode(veenv.fuse(solve.fun))
        )  # fmt: skip
        assert difference(jax.jit(jax.vmap(fused))(*points), expected) <= solve.tolerance
        if place == "outside":
            order = "reverse" if solve.mode is jax.jacrev else "forward"
            jacobian = veenv.fuse(veenv.jacve(solve.fun, order))
            assert difference(jax.jit(jax.vmap(jacobian))(*points), expected) <= solve.tolerance


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "name", ["diffrax Tsit5", "optimistix Newton", "lineax SVD", "jaxopt BFGS"]
)
def test_float64(name):
    compared(SOLVES[name], min(SOLVES[name].tolerance, 1e-6))


def test_errors_are_raised_and_results_tell_them():
    """A solve that fails raises as the library does; without `throw` its code says why."""
    dfx, optx = pytest.importorskip("diffrax"), pytest.importorskip("optimistix")

    def steps(rate, throw):
        term = dfx.ODETerm(lambda t, y, a: -rate * y)
        return dfx.diffeqsolve(
            term, dfx.Tsit5(), 0.0, 1.0, 0.1, rate * 0 + 1, max_steps=16, throw=throw,
            stepsize_controller=dfx.PIDController(1e-5, 1e-5),
        )  # fmt: skip

    def root(a, throw):
        solver = optx.Newton(1e-6, 1e-6)
        return optx.root_find(lambda y, _: y * y + a, solver, a * 0 + 1, max_steps=9, throw=throw)

    with usual_promotion():
        for solve, value, successful, good, message in (
            (steps, lambda s: s.ys, dfx.RESULTS.successful, [1.0, 2.0], "maximum number of solver"),
            (root, lambda s: s.value, optx.RESULTS.successful, [-4.0, -2.0], "maximum number of"),
        ):

            def both(a, solve=solve, value=value, successful=successful):
                found = solve(a, throw=False)
                return value(found), found.result == successful

            bad = np.array([*good, 1e4], np.float32)
            found = jax.jit(jax.vmap(veenv.fuse(both)))(bad)
            expected = jax.jit(jax.vmap(both))(bad)
            np.testing.assert_array_equal(found[1], expected[1])
            assert found[1].tolist() == [True, True, False]
            np.testing.assert_allclose(found[0][:2], expected[0][:2], rtol=1e-4)
            raising = jax.jit(jax.vmap(veenv.fuse(lambda a, s=solve, v=value: v(s(a, throw=True)))))
            np.testing.assert_allclose(raising(bad[:2]), expected[0][:2], rtol=1e-4)
            with pytest.raises(Exception, match=message):
                jax.block_until_ready(raising(bad))


def test_recipes(capsys):
    names: dict = {}
    with usual_promotion():
        for block in blocks_of("docs/libraries.md"):
            run_block(block, names, "docs/libraries.md", capsys)
