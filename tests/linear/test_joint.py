"""Equations with several results: how often their bodies are traced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

import veenv
from tests.oracles import by_numpy
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


def _newton(q):
    """A step of Newton's method for a rod: parts of a Hessian come to their places in a solve."""

    def strain(a, b):
        dx, dy = b[0] - a[0] + 1, b[1] - a[1]
        length = jnp.sqrt(dx * dx + dy * dy + 1)
        return 2 * length**2 + jnp.sin(b[2] - a[2]) ** 2 + (jnp.arctan2(dy, dx) - a[2]) ** 2

    def energy(q):
        rows = q.reshape(-1, 3)
        return jax.vmap(strain)(rows[:-1], rows[1:]).sum()

    return jnp.linalg.solve(jax.hessian(energy)(q) + 4 * jnp.eye(len(q)), q)


def test_a_pass_is_shared_by_what_stands_before_it(x64):
    q = np.linspace(0.3, 0.9, 9)
    modes = veenv.jacve(_newton, "reverse", kernel="xla"), jax.jacrev(_newton)
    ours, theirs = (jax.make_jaxpr(mode)(q) for mode in modes)
    assert_same(*(by_numpy.run(core.jaxpr_as_fun(f), q)[0] for f in (ours, theirs)), 1e-12)
    passes = [str(f).count("= triangular_solve[") for f in (ours, theirs)]
    assert passes[0] <= 3 * passes[1]
