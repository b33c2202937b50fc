"""The arithmetic of programs: what is counted, at which weight, and what is not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import veenv
from tests.oracles.multiplications import count_additions, count_multiplications
from veenv.kernel.weights import WEIGHTS
from veenv.measure.arithmetic import (
    additions_in,
    evaluation_operations,
    multiplications_in,
    weight_of,
)


def test_additions_are_those_of_sums_and_contractions_but_of_integers():
    def f(x, a, k):
        y = jax.jit(lambda v: v + v - 1.0)(x)
        return lax.cond(k + 1 > 0, lambda: a @ y + y.sum(), lambda: y[:2])

    jaxpr = jax.make_jaxpr(f)(jnp.ones(3), jnp.ones((2, 3)), 1)
    assert additions_in(jaxpr) == count_additions(jaxpr) == 6 + 4 + 2 + 2
    assert multiplications_in(jaxpr) == count_multiplications(jaxpr) == 6


@pytest.mark.parametrize(
    ("fun", "weight"),
    [
        (lambda x, y: x * y + 1.0, 2),
        (lambda x, y: -x.astype(jnp.float32) > y, 0),
        (lambda x, y: (x / y, jnp.sin(x))[0], WEIGHTS["div"]),
        (lambda x, y: x**3 + x**-2, 2 + (1 + WEIGHTS["div"]) + 1),
        (lambda x, y: lax.cond(x > 0, lambda: jnp.exp(y), lambda: y * y), WEIGHTS["exp"]),
        (lambda x, y: lax.scan(lambda c, _: (c * y, None), x, None, 5)[0], 5),
        (lambda x, y: jnp.ones((2, 3)) * x @ (jnp.ones(3) * y), 6 + 3 + 10),
        (lambda x, y: jnp.sum(jnp.arange(4.0) * x), 4 + 3),
    ],
)
def test_weights_are_of_what_the_result_needs(fun, weight):
    assert weight_of(jax.make_jaxpr(fun)(1.0, 2.0)) == weight


def test_the_evaluation_is_that_of_the_partials():
    def f(x, y):
        return jnp.sin(x) * jnp.exp(y) + 3.0 * x

    three = WEIGHTS["sincos"] + WEIGHTS["exp"]
    # sin(x) and cos(x), exp(y), and nothing of the products and sums; 3 is a partial as it stands.
    assert evaluation_operations(f, (0, 1))(1.0, 2.0) == three
    assert evaluation_operations(f, (0, 1), value=True)(1.0, 2.0) == three + 3
    assert (
        evaluation_operations(f)(1.0, 2.0) == WEIGHTS["cos"] + WEIGHTS["exp"]
    )  # sin(x) is in no partial


def test_the_evaluation_of_a_task_is_less_than_its_value_with_it():
    task = veenv.tasks.get("RoeFlux_1d")
    args = task.example_args()
    partials = evaluation_operations(task.fun, task.argnums)(*args)
    both = evaluation_operations(task.fun, task.argnums, value=True)(*args)
    assert 0 < partials < both
