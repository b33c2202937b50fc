"""What of a program takes time, counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from veenv.kernel import times
from veenv.kernel.features import NAMES, features_of

X = np.linspace(0.3, 1.2, 4, dtype=np.float32)


def counts(fun, *args, batch: int = 1) -> dict[str, float]:
    features = features_of(jax.make_jaxpr(fun)(*args))
    found = dict(zip(NAMES, features.at(batch).tolist(), strict=True))
    return {name: n for name, n in found.items() if n}


def test_a_loop_computes_what_it_needs():
    assert counts(lambda x: jnp.sin(x) * x, X) == {
        "calls": 1, "loops": 1, "simple": 4, "repeated": 4, "stored": 4,
    }  # fmt: skip


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

    assert (two(jnp.tanh)["functions"], two(jnp.tanh)["stored"]) == (4, 12)
    assert (two(jnp.sin)["repeated"], two(jnp.sin)["stored"]) == (8, 8)


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


def test_what_is_computed_within_a_loop_is_not_started_as_a_program():
    def f(x):
        return jax.lax.scan(lambda c, _: (c * x, None), x, None, length=5)[0]

    assert (counts(f, X)["loops"], counts(f, X)["inlined"]) == (1, 5)


def test_a_batch_leaves_alone_what_does_not_vary():
    def f(x):
        return x + jnp.arange(4.0) * 2

    assert counts(f, X, batch=10)["simple"] == 4 + 10 * 4


def test_contractions_and_loops_stand_alone():
    found = counts(lambda w, x: w @ x, np.ones((3, 4), np.float32), X)
    assert (found["flops"], found["contractions"], found["loops"]) == (24, 1, 1)
    found = counts(lambda x: jax.lax.scan(lambda c, _: (c * x, None), x, None, length=5)[0], X)
    assert (found["turns"], found["simple"]) == (5, 20)


def test_a_contraction_of_other_than_rows_by_columns_is_turned():
    w = np.ones((3, 4), np.float32)
    for fun, turned in ((lambda x: w @ x, False), (lambda x: x @ w.T, False)):
        assert ("turned" in counts(fun, X)) == turned
    found = counts(jax.vmap(lambda x: w @ x), np.ones((5, 4), np.float32))
    assert found["turned"] == found["flops"] == 120
    assert "turned" not in counts(jax.vmap(lambda x: x @ w.T), np.ones((5, 4), np.float32))


def test_matrices_are_as_many_as_points_where_both_factors_vary():
    shared = np.ones((4, 4), np.float32)
    assert counts(lambda x: shared @ x, X, batch=7)["contractions"] == 1
    assert counts(lambda x: jnp.outer(x, x) @ x, X, batch=7)["contractions"] == 7

    def several(x):
        both = jnp.ones((5, 4, 4)) * x[0]
        return both @ both

    assert counts(several, X, batch=7)["contractions"] == 5 * 7


@pytest.mark.parametrize("columns", [2, 3, 7, 8])
def test_products_by_few_columns_count_once_more(columns):
    w, few = np.ones((9, 9), np.float32), 3 <= columns <= 7
    x = np.ones((9, columns), np.float32)
    found = counts(lambda x: w @ x, x)
    assert found.get("narrow", 0) == (found["flops"] if few else 0)
    wide = counts(lambda x: w @ x, x, batch=5)  # XLA multiplies the columns of all points at once
    assert wide.get("narrow", 0) == found.get("narrow", 0)
    assert wide["flops"] == 5 * found["flops"]
    assert "narrow" not in counts(lambda x: x.T @ w, x)
    both = counts(lambda x: (w * x[0, 0]) @ x, x, batch=5)
    assert both.get("narrow", 0) == (both["flops"] if few else 0)


def test_an_operation_of_complex_numbers_is_several():
    def squared(x):
        z = lax.complex(x, x)
        return (z * z).real

    assert counts(squared, X)["simple"] > 2 * counts(lambda x: x * x, X)["simple"]


def test_a_convolution_is_no_contraction():
    found = counts(lambda x: jnp.convolve(x, np.ones(3, np.float32)), X)
    assert found["convolved"] > 0
    assert "flops" not in found


def test_calls_are_seen_through():
    def f(x):
        return jax.jit(lambda z: z * z)(x) + jax.jit(lambda z: z * z)(x)

    assert counts(f, X) == counts(lambda x: x * x + x * x, X)


def test_more_points_take_longer():
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) * x)(X)
    assert times.program_seconds(jaxpr, 1) < times.program_seconds(jaxpr, 1000)
