"""Random solves as one kernel: others are right where some fail, all end, limits are kept."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.clients.ecosystem.check import library, usual_promotion

pytestmark = pytest.mark.clients
dfx = library("diffrax")

METHODS = {
    "Tsit5": (2, 128), "Dopri5": (3, 64), "Bosh3": (1, 256), "Heun": (4, 100),
    "Kvaerno3": (2, 96), "Kvaerno5": (3, 48), "ImplicitEuler": (2, 64), "Dopri8": (2, 40),
}  # fmt: skip
"""Unknowns and the most steps."""
FIELDS = 50
"""Random vector fields with random tolerances, of each method."""
LANES = 11


def solve(method: str) -> Any:
    """A solve of y' = A tanh(B y + c) + d y², by its coefficients and tolerances."""
    most = METHODS[method][1]

    def field(t: Any, y: Any, args: Any) -> Any:
        a, b, c, d = args
        return a @ jnp.tanh(b @ y + c * jnp.cos(t)) + d * y * y

    def fun(coefficients: Any, start: Any, rtol: Any) -> Any:
        found = dfx.diffeqsolve(
            dfx.ODETerm(field), getattr(dfx, method)(), 0.0, 1.0, 0.02, start, args=coefficients,
            stepsize_controller=dfx.PIDController(rtol=rtol, atol=0.01 * rtol),
            max_steps=most, throw=False,
        )  # fmt: skip
        return found.ys, found.result._value, found.stats["num_steps"]

    return fun


def points(method: str, field: int, dtype: Any) -> Any:
    """Coefficients of a random field, and lanes of which some diverge or are not finite."""
    size, _ = METHODS[method]
    rng = np.random.default_rng([field, *map(ord, method)])
    a, b = rng.normal(size=(2, LANES, size, size)) * rng.choice([0.5, 2.0, 8.0])
    c, d = rng.normal(size=(2, LANES, size))
    start = rng.normal(size=(LANES, size))
    d[1] = 40 * np.sign(start[1])  # infinite before the end, mostly
    start[4], a[6, 0, 0], c[8, 0], d[9] = np.nan, np.inf, np.nan, 1e30 * np.sign(start[9])
    rtol = np.full(LANES, 10.0 ** rng.uniform(-5, -2))
    every = (a, b, c, d), start, rtol
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), every)


def compared(method: str, fields: range, wide: bool) -> int:
    """Compares solves of many fields; returns of how many lanes the values were compared."""
    fun, most, lanes = solve(method), METHODS[method][1], 0
    with jax.enable_x64(wide), usual_promotion():
        dtype = jnp.result_type(float)
        fused, plain = jax.jit(jax.vmap(veenv.fuse(fun))), jax.jit(jax.vmap(fun))
        for field in fields:
            args = points(method, field, dtype)
            ys, codes, steps = map(np.asarray, fused(*args))
            wanted, expected, counted = map(np.asarray, plain(*args))
            assert (steps <= most).all()
            # a step that is refused by a hair is another path, which may be one too long
            near = (abs(counted - most) <= 2) | (abs(steps - most) <= 2)
            assert ((codes == expected) | near).all(), (field, codes, expected, steps, counted)
            fine = (codes == 0) & (expected == 0)
            assert not fine[[4, 6, 8, 9]].any()
            lanes += int(fine.sum())
            # of steps that another rounding makes other ones the results are apart by many times it
            tolerance = (50 if wide else 200) * float(args[2][0])
            scale = 1 + np.abs(wanted[fine])
            assert (np.abs(ys[fine] - wanted[fine]) <= tolerance * scale).all(), field
    return lanes


@pytest.mark.parametrize("method", ["Tsit5", "Kvaerno3"])
def test_some(method: str):
    """A dozen of them."""
    assert compared(method, range(6), wide=True) > 12


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_many(method: str):
    """All 400, half of them in float32."""
    half = FIELDS // 2
    assert compared(method, range(half), wide=True) + compared(
        method, range(half, FIELDS), wide=False
    )
