"""Zeros that a sum of partials of different structure stores: they meet nothing infinite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import quick_jit

pytestmark = pytest.mark.usefixtures("x64")


def scaled(x: Any) -> Any:
    """Its derivative is a diagonal and a column."""
    return x * x[jnp.argmax(x)]


def shifted(k: int, inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (lambda h: h.at[k].add(h[k + 1]))(inner(x))


FOUR, FIVE = np.array([2.7, 0.0, 0.0, 2.2]), np.array([1.2, 0.0, 2.9, 0.0, 0.0])
SQUARE = np.array([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
CASES = {
    "angle": (shifted(1, lambda x: jnp.arctan2(x, scaled(x))), FOUR),
    "other angle": (shifted(1, lambda x: jnp.arctan2(scaled(x), x)), FOUR),
    "other place": (shifted(3, lambda x: jnp.arctan2(x, scaled(x))), FIVE),
    "reversed": (lambda x: (lambda h: h[::-1] - h)(jnp.hypot(x, x * x[0])), FIVE),
    "rows": (lambda x: (lambda h: h + jnp.roll(h, 1, 0))(jnp.arctan2(x, x * x[:1])), SQUARE),
}


@pytest.mark.parametrize("name", CASES)
def test_entries_are_finite_where_both_modes_are(name):
    fun, x = CASES[name]
    orders = ("forward", "markowitz", "reverse")
    jacobians = {order: veenv.jacve(fun, order) for order in orders}
    modes = [jax.jacrev(fun), jax.jacfwd(fun)]
    every = lambda x: ([m(x) for m in modes], {o: j(x) for o, j in jacobians.items()})  # noqa: E731
    (reverse, forward), found = jax.tree.map(np.asarray, quick_jit(every)(x))
    found["eager"] = np.asarray(jacobians["markowitz"](x))
    sure = np.isfinite(reverse) & np.isclose(reverse, forward)
    assert sure.any()
    for order, jacobian in found.items():
        np.testing.assert_allclose(jacobian[sure], reverse[sure], rtol=1e-12, err_msg=order)
