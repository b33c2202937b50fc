"""Where JAX's modes may stand for an elimination: nothing infinite is multiplied by a zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import together
from veenv.engine import alternatives
from veenv.graph.linearisation import linearise
from veenv.graph.program import trace

X = np.array([0.0, 0.5, -1.0, 2.0])
HALF = np.array([True, False, True, False])

ROOTS = {
    "root": jnp.sqrt, "norm": lambda x: jnp.sqrt(jnp.sum(x * x)), "power": lambda x: x**0.25,
    "traced exponent": lambda x: x[:2] ** x[2:],
    "negative bound": lambda x: jnp.sqrt(x * x - 1.0),
    "arcsine": lambda x: jnp.arcsin(x * x + 0.5),
    "padded": lambda x: jnp.sqrt(jnp.where(HALF & (x[::-1] > 0), x, 1.0)),
    "padded by zero": lambda x: jnp.sqrt(jnp.where(x > 0, x, 0.0)),
    "one branch": lambda x: jnp.sqrt(jnp.where(x > 0, x * x, x * x + 1.0)),
}  # fmt: skip
SMOOTH = {
    "whole power": lambda x: x**3.0, "constant": lambda x: x * 10.0 ** (-jnp.arange(4.0) / 4),
}  # fmt: skip
MASKED = {  # (function, shut out of reverse mode, of forward mode)
    "polynomials": (lambda x: jnp.where(x > 0, x * x, jnp.sin(x)), False, False),
    "rectifier": (lambda x: jax.nn.relu(x @ jnp.eye(4)) * 2, False, False),
    "known mask": (lambda x: jnp.where(HALF, x, jnp.tanh(x)), False, False),
    "logarithm": (lambda x: jnp.where(x > 0, jnp.log(x), 0.0) * x, True, True),
    "overflow": (lambda x: jnp.where(x < 1, jnp.exp(x), x), True, True),
    "quotient": (lambda x: jnp.where(x != 0, jnp.sin(x) / x, 1.0), True, True),
    "bounded quotient": (lambda x: jnp.where(x > 1, x / (1.0 + x * x), x), True, True),
    "rectified quotient": (lambda x: jax.nn.relu(1 / x), True, True),
    "normalised": (lambda x: jax.nn.relu(x / jnp.sqrt(jnp.var(x) + 1e-5)), True, True),
    "negative power": (lambda x: jnp.where(x > 0, x**-2, x), True, True),
    "real power": (lambda x: jnp.where(x > 0, x**-1.5, x), True, True),
    "power of a sum": (lambda x: jnp.where(x > 0, (x * x + 1.0) ** -1.5, x), True, True),
    "large power": (lambda x: jnp.where(x < 1, x**20, x), True, True),
    "loop": (
        lambda x: jnp.where(HALF, jax.lax.scan(lambda c, y: (c * y, c), x, x)[0], x),
        False,
        False,
    ),
}


def padded(x):
    """What is not positive becomes zero."""
    return jnp.where(x > 0.3, x, 0.0)


@jax.custom_jvp
def half_power(x):
    return jnp.sqrt(x)


half_power.defjvp(lambda p, t: (half_power(p[0]), t[0] * (0.5 / jnp.sqrt(p[0]))))


NEAR = np.array([0, 2, 7])
REFUSED = {  # where JAX's modes are NaN and an elimination is not
    "entropy": lambda x: jnp.where(x > 0, jax.scipy.special.entr(x), 0.0) * 2,
    "padded entropy": lambda x: jnp.append(jnp.sum(jax.scipy.special.entr(padded(x))), x * x),
    "padded product": lambda x: jax.scipy.special.xlogy(padded(x), padded(x)) * x[::-1],
    "rule with a root": lambda x: jnp.where(x > 0, half_power(x), 0.0),
    "angle": lambda x: jnp.arctan2(padded(x), padded(x * x)) * x[::-1],
    "roots in a loop": lambda x: jax.lax.map(jnp.sqrt, padded(x)) * x[::-1],
    "roots in a branch": lambda x: jax.lax.cond(x[1] > 0, jnp.sqrt, jnp.sin, padded(x)) * x[::-1],
    "filled": lambda x: jnp.where(NEAR < 3, jnp.take(x, NEAR) * x[:3], 0.0),
    "softened quotient": lambda x: jnp.where(x > 0, jnp.sin(x) / (x * x + 1e-300), 1.0),
    "softened root": lambda x: jnp.where(x > 0, x * jax.lax.rsqrt(x * x + 1e-300), 1.0),
    "padded quotient": lambda x: padded(x) / (padded(x) ** 2 + 1e-300) * x[::-1],
    "denormal": lambda x: jnp.where(x > 0, jnp.sqrt(x * x + 1e-310), 0.0) * x,
    "rounded away": lambda x: jnp.sqrt((jnp.maximum(x, -1.0) + 1e-17) + 1.0),
}


def modes_of(fun):
    return alternatives.own_modes(linearise(trace(fun, (X,))))


@pytest.mark.parametrize("name", [*ROOTS, *SMOOTH, *MASKED, *REFUSED])
def test_modes_that_may_stand_for_an_elimination_are_what_it_is(x64, name):
    """None where something may be infinite."""
    fun = {**ROOTS, **SMOOTH, **REFUSED, **{k: f for k, (f, *_) in MASKED.items()}}[name]
    modes, at = modes_of(fun), jnp.asarray(X)
    assert name not in ROOTS or modes == ()
    assert name not in SMOOTH or modes
    for shut, mode in zip(MASKED.get(name, ())[1:], ("jacrev", "jacfwd"), strict=False):
        assert (mode in modes) != shut
    every = [veenv.jacve(fun, kernel="xla", pin=True), *(getattr(jax, m)(fun) for m in modes)]
    expected, *several = together(every, at)
    for mode, found in zip(modes, several, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14, err_msg=mode)


def test_long_programs_take_no_deep_calls_and_no_long_time():
    def fun(x):
        for _ in range(1500):
            x = jnp.where(x > 0, x + 0.1, x * 0.5)
        return x * x + 1.0

    assert modes_of(fun) == ("jacfwd", "jacrev")
