"""The text of a jaxpr changes with everything that it computes, and with nothing else."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive

from veenv.graph.identity import digest_of_jaxpr
from veenv.rules import definitions

SLOPE = Primitive("slope_with_a_text")
SLOPE.def_abstract_eval(lambda x: x)
X, Y = np.float32([0.5, 1.5, 2.5]), np.float32([1, 2, 3])


def closing_over(array):
    return lambda x, y: x * array


def scan(length=3, reverse=False, step=jnp.sin):
    def fun(x, y):
        return lax.scan(lambda c, k: (step(c) * y, c[0] + k), x, Y[:length], reverse=reverse)

    return fun


def whilst(limit, step=jnp.sin):
    return lambda x, y: lax.while_loop(lambda s: s[0] < limit, lambda s: step(s) + 1, x)


def branch(*cases):
    return lambda x, y: lax.switch((x[0] > 1).astype(int), cases, x)


def called(fun):
    return lambda x, y: jax.jit(fun)(x) + y


def ruled(fun):
    inner = jax.custom_jvp(fun)
    inner.defjvp(lambda p, t: (fun(*p), t[0]))
    return lambda x, y: inner(x) * y


def solve(factor):
    def fun(x, y):
        by = lambda v: factor * v  # noqa: E731
        return lax.custom_linear_solve(by, x, lambda _, b: b / factor, symmetric=True)

    return fun


def grouped(contracted):
    """Products by two matrices, of which an axis is contracted; a dataclass names it."""
    axes = lax.RaggedDotDimensionNumbers((((1,), (contracted,)), ((), ())), (0,), (0,))
    weights, sizes = np.arange(18, dtype=np.float32).reshape(2, 3, 3), np.int32([1, 2])
    return lambda x, y: lax.ragged_dot_general(jnp.outer(x, y), weights, sizes, axes)


FUNCTIONS = {
    "sine": lambda x, y: jnp.sin(x), "cosine": lambda x, y: jnp.cos(x),
    "of the other": lambda x, y: jnp.sin(y), "difference": lambda x, y: x - y,
    "difference, turned": lambda x, y: y - x, "number": lambda x, y: 2 * x,
    "another number": lambda x, y: 3 * x, "zero": lambda x, y: x + np.float32(0.0),
    "negative zero": lambda x, y: x + np.float32(-0.0),
    "two results": lambda x, y: (x * y, x + y),
    "two results, turned": lambda x, y: (lambda z: (x + y, z))(x * y),
    "one twice": lambda x, y: (x * y, x * y),
    "one and itself": lambda x, y: (lambda z: (z, z))(x * y),
    "array": closing_over(Y), "another array": closing_over(Y[::-1].copy()),
    "shorter array": closing_over(Y[:1]), "scalar": lambda x, y: np.float32(2),
    "scalar, narrow": lambda x, y: np.float16(2), "constant": lambda x, y: Y,
    "constant, narrow": lambda x, y: Y.astype(np.float16),
    "axis": lambda x, y: jnp.flip(jnp.outer(x, y), 0),
    "another axis": lambda x, y: jnp.flip(jnp.outer(x, y), 1),
    "cast": lambda x, y: x.astype(np.float16), "cast to integers": lambda x, y: x.astype(int),
    "precision": lambda x, y: jnp.dot(x, y),
    "high precision": lambda x, y: jnp.dot(x, y, precision="high"),
    "higher precision": lambda x, y: jnp.dot(x, y, precision="highest"),
    "indices": lambda x, y: x[np.array([0, 2, 1])],
    "other indices": lambda x, y: x[np.array([1, 2, 0])],
    "filled": lambda x, y: x.at[np.array([0, 5])].get(mode="fill", fill_value=0),
    "filled with one": lambda x, y: x.at[np.array([0, 5])].get(mode="fill", fill_value=1),
    "clipped": lambda x, y: x.at[np.array([0, 5])].get(mode="clip"),
    "scan": scan(), "scan, shorter": scan(2), "scan, backwards": scan(reverse=True),
    "scan of another step": scan(step=jnp.cos), "while": whilst(3), "while, longer": whilst(4),
    "while of another step": whilst(3, jnp.cos), "branches": branch(jnp.sin, jnp.cos),
    "branches, turned": branch(jnp.cos, jnp.sin), "call": called(jnp.sinh),
    "another call": called(jnp.cosh), "rule": ruled(jnp.tanh), "another rule": ruled(jnp.tan),
    "rows in groups": grouped(1), "rows in groups, other axis": grouped(2),
    "solve": solve(2.0), "another solve": solve(4.0),
}  # fmt: skip


def text(fun, *args):
    return digest_of_jaxpr(jax.make_jaxpr(fun)(*args))


def test_each_function_has_a_text_of_its_own():
    texts = {name: text(fun, X, Y) for name, fun in FUNCTIONS.items()}
    assert None not in texts.values()
    for one, other in itertools.combinations(texts, 2):
        assert texts[one] != texts[other], (one, other)


def test_each_kind_of_argument_has_a_text_of_its_own():
    """Shapes, dtypes, weak types, widths, how many there are, and which, though none is read."""
    fun = lambda x, *args: jnp.sin(x)  # noqa: E731
    kinds = (), (X,), (X, X), (X[:2],), (X[None],), (np.float16(X),), (X[0],), (1.0,)
    texts = [text(fun, X, *args) for args in kinds]
    with jax.enable_x64(True):
        texts += [text(fun, X, *args) for args in ((np.float64(X),), (1.0,))]
    texts += [text(lambda x, y: jnp.sin(y), X, X)]
    assert len({*texts} - {None}) == len(texts)


def test_the_same_function_has_the_same_text():
    for make in (lambda: scan(), lambda: closing_over(Y.copy()), lambda: ruled(jnp.tanh)):
        assert text(make(), X, Y) == text(make(), X, Y)


def test_a_meaning_is_part_of_the_text(monkeypatch):
    monkeypatch.setattr(definitions, "_DEFINITIONS", {})
    fun = lambda x: SLOPE.bind(x)  # noqa: E731
    assert text(fun, X) is None
    texts = []
    for slope in (3, 3, 5):
        definitions.register_rule(SLOPE, functools.partial(jnp.multiply, np.float32(slope)))
        texts.append(text(fun, X))
    assert texts[0] == texts[1] != texts[2]
    definitions._traced.cache_clear()


@pytest.mark.parametrize(
    "fun",
    [lambda x: jax.pure_callback(lambda x: x, x, x),
        lambda x: (jax.debug.callback(lambda x: None, x), x)[1]],
    ids=["callback", "effect"],
)  # fmt: skip
def test_what_calls_back_has_no_text(fun):
    assert text(fun, X) is None
