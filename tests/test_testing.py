"""What extends veenv is checked: right rules and orders pass, wrong ones are named."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive

import veenv
from tests.rules.test_rules import diagonal_rule
from veenv.rules.base import _RULES
from veenv.testing import check_order, check_rule

X, Y = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 4.0, -1.0])


@pytest.fixture
def cube(monkeypatch) -> Primitive:
    """A primitive that JAX knows no derivative of; its rule is set by `diagonal_rule`."""
    primitive = Primitive("cube_for_tests")
    primitive.def_impl(lambda x: x**3)
    primitive.def_abstract_eval(lambda x: x)
    monkeypatch.setattr("veenv.rules.base._RULES", dict(_RULES))
    return primitive


@pytest.mark.parametrize(
    ("primitive", "args"),
    [
        pytest.param(jax.lax.mul_p, (X, Y), marks=pytest.mark.slow),  # CONTRIBUTING.md does it
        (jax.lax.atan2_p, (X, Y)),
    ],
    ids=str,
)
def test_rules_of_veenv_pass(primitive, args):
    check_rule(primitive, *args, points=1, tolerance=1e-12)


def test_a_rule_without_a_derivative_in_jax_is_held_against_differences(cube):
    with pytest.raises(ValueError, match="'cube_for_tests' has no rule"):
        check_rule(cube, X)
    veenv.defelemental(cube, diagonal_rule(lambda x: 3 * x**2))
    check_rule(cube, X)
    check_rule(cube, X, derivative=lambda x: (jnp.diag(3 * x**2),), tolerance=1e-12)


def test_wrong_values_are_named(cube):
    veenv.defelemental(cube, diagonal_rule(lambda x: 3 * x**2 + 1e-3))
    with pytest.raises(AssertionError, match="cube_for_tests: values under the forward order"):
        check_rule(cube, X)


def test_a_value_of_the_first_point_is_no_value_of_the_second(cube):
    seen = []

    def slope(x):
        seen.append(x)
        return 3 * seen[0] ** 2

    veenv.defelemental(cube, diagonal_rule(slope))
    with pytest.raises(AssertionError, match="cube_for_tests: values"):
        check_rule(cube, X)


def test_an_order_is_proved_or_named():
    def f(x):
        return jnp.sin(jnp.exp(x)) * x

    graph = veenv.make_graph(f)(0.5)
    check_order((2, 1), f, 0.5, points=1)
    order = veenv.Order.from_graph(graph, (2, 1))
    check_order(order, f, 0.5, points=1)
    claimed = dataclasses.replace(order, counts={"multiplications": 1})
    with pytest.raises(AssertionError, match="multiplications: recorded 1, environment 2"):
        check_order(claimed, f, 0.5, points=1)
    with pytest.raises(ValueError, match="order misses 1"):
        check_order((2,), f, 0.5)
    task = veenv.tasks.get("Robertson")
    check_order(veenv.best_order("Robertson"), task, points=1)
