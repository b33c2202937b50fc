"""What of a loop's step depends on its number alone is computed once for all points."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import veenv
from tests.kernel.test_loops import num_operations
from tests.oracles.jacobians import assert_same
from veenv.kernel.fusing import trace_point


def adam(a: Any) -> Any:
    """Powers of the step's number, by which moments are divided."""

    def step(c: Any, _: None) -> Any:
        y, first, second, count = c
        slope = jax.grad(lambda y: ((y - a) ** 2).sum())(y)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 1e-3 * slope**2
        count = count + 1
        m = first / (1 - 0.9 ** count.astype(a.dtype))
        v = second / (1 - 0.999 ** count.astype(a.dtype))
        return (y - 0.05 * m / (jnp.sqrt(v) + 1e-8), first, second, count), None

    zero = jnp.zeros(2, a.dtype)
    return lax.scan(step, (zero, zero, zero, jnp.int32(0)), None, length=150)[0]


def decaying(a: Any) -> Any:
    """A rate that is stacked, too, and divides: its table is no inverse."""

    def step(c: Any, t: Any) -> Any:
        y, rate = c
        return (y - (y - a) / rate, rate * 1.01 + jnp.exp(-t)), (y, rate, jnp.sin(rate) + t)

    return lax.scan(step, (0 * a, jnp.full_like(a, 2.0)), jnp.arange(200.0, dtype=a.dtype))


def backwards(a: Any) -> Any:
    """The last step first, and a rate that becomes infinite."""

    def step(c: Any, t: Any) -> Any:
        y, rate = c
        return (y * 0.9 + jnp.cos(t) * a + a / rate, rate * rate), y

    start = a, jnp.full_like(a, 1.5)
    return lax.scan(step, start, jnp.arange(300.0, dtype=a.dtype), reverse=True)


def following(a: Any) -> Any:
    """The next rate is stacked, and nothing else reads it."""

    def step(c: Any, _: None) -> Any:
        y, rate = c
        rate = jnp.cos(1.1 * rate)
        return (0.9 * y + a, rate), (y, rate)

    return lax.scan(step, (a, jnp.full_like(a, 0.5)), None, length=100)


@pytest.mark.parametrize("fun", [adam, decaying, backwards, following])
def test_values(fun: Any, precision: str):
    with jax.numpy_dtype_promotion("standard"):
        a = jnp.linspace(1.0, 3.0, 21)
        found, expected = (jax.jit(jax.vmap(f))(a) for f in (veenv.fuse(fun), fun))
    assert_same(found, expected, 1e-10 if precision == "float64" else 2e-4, atol=0)


def test_powers_are_a_table():
    with jax.numpy_dtype_promotion("standard"):
        program = trace_point(adam, (jnp.float32(1.0),), {}, (0,)).program()
    assert num_operations(program, "pow") == 0
    assert num_operations(program, "div") == 2  # by the roots, which differ from point to point
