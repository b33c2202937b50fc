"""Rules that are not linear in their cotangents: reverse mode's values, or a refusal."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import veenv
from tests.engine.corpus.custom import doubled
from tests.oracles.jacobians import assert_same, dense, quick_jit
from tests.sampling import few, spared
from veenv.graph.linearity import is_linear
from veenv.graph.program import trace
from veenv.search import search

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, 1.4, -0.7])


@jax.custom_vjp
def clipped(x):
    """The identity with its gradient clipped, as in JAX's tutorial."""
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.5, 0.5),))


@jax.custom_vjp
def limited(x):
    """The identity with the norm of its gradient limited."""
    return 2 * x


def _limit(_, g):
    return (2 * g * jnp.minimum(1, 0.7 / (1e-6 + jnp.sqrt((g * g).sum()))),)


limited.defvjp(lambda x: (2 * x, None), _limit)


@jax.custom_vjp
def deaf(x):
    """A function whose rule ignores its cotangent."""
    return jnp.sin(x)


deaf.defvjp(lambda x: (deaf(x), x), lambda x, g: (jnp.cos(x),))


@jax.custom_vjp
def pair(x, y):
    """Two results whose cotangents meet in the rule."""
    return x * y, jnp.sin(x)


pair.defvjp(
    lambda x, y: (pair(x, y), (x, y)),
    lambda r, g: (g[0] * jnp.abs(g[1]).sum() + g[1], r[0] * jnp.clip(g[0], -0.3, 0.3)),
)


def looped(x):
    return lax.scan(lambda c, _: (3 * clipped(jnp.sin(c)), c[0]), x, None, length=3)


def shared(x):
    """A result that is an output too and is used again, twice."""
    h = jnp.sin(x)
    y = clipped(3 * h) * h
    return y, clipped(h[0] * y.sum()), 2 * y[None, :2] * jnp.ones((2, 1))


CASES = {
    "clipped": lambda x: jnp.sin(3 * clipped(jnp.sin(2 * x) * x)),
    "limited": lambda x: (limited(jnp.sin(x)) ** 2, x),
    "twice": lambda x: limited(jnp.cos(clipped(x * x) * 5)),
    "scalar": lambda x: (5 * clipped((x * x).sum()), x[0]),
    "ignored cotangent": lambda x: 2 * deaf(x * x),
    "one operand twice": lambda x: pair(jnp.sin(x), jnp.sin(x)),
    "same operand": lambda x: (lambda h: sum(pair(h, h)) * h)(jnp.sin(x)),
    "pair": lambda x: (lambda a, b: ((a * b).sum(), jnp.sin(b), a))(*pair(jnp.sin(x), x * x)),
    "one of a pair": lambda x: pair(jnp.sin(x), x)[1] * x,
    "output": lambda x: (clipped(jnp.sin(x)), x * x),
    "in a loop": looped,
    "in a branch": lambda x: lax.cond(x[0] > 0, clipped, jnp.sin, 2 * x) * 3,
    "shared": shared,
    "batch": lambda x: jax.vmap(limited)(jnp.outer(x, x)) * 3,
}


@pytest.mark.parametrize("name", CASES)
def test_allowed_orders_give_what_reverse_mode_gives(name):
    fun = CASES[name]
    graph = veenv.make_graph(fun)(X)
    assert graph.reverse_only
    rng = np.random.default_rng(0)
    named = [graph.forward(), graph.markowitz(), tuple(rng.permutation(graph.eliminable).tolist())]
    orders = {graph.reverse(), *map(graph.legal, named)}

    @quick_jit
    def run(x):
        found = []
        for ids in orders:
            got, counts = veenv.jacve(fun, ids, count_ops=True)(x)
            assert counts.executed == graph.cost(ids, "executed")
            found.append(got)
        sparse = veenv.jacve(fun, graph.legal(named[-1]), sparse_representation=True)(x)
        found.append(dense(sparse))
        return jax.jacrev(fun)(x), found

    expected, found = run(X)
    for got in found:
        assert_same(got, expected)


@pytest.mark.parametrize("name", spared(CASES, "pair"))
def test_outside_of_jit_as_within(name):
    assert_same(veenv.jacve(CASES[name], "reverse")(X), jax.jacrev(CASES[name])(X))


@pytest.mark.parametrize("name", ["clipped", "ignored cotangent", "pair", "batch"])
def test_other_orders_are_refused_by_name_and_line(name):
    with pytest.raises(ValueError, match=r"rule of (clipped|deaf|pair|limited).*test_reverse_only"):
        veenv.jacve(CASES[name], "forward")(X)


def test_auto_and_searches_find_allowed_orders(monkeypatch):
    fun = CASES["pair"]
    graph = veenv.make_graph(fun)(X)
    monkeypatch.setenv("VEENV_CACHE_DIR", "off")
    assert_same(veenv.jacve(fun, veenv.Auto(seconds=0.2))(X), jax.jacrev(fun)(X))
    for method in ("markowitz", "anneal", "exact"):
        found = search(graph, method, budget=200)
        assert found.cost == graph.cost(found.order) <= graph.cost(graph.reverse())


def test_a_rule_that_gives_something_for_no_cotangent_is_refused():
    """For another output JAX's reverse mode applies the rule to zeros."""
    with pytest.raises(ValueError, match=r"rule of deaf .*output leaf 1"):
        veenv.jacve(lambda x: (deaf(x * x), x))(X)


SIZES = jax.ShapeDtypeStruct((3,), "float64")
SCALE = np.array([1.0, 2.0, 3.0])
LINEAR = {
    "where": lambda g: jnp.where(SCALE > 1.5, g, 0), "dot": lambda g: jnp.outer(SCALE, SCALE) @ g,
    "indices": lambda g: jnp.zeros(4).at[jnp.array([1, 1, 2])].add(g)[:3],
    "loop": lambda g: lax.scan(lambda c, s: (c * s + g, c.sum()), jnp.zeros(3), SCALE)[0],
    "branch": lambda g: lax.cond(SCALE[0] > 0, lambda v: -v, lambda v: v / 2, g),
    "while": lambda g: lax.fori_loop(0, jnp.array(SCALE[2], int), lambda i, v: v[::-1] * 2, g),
    "jit": jax.jit(lambda g: jnp.roll(g, 1) - g.mean()),
    "solve": lambda g: jnp.linalg.solve(np.diag(SCALE), g),
    "stopped": lambda g: lax.stop_gradient(g) * 2, "own rule": lambda g: clipped(g),
    "sum": lambda g: jnp.full(3, g.sum()),
    "pieces": lambda g: jnp.concatenate([jnp.cumsum(g)[1:], jnp.zeros(1)]),
}  # fmt: skip
OTHER = {
    "clip": lambda g: jnp.clip(g, -1, 1), "constant": jnp.ones_like, "shifted": lambda g: g + 1,
    "product": lambda g: g * g, "norm": lambda g: g / jnp.sqrt((g * g).sum()),
    "selected": lambda g: jnp.where(g > 0, g, 0.5 * g),
    "loop": lambda g: lax.scan(lambda c, _: (jnp.tanh(c), None), g, None, length=2)[0],
    "while": lambda g: lax.while_loop(lambda v: v.sum() < 3, lambda v: 2 * v, g),
    "sorted": jnp.sort,
    "integers": lambda g: g.astype(int).astype(float),
}  # fmt: skip


@pytest.mark.parametrize("name", [*LINEAR, *(f"not {name}" for name in OTHER)])
def test_linearity(name):
    fun = OTHER[name[4:]] if name.startswith("not ") else LINEAR[name]
    assert is_linear(trace(fun, [SIZES], plain=True)) == (name in LINEAR)


@settings(max_examples=few(2, of=6), deadline=None)
@given(st.lists(st.integers(0, 99), min_size=2, max_size=5), st.integers(0, 99))
def test_random_programs_with_random_rules(choices, seed):
    plain = [jnp.sin, lambda x: x * x.sum(), lambda x: x[::-1] * 2]
    ruled = [clipped, limited, lambda x: sum(pair(x, x[::-1])), lambda x: looped(x)[0]]

    def fun(x):
        known = [x]
        for c in choices:
            every = [*plain, *ruled]
            known.append(every[c % len(every)](known[c % len(known)]) + 0 * known[-1])
        return known[-1] * 2, known[-2]

    expected = quick_jit(jax.jacrev(fun))(X)
    graph = veenv.make_graph(fun)(X)
    shuffled = np.random.default_rng(seed).permutation(graph.eliminable).tolist()
    for ids in {graph.reverse(), graph.legal(graph.forward()), graph.legal(shuffled)}:
        assert_same(quick_jit(veenv.jacve(fun, ids))(X), expected)


@pytest.mark.parametrize(
    ("shape", "order"),
    spared(
        itertools.product([(), (3,)], ["forward", "reverse"]), ((), "forward"), ((3,), "reverse")
    ),
)
def test_a_cotangent_rule_in_a_body_under_jit(shape, order):
    """A scan, by a scalar or pushed forward; JAX raises where such a tangent is compiled."""
    point = X if shape else 0.3
    scan = lambda x: lax.scan(lambda c, _: (doubled(c) * c, c), x, None, length=3)  # noqa: E731
    fork = lambda x: lax.cond(jnp.sum(x) > 0, doubled, jnp.cos, x)  # noqa: E731
    for body in (scan, fork):
        fun = lambda x, body=body: jax.tree.map(lambda y: y * jnp.sum(x), body(x * x))  # noqa: E731
        expected = quick_jit(jax.jacrev(fun))(jnp.asarray(point))
        assert_same(quick_jit(veenv.jacve(fun, order))(jnp.asarray(point)), expected)
