"""Bounds of clusters: sound on every order tried, tight enough to prove four shipped counts."""

from __future__ import annotations

import itertools
from itertools import permutations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veenv
from tests.oracles.edge_graph import EdgeGraph, cheapest, random_graph
from tests.sampling import few, spared
from veenv.graph.graph import COST_MODELS
from veenv.graph.linearisation import make_graph
from veenv.search.budget import Budget, Tracker
from veenv.search.exact.astar import solve_astar
from veenv.search.exact.bounds import vertex_bounds
from veenv.search.exact.patterns import Patterns, least_change, make_patterns
from veenv.search.kernels.compilation import compiled
from veenv.search.kernels.kernels import copy_state, eliminate
from veenv.search.problem import Problem, prepare

seeds = st.integers(0, 2**32 - 1)
ARRAYS = ["mlp", "LSTM", "ALIF", "KerrMetric_Jacobian", "HydrogenOxygen", "Reprojection"]


def tracker_of(problem: Problem, **limits) -> Tracker:
    return Tracker(problem, np.arange(problem.n), Budget(**limits))


def patterns_of(problem: Problem, **limits) -> Patterns:
    return make_patterns(problem, tracker_of(problem, **limits), vertex_bounds(problem))


def check_bounds(problem: Problem, patterns: Patterns, orders: int, rng) -> None:
    """On random orders what is left of every cluster costs at least its table's entry."""
    words = max(1, (problem.n + 63) // 64)
    for _ in range(orders):
        order = rng.permutation(problem.n)
        costs = problem.costs(order)
        done = np.zeros(words, np.uint64)
        left = patterns.total
        spent = 0
        total = int(costs.sum())
        assert left <= total
        for v, cost in zip(order, costs, strict=True):
            change = int(least_change(patterns, done, v))
            assert change >= -cost  # consistent
            done[v >> 6] |= np.uint64(1) << np.uint64(v & 63)
            left += change
            spent += int(cost)
            assert left <= total - spent
        assert left == 0


@given(seeds, st.integers(2, 30), st.sampled_from([0.3, 0.7]), st.sampled_from([0.0, 0.3]))
@settings(max_examples=few(30, of=60))
def test_no_order_of_scalars_costs_less_than_the_tables(seed, size, unit, kept):
    rng = np.random.default_rng(seed)
    problem = prepare(random_graph(rng, size, unit=unit, kept=kept).graph())
    patterns = patterns_of(problem)
    assert patterns.total >= vertex_bounds(problem).sum()
    check_bounds(problem, patterns, 10, rng)


@pytest.mark.parametrize(
    ("name", "cost"),
    spared(
        itertools.product(ARRAYS, COST_MODELS),
        ("mlp", "multiplications"),
        ("LSTM", "executed"),
        ("LSTM", "operations"),
    ),
)
def test_no_order_of_arrays_costs_less_than_the_tables(task_graph, name, cost):
    problem = prepare(task_graph(name), cost)
    assert problem.tables is not None
    patterns = patterns_of(problem)
    assert patterns.total > vertex_bounds(problem).sum()
    check_bounds(problem, patterns, 25, np.random.default_rng(0))
    best = veenv.best_order(name, cost).ids
    order = problem.to_local(best)
    assert patterns.total <= problem.total(order)


@compiled
def _least(core, orders):
    bits, ids, least = core.bits.copy(), core.ids.copy(), np.int64(1) << np.int64(60)
    for order in orders:
        copy_state(bits, ids, core.bits, core.ids)
        total = np.int64(0)
        for v in order:
            total += eliminate(core, bits, ids, v)
        least = min(least, total)
    return least


@pytest.mark.parametrize(
    ("normalised", "cost"),
    spared(
        itertools.product([False, True], COST_MODELS), (False, "executed"), (True, "operations")
    ),
)
def test_searches_of_arrays_equal_all_permutations(normalised, cost):
    def fun(x, w):
        y = w @ (jnp.sin(x) if normalised else -x)
        z = jnp.sum(y) * y if normalised else y - y[0]
        return jnp.sum(jnp.tanh(z) + z) * x[:3]

    problem = prepare(make_graph(fun, (0, 1))(jnp.ones(4), jnp.ones((3, 4))), cost)
    assert 7 <= problem.n <= 9
    patterns = patterns_of(problem)
    orders = np.array(list(permutations(range(problem.n))))
    least = _least(problem.core, orders)
    assert patterns.total <= least
    for known in (None, patterns):
        tracker = tracker_of(problem)
        assert solve_astar(problem, tracker, known)
        assert tracker.cost == tracker.lower_bound == least
        assert problem.graph.cost(problem.to_ids(tracker.order), cost) == least


@pytest.mark.parametrize(
    ("name", "cost", "least"),
    [
        ("mlp", "multiplications", 289),
        ("mlp", "executed", 188),
        ("HumanHeartDipole", "executed", 48),
        ("BlackScholes", "executed", 33),
        ("KerrMetric", "multiplications", 53),
        ("KerrMetric", "executed", 36),
    ],
)
def test_the_tables_alone_prove_shipped_orders(task_graph, name, cost, least):
    problem = prepare(task_graph(name), cost)
    order = veenv.best_order(name, cost)
    assert vertex_bounds(problem).sum() < least
    assert patterns_of(problem).total == least == order.counts[cost]
    assert order.is_optimal(cost)


def test_a_sum_and_its_terms_share_the_price():
    """x, y → a, b → a + b → out, the sum's edges free: whichever goes first, one pair of products.

    Alone, the terms and the sum may each cost nothing.
    """
    units = frozenset({(2, 4), (3, 4)})
    graph = EdgeGraph(2, frozenset({(0, 2), (1, 3), (2, 4), (3, 4), (4, 5)}), (5,), units)
    problem = prepare(graph.graph())
    assert vertex_bounds(problem).sum() == 0
    assert patterns_of(problem).total == 2 == cheapest(graph)
