"""Equations with several results: how often their bodies are traced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_same
from tests.sampling import spared


def _states(x):
    """A loop of unknown length whose four values are all results and all depend on each other."""

    def body(carry):
        a, b, c, d = carry
        return jnp.sin(a) * d, b + a[0] * d, c * jnp.cos(b), d + c.sum() * a

    start = (x, x * x, jnp.cos(x), x + 1.0)
    return jax.lax.while_loop(lambda carry: jnp.abs(carry[3]).max() < 3.0, body, start)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("order", spared(["forward", "reverse", "markowitz"], "forward"))
def test_a_loop_without_transpose_is_passed_once_for_each_operand(order):
    x = np.array([0.3, 0.5])
    assert_same(jax.jit(veenv.jacve(_states, order))(x), jax.jacfwd(_states)(x))


def test_columns_of_a_loop_are_shared_by_its_results():
    """Once for the value and once for each of the four operands, not for each of 16 partials."""
    jaxpr = jax.make_jaxpr(veenv.jacve(_states, "reverse", kernel="xla"))(np.array([0.3]))
    assert 1 < str(jaxpr).count("= while[") <= 1 + 4
