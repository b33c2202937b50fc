"""``order="auto"`` asks no clock and no cache."""

from __future__ import annotations

import time
from itertools import islice

import numpy as np
import pytest

import veenv
from veenv.env.factory import task_graph
from veenv.env.rewards import classical_cost
from veenv.orders import cache, resolve
from veenv.orders.order import climb
from veenv.orders.resolve import resolve_order
from veenv.orders.scored import NUM_FEATURES, scored_order


@pytest.mark.parametrize("seed", range(3))
def test_it_is_never_more_expensive_than_the_classical_orders(seed, monkeypatch, tmp_path):
    fun, args = veenv.tasks.random_function(seed, 4, 25, 3)
    graph = veenv.make_graph(fun, tuple(range(len(args))))(*args)

    def refuse(*_):
        raise AssertionError("asked for the time, or for the cache")

    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", refuse)
        patch.setattr(time, "perf_counter", refuse)
        patch.setattr(cache, "cache_dir", refuse)
        ids = resolve_order("auto", graph)
    assert ids == resolve_order("auto", graph)
    assert not list(tmp_path.iterdir())
    assert graph.cost(ids, "operations") <= classical_cost(graph, "operations")


def test_it_takes_what_is_shipped():
    graph = task_graph("RoeFlux_1d")
    assert resolve.automatic_order(graph) == resolve_order("best-operations", graph)


def test_climbing_is_that_of_all_prices():
    fun, args = veenv.tasks.random_function(3, 4, 25, 3)
    graph = veenv.make_graph(fun, tuple(range(len(args))))(*args)
    start = graph.forward()
    for order, price in islice(climb(graph, start, "operations"), 300):
        assert price == graph.cost(order, "operations")
    assert price < graph.cost(start, "operations")


HELD_OUT = (
    "Satellite_RK4", "Car_RK4", "Schwarzschild_RK4", "CircadianClock_RK4", "Repressilator_RK4",
    "Localisation_EKF",
)  # fmt: skip


def unshipped(*_):
    raise ValueError("nothing is shipped")


def test_of_scalars_it_takes_a_scored_order_where_that_costs_less(monkeypatch):
    """Of functions that no score was trained on; climbing alone reaches 0.998 of the classical."""
    monkeypatch.setattr(resolve, "best_for", unshipped)
    ratios = []
    for name in HELD_OUT:
        graph = task_graph(name)
        found = resolve.automatic_order(graph)
        assert graph.check_order(found) == found
        ratios.append(graph.cost(found, "operations") / classical_cost(graph, "operations"))
    assert max(ratios) <= 1
    assert np.exp(np.log(ratios).mean()) < 0.96


@pytest.mark.parametrize("seed", range(4))
def test_scored_orders_are_orders_in_every_graph(seed):
    fun, args = veenv.tasks.random_function(seed, 4, 25, 3)
    graph = veenv.make_graph(fun, tuple(range(len(args))))(*args)
    nearest = (0.0,) * (NUM_FEATURES - 2) + (1.0, 0.0)  # to the inputs first
    for order in (scored_order(graph), scored_order(graph, nearest)):
        assert sorted(order) == sorted(graph.eliminable)
        assert graph.check_order(order) == order


def test_a_score_of_degrees_is_markowitz():
    graph = task_graph("RoeFlux_1d")
    weights = [0.0] * NUM_FEATURES
    weights[5] = 1.0  # in-degree times out-degree
    assert scored_order(graph, weights) == graph.markowitz()
