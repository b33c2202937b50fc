"""Constants, values and slopes that are not finite stay as JAX has them, in every order."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import quick_jit

pytestmark = pytest.mark.usefixtures("x64")
NAN, INF = np.nan, np.inf
POINTS = [v.ravel() for v in np.meshgrid(*2 * [[0.0, -0.0, 1.0, -2.0, 0.5, INF, -INF, NAN]])]
"""Of x and of c."""
ORDERS = [(), ("forward",), ("reverse",), ("markowitz",)]


@jax.custom_jvp
def ruled(x: Any) -> Any:
    return 2 * x


@jax.custom_vjp
def ruled_backwards(x: Any) -> Any:
    return 2 * x


ruled.defjvp(lambda p, t: (ruled(*p), t[0] / p[0]))
ruled_backwards.defvjp(lambda x: (2 * x, x), lambda x, g: (g * jnp.log(x),))
FUNCTIONS = {
    "product": lambda x, c: x * c, "quotient": lambda x, c: x / c, "sum": lambda x, c: x + c - INF,
    "constant": lambda x, c: NAN, "NaN times": lambda x, c: NAN * x + c,
    "infinity times": lambda x, c: INF * x - c, "zero times": lambda x, c: 0.0 * x * c,
    "by zero": lambda x, c: x / 0.0 + c, "inverse": lambda x, c: 1 / x + c,
    "inverse cube": lambda x, c: x**-3 * c, "power": lambda x, c: jnp.abs(x) ** c,
    "root": lambda x, c: jnp.sqrt(x * c), "square of a root": lambda x, c: jnp.sqrt(x) ** 2,
    "exponential": lambda x, c: jnp.exp(c * x), "logarithm": lambda x, c: jnp.log(x) * c,
    "sum of exponentials": jnp.logaddexp, "tangent": lambda x, c: jnp.tanh(x) * c,
    "angle": jnp.arctan2, "larger": jnp.maximum, "smaller": lambda x, c: jnp.minimum(x * x, c),
    "within": lambda x, c: jnp.clip(x, -INF, c), "size": lambda x, c: jnp.abs(x) + jnp.sign(c) * x,
    "select": lambda x, c: jnp.where(x > 0, c * x, c),
    "instead of NaN": lambda x, c: jnp.where(jnp.isnan(x), c, x * c),
    "branch": lambda x, c: lax.cond(c > 0, lambda x: x * INF, jnp.sin, x),
    "loop": lambda x, c: lax.scan(lambda y, k: (y * c + k * x, None), x, np.array([1.0, INF]))[0],
    "rule": lambda x, c: ruled(x) * c, "reverse rule": lambda x, c: ruled_backwards(x) * c,
}  # fmt: skip


def one(name: str, x: Any, c: Any) -> Any:
    return jnp.asarray(FUNCTIONS[name](x, c), x.dtype)


def every(x: Any, c: Any) -> dict[str, Any]:
    return {name: one(name, x, c) for name in FUNCTIONS}


@functools.cache
def of_jax() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Values and slopes at all points, by forward and by reverse mode."""

    def point(x: Any, c: Any) -> Any:
        forward, reverse = {}, {}
        for name in FUNCTIONS:
            fun = functools.partial(one, name)
            reverse[name] = jax.grad(fun, (0, 1))(x, c)
            if name != "reverse rule":  # which has no other
                units = ((1.0, 0.0), (0.0, 1.0))
                forward[name] = tuple(jax.jvp(fun, (x, c), unit)[1] for unit in units)
        return every(x, c), reverse | forward, reverse

    return quick_jit(jax.vmap(point))(*POINTS)


def same(a: Any, b: Any) -> Any:
    return np.isclose(a, b, rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize("kernel", ["xla", pytest.param("fused", marks=pytest.mark.kernels)])
def test_values_and_slopes_are_those_of_a_mode_of_jax(kernel):
    """Of all functions at once: what is not finite in one does not spread to another."""
    value, forward, reverse = of_jax()
    run = jax.jit if kernel == "fused" else quick_jit
    jacobians = [
        jax.vmap(veenv.value_and_jacve(every, *o, argnums=(0, 1), kernel=kernel)) for o in ORDERS
    ]
    several = run(lambda *args: [jacobian(*args) for jacobian in jacobians])(*POINTS)
    for order, (got_value, slopes) in zip(ORDERS, several, strict=True):
        for name in FUNCTIONS:
            assert same(got_value[name], value[name]).all(), (name, order)
            for got, fwd, rev in zip(slopes[name], forward[name], reverse[name], strict=True):
                wrong = np.flatnonzero(~same(got, fwd) & ~same(got, rev))
                found = [(*(v[k] for v in POINTS), got[k], fwd[k], rev[k]) for k in wrong]
                assert not found, (name, order)


C = np.array([NAN, INF, 2.0])
M = np.array([[1.0, INF, 2.0], [NAN, 3.0, -INF], [1.0, 2.0, 3.0]])
LINEAR = {
    "entries": (lambda x: C * x, np.diag(C)),
    "entries, selected": (lambda x: jnp.where(jnp.isnan(C), x, C * x), np.diag([1.0, INF, 2.0])),
    "sum": (lambda x: C @ x, C),
    "beside": (lambda x: x + C, np.eye(3)),
    "matrix": (lambda x: M @ x, M),
    "rows": (lambda x: (M @ x)[::2] * 2, 2 * M[::2]),
    "none": (lambda x: 0 * x[0] + C, np.zeros((3, 3))),
}


@pytest.mark.parametrize("name", LINEAR)
def test_constants_stay_in_the_entries_they_are_of(name):
    """JAX's modes multiply them by zeros of their basis vectors, too."""
    fun, expected = LINEAR[name]
    x = np.array([0.5, -1.0, 2.0])
    ours = [veenv.jacve(fun, *order, kernel="xla") for order in ORDERS]
    sparse = veenv.jacve(fun, sparse_representation=True)
    found = quick_jit(lambda x: [sparse(x).todense(), *(jacobian(x) for jacobian in ours)])(x)
    for got in (*found, jax.vmap(veenv.jacve(fun, kernel="fused"))(x[None])[0]):
        np.testing.assert_array_equal(got, expected)
