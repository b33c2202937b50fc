"""What elements of loops and branches depend on, against what they are seen to."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import quick_jit
from veenv.engine.dependence import dependent_places
from veenv.engine.known import Known
from veenv.graph.program import trace

W = np.diag([0.5, 0.2, 0.1]) + np.diag([0.3, 0.7], -1)


def places(fun, name: str, x, *rest, result: int = 0) -> np.ndarray | None:
    """Of the first equation of a name, by its last operand: a mask of the partial."""
    program = trace(fun, (x, *rest))
    equation = next(e for e in program.equations if e.primitive.name == name)
    found = dependent_places(equation, result, len(equation.inputs) - 1, Known(program))
    if found is None:
        return None
    mask = np.zeros((equation.out_avals[result].size, equation.in_avals[-1].size), bool)
    mask[found] = True
    return mask


def seen(fun, x, *rest) -> np.ndarray:
    """Where the Jacobian is not zero."""
    jacobian = np.asarray(quick_jit(jax.jacrev(fun))(x, *rest))
    return jacobian.reshape(-1, x.size) != 0


def test_rows_of_a_recurrence_depend_on_what_came_before(x64):
    def fun(xs):
        return lax.scan(lambda c, x: (jnp.sin(c) * x, c + x), jnp.ones(3), xs, reverse=True)[1]

    xs = jnp.arange(1.0, 13).reshape(4, 3) / 9
    np.testing.assert_array_equal(places(fun, "scan", xs, result=1), seen(fun, xs))


def test_products_with_a_known_matrix_mix_what_is_multiplied(x64):
    def fun(x):
        return lax.scan(lambda c, _: (c * c, None), x, None, length=3)[0]

    x = jnp.arange(1.0, 4)
    np.testing.assert_array_equal(places(fun, "scan", x), np.eye(3, dtype=bool))

    def mixed(x):
        return lax.scan(lambda c, _: (W @ c, None), x, None, length=3)[0]

    np.testing.assert_array_equal(places(mixed, "scan", x), seen(mixed, x))


def test_counters_are_worked_out(x64):
    def fun(x):
        def turn(i, h):
            return h.at[i].set(jnp.sin(h[i - 1]) * h[3])

        return lax.fori_loop(1, 3, turn, x)

    x = jnp.arange(1.0, 5)
    found = places(fun, "scan", x, result=1)
    np.testing.assert_array_equal(found, seen(fun, x))


def test_any_branch_may_be_taken_unless_it_is_known(x64):
    def fun(x, i):
        return lax.switch(i, [jnp.sin, lambda x: x[::-1], lambda x: x * 2], x)

    x, own = jnp.arange(1.0, 5), np.eye(4, dtype=bool)
    given = jax.ShapeDtypeStruct((), jnp.int32)
    np.testing.assert_array_equal(places(fun, "cond", x, given), own | own[::-1])
    np.testing.assert_array_equal(places(fun, "cond", x, jnp.int32(1)), own[::-1])


def test_loops_of_unknown_length_run_until_nothing_is_added(x64):
    def fun(x):
        def turn(s):
            return jnp.roll(s, 1).at[0].set(1.0)

        return lax.while_loop(lambda s: s.sum() < 100, turn, x)

    mask = places(fun, "while", jnp.arange(1.0, 5))
    assert mask is not None
    np.testing.assert_array_equal(mask, np.tri(4, dtype=bool))


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_a_rule_of_ones_own_is_followed_not_what_it_is_of(kind: str, x64):
    @(jax.custom_jvp if kind == "jvp" else jax.custom_vjp)
    def rounded(x):
        return jnp.round(x)

    if kind == "jvp":
        rounded.defjvp(lambda x, t: (jnp.round(x[0]), t[0][::-1]))
    else:
        rounded.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g[::-1],))

    def fun(x):
        return lax.scan(lambda c, _: (rounded(c), None), x, None, length=3)[0]

    mask: Any = places(fun, "scan", jnp.arange(1.0, 4))
    np.testing.assert_array_equal(mask, np.eye(3, dtype=bool)[::-1])


@pytest.mark.parametrize("clips", [False, True])
def test_a_rule_that_is_not_linear_may_let_anything_through(clips: bool, x64):
    @jax.custom_vjp
    def own(x):
        return x[::-1]

    own.defvjp(lambda x: (x[::-1], None), lambda _, g: (jnp.sign(g) if clips else g[::-1],))

    def fun(x):
        return lax.scan(lambda c, _: (own(c), None), x, None, length=1)[0]

    mask: Any = places(fun, "scan", jnp.arange(1.0, 4))
    expected = np.ones((3, 3), bool) if clips else np.eye(3, dtype=bool)[::-1]
    np.testing.assert_array_equal(mask, expected)


def test_what_takes_too_long_is_not_followed():
    def fun(x):
        return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=100_000)[0]

    assert places(fun, "scan", jnp.ones(3)) is None


@pytest.mark.kernels
def test_a_long_stencil_in_a_loop_stores_what_there_is():
    def fun(x):
        return lax.fori_loop(0, 2, lambda _, x: jnp.sin(x) + jnp.roll(x, 1) * jnp.roll(x, -1), x)

    x = jax.ShapeDtypeStruct((4200,), jnp.float32)
    assert jax.eval_shape(veenv.jacve(fun, sparse_representation=True), x).nse == 5 * 4200


def test_running_sums_in_a_loop_depend_on_what_came_before(x64):
    def fun(x):
        return lax.scan(lambda c, _: (jnp.cumsum(jnp.sin(c)), None), x, None, length=3)[0]

    x = jnp.arange(1.0, 6)
    np.testing.assert_array_equal(places(fun, "scan", x), np.tri(5, dtype=bool))
