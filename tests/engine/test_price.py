"""What is predicted for a program beside others; how well it chooses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from scripts.benchmarks.prices import FILE, chosen, fitted, read
from veenv.kernel.fusing import trace_point
from veenv.kernel.price import MICROSECONDS, NAMES, counts_of, kernel_seconds, seconds

X = np.linspace(0.3, 1.2, 40_000, dtype=np.float32)


def steps(x):
    for _ in range(3):
        a, b = x.reshape(2, -1)
        x = jnp.stack([a * b, a + b])
    return x


def parts(x):
    a, b = x.reshape(2, -1)
    for _ in range(3):
        a, b = a * b, a + b
    return jnp.stack([a, b])


def scanned(length):
    return lambda x: lax.scan(lambda c, _: (c * x, None), x, None, length=length)[0]


def both(function):
    return lambda x: (function(x) + 1, function(x) - 1)


def price(fun, batch=1):
    return seconds(counts_of(jax.make_jaxpr(fun)(X), points=batch), batch)


ABOUT = {  # what is predicted for a program, and how many times it for another one
    "a call": (lambda x: jnp.square(jax.jit(jnp.square)(x)), 1, lambda x: jnp.square(x) ** 2),
    "a slice of what was joined": (steps, 1, parts),
    "a sine": (jnp.square, 3, jnp.sin),
    "a function of two operands": (jnp.sin, 1.5, both(jnp.sin)),
    "steps": (scanned(5), 10, scanned(50)),
    "a complex product": (jnp.square, 4, lambda x: jnp.square(lax.complex(x, x)).real),
    "what does not vary": (jnp.square, 1, lambda x: x * jnp.sin(jnp.arange(40.0)).sum()),
}


@pytest.mark.parametrize("name", ABOUT)
def test_prices_are_in_proportion(name):
    fun, times, other = ABOUT[name]
    assert times / 2 < price(other) / price(fun) < times * 2
    assert 5 < price(fun, 10) / price(fun) < 20


@pytest.mark.parametrize("seed", range(2))
def test_the_cheapest_form_of_functions_that_were_not_fitted_is_about_the_fastest(seed):
    rows = read(FILE)
    names = sorted({row.function for row in rows})
    half = set(np.random.default_rng(seed).permutation(names)[: len(names) // 2])
    costs = fitted([row for row in rows if row.function in half])
    ratios = chosen([row for row in rows if row.function not in half], costs)
    assert len(ratios) > 50
    assert np.exp(np.mean(np.log(ratios))) < 1.08


def test_the_prices_are_those_that_the_measurements_give():
    assert len(MICROSECONDS) <= 8
    for name, cost in fitted(read(FILE)).items():
        assert cost == pytest.approx(MICROSECONDS[name], rel=0.02)


@pytest.mark.parametrize("steps", [50, 1000])
def test_small_steps_of_xla_start_in_nanoseconds(steps):
    """A thousand take 20 to 30 microseconds, whatever the version of JAX."""
    turn = lambda _, v: 0.9 * v + 0.1 * jnp.roll(v, 1)  # noqa: E731
    closed = jax.make_jaxpr(lambda x: lax.fori_loop(0, steps, turn, x))(np.ones(4, np.float32))
    assert counts_of(closed)[0, NAMES.index("loop")] * MICROSECONDS["loop"] < 2 + 0.1 * steps


def test_what_a_scan_computes_of_constants_is_priced_once():
    def beside(x):
        step = lambda c, _: ((c[0] * x, jnp.sin(c[1])), None)  # noqa: E731
        return lax.scan(step, (x, jnp.arange(40_000.0)), None, length=5)[0]

    assert price(beside, 1) > 2 * price(scanned(5), 1)
    assert price(beside, 1000) < 1.2 * price(scanned(5), 1000)


def test_one_point_of_linear_algebra_takes_a_library():
    program = trace_point(jnp.linalg.cholesky, (np.eye(64, dtype=np.float32),), {}, (0,)).program()
    assert kernel_seconds(program, 1) < 0.5 * kernel_seconds(program, 16)
