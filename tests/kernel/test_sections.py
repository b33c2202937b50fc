"""Long programs as sections: the same results, wherever the cuts are."""

from __future__ import annotations

import gc
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.sampling import spared
from veenv import limits
from veenv.kernel.building.unrolling import unroll
from veenv.kernel.cpu import held, sections, spans
from veenv.kernel.fusing import trace_point
from veenv.kernel.scalar_program import CannotFuseError


def mixed(x, k):
    """Values of every dtype, of which many are needed late; results of every kind."""
    where = x > k.astype(x.dtype)
    steps = jnp.cumsum(jnp.sin(x) * jnp.where(where, x, 1 / x))
    late = jnp.where(where[::-1], steps * x[0], jnp.exp(-x)) + (k + 2).astype(x.dtype)
    return {
        "row": late,
        "square": jnp.outer(late, steps),
        "which": (where & (late > 1)).astype(x.dtype),
        "same": x,
    }


def program_of(fun, *args):
    return trace_point(fun, args, {}, range(len(args))).program()


def cut(monkeypatch, length: int) -> None:
    """From here on sections have about this length."""
    monkeypatch.setattr(limits, "SECTION", length)


def test_too_large_a_program_is_refused():
    def with_a_copy(x, k, y):  # which nobody reads
        return mixed(x, k), y

    arguments = np.ones(4, "f4"), np.arange(4), np.ones(100, "f4")
    point = trace_point(with_a_copy, arguments, {}, (0, 1, 2))
    program = point.program()
    size = spans.size_of(program)
    assert program.size < size  # it reads
    assert unroll(point.closed, size=size).digest() == program.digest()
    assert point.program_within(size).digest() == program.digest()
    with pytest.raises(CannotFuseError, match="longer than there is time"):
        unroll(point.closed, size=size - 1)
    assert point.program_within(size - 1) is None


@pytest.mark.parametrize(
    ("length", "dtype"),
    spared(
        itertools.product([40, 200, 10**6], ["float32", "float64"]),
        (40, "float64"), (200, "float32"), (10**6, "float32"),
    ),
)  # fmt: skip
def test_sections_compute_what_the_whole_does(x64, monkeypatch, length, dtype):
    cut(monkeypatch, length)
    rng = np.random.default_rng(length)
    points = rng.uniform(0.5, 2, (133, 4)).astype(dtype), rng.integers(0, 3, (133, 4))
    shift = np.asarray(1 + length, dtype)  # a program of its own, compiled now

    def shifted(x, k):
        return mixed(x * shift, k)

    program = program_of(shifted, *(p[0] for p in points))
    assert (len(spans.sections(program)) > 1) == (length < 1000)
    got = jax.vmap(veenv.value_and_jacve(shifted, kernel="fused"))(*points)
    expected = jax.vmap(lambda x, k: (shifted(x, k), jax.jacfwd(shifted)(x, k)))(*points)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


def test_sections_live_as_long_as_what_calls_them(monkeypatch):
    cut(monkeypatch, 100)
    x = np.linspace(0.1, 0.9, 30, dtype=np.float32)

    def scaled(x):
        return jnp.tanh(jnp.cumsum(jnp.sin(x) * 7.25))

    run = jax.jit(veenv.jacve(scaled, kernel="fused")).lower(x).compile()
    before = np.asarray(run(x))
    jax.clear_caches()
    gc.collect()
    held.alive()
    np.testing.assert_array_equal(run(x), before)
    np.testing.assert_allclose(before, jax.jacfwd(scaled)(x), rtol=2e-5, atol=1e-6)


def test_many_sections_take_as_long_to_write_as_few(monkeypatch):
    """What is known of a whole program is found once, not for each section."""
    counts = []
    for length in (300, 30):
        program = program_of(lambda x: jnp.sin(x @ x) @ jnp.cos(x), np.ones((7, 7), np.float32))
        cut(monkeypatch, length)
        texts, calls = [], itertools.count()
        monkeypatch.setattr(sections, "_objects", lambda made, *_, to=texts: to.extend(made))
        sys.setprofile(lambda *_, calls=calls: next(calls) and None)
        try:
            sections.objects(program, 8)
        finally:
            sys.setprofile(None)
        assert len(texts) > 1
        counts.append(next(calls))
    assert counts[1] <= 2 * counts[0]
