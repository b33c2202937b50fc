"""What the price of a program is made of, counted by hand; how well it chooses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from scripts.benchmarks.prices import FILE, chosen, fitted, program_seconds, read
from veenv.kernel.price import MICROSECONDS, NAMES, counts_of

X = np.linspace(0.3, 1.2, 4, dtype=np.float32)


def counts(fun, *args, batch: int = 1) -> dict[str, float]:
    fixed, each = counts_of(jax.make_jaxpr(fun)(*args))
    found = dict(zip(NAMES, (fixed + batch * each).tolist(), strict=True))
    return {name: n for name, n in found.items() if n}


def test_a_loop_computes_what_it_needs():
    found = counts(lambda x: jnp.sin(x) * x, X)
    assert found == {"call": 1, "loop": 1, "simple": 4, "function": 4, "stored": 4}


def test_two_outputs_repeat_what_they_share():
    def f(x):
        y = x * x
        return y + 1, y - 1

    assert counts(f, X)["simple"] == 4 * (2 + 1 + 1)


def test_an_expensive_value_is_stored_and_a_sine_repeated():
    def two(function):
        def f(x):
            y = function(x)
            return y + 1, y - 1

        return counts(f, X)

    assert (two(jnp.tanh)["function"], two(jnp.tanh)["stored"]) == (4, 12)
    assert (two(jnp.sin)["function"], two(jnp.sin)["stored"]) == (8, 8)


def test_a_value_is_computed_once_for_each_way_of_indexing_it():
    def f(x):
        y = x * x
        return y + y[::-1]

    assert counts(f, X)["simple"] == 4 * (2 + 1)


def test_a_slice_of_what_was_joined_is_the_part():
    def steps(x):
        for _ in range(3):
            a, b = x
            x = jnp.stack([a * b, a + b])
        return x

    def parts(x):
        a, b = x
        for _ in range(3):
            a, b = a * b, a + b
        return jnp.stack([a, b])

    assert counts(steps, X[:2]) == counts(parts, X[:2])


def test_a_step_of_a_loop_costs_what_it_computes_and_little_to_start():
    def scanned(length):
        return counts(lambda x: lax.scan(lambda c, _: (c * x, None), x, None, length=length)[0], X)

    assert scanned(5)["simple"] == 5 * 4
    assert 1 < scanned(5)["loop"] < scanned(50)["loop"] < 10


def test_a_batch_leaves_alone_what_does_not_vary():
    def f(x):
        return x + jnp.arange(4.0) * 2

    assert counts(f, X, batch=10)["simple"] == 4 + 10 * 4
    shared = np.ones((3, 4), np.float32)

    def steps(x):
        return lax.scan(lambda c, w: (c + jnp.sin(w), None), x, shared)[0]

    assert counts(steps, X, batch=10)["simple"] == 10 * counts(steps, X)["simple"]


def test_contractions_stand_alone_and_convolutions_take_longer():
    found = counts(lambda w, x: w @ x, np.ones((3, 4), np.float32), X)
    assert (found["flop"], found["loop"], found["stored"]) == (24, 1, 3)
    found = counts(lambda x: jnp.convolve(x, np.ones(3, np.float32)), X)
    assert found["flop"] > 2 * 3 * 6


def test_an_operation_of_complex_numbers_is_several():
    def squared(x):
        z = lax.complex(x, x)
        return (z * z).real

    assert counts(squared, X)["simple"] > 2 * counts(lambda x: x * x, X)["simple"]


def test_calls_are_seen_through():
    def f(x):
        return jax.jit(lambda z: z * z)(x) + jax.jit(lambda z: z * z)(x)

    assert counts(f, X) == counts(lambda x: x * x + x * x, X)


def test_more_points_take_longer():
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) * x)(X)
    assert program_seconds(jaxpr, 1) < program_seconds(jaxpr, 1000)


@pytest.mark.parametrize("seed", range(5))
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
