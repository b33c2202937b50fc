"""Prices by tables are those of eliminating structures, whoever asks, and in whatever order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv.env.env import VertexEnv
from veenv.env.factory import task_graph
from veenv.graph.graph import COST_MODELS, CostRecord, counts_additions
from veenv.graph.tableau import eliminate_counted


def by_structures(graph, order, cost):
    tableau, counts = graph.tableau(cost), []
    for node in map(graph.node, order):
        counts.append(eliminate_counted(tableau, node, keep=node in graph.output_nodes))
    return tuple(m + a if counts_additions(cost) else m for m, a in counts)


def orders_of(graph, number, seed=0):
    rng = np.random.default_rng(seed)
    shuffled = (graph.legal(rng.permutation(graph.eliminable).tolist()) for _ in range(number))
    return [graph.reverse(), graph.forward(), graph.markowitz(), *shuffled]


@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("name", ["RoeFlux_1d", "Encoder", "mlp"])
def test_tables_price_as_structures_do(name, cost):
    graph = task_graph(name)
    for order in orders_of(graph, 10):
        assert graph.costs(order, cost) == by_structures(graph, order, cost)


def test_a_cost_model_is_a_record(monkeypatch):
    model: Any = "labelled"
    monkeypatch.setitem(COST_MODELS, model, CostRecord("multiplications", additions=True))
    fun = lambda x, y: jnp.sin(2.0 * x * y) * (x + y)  # noqa: E731
    graph = veenv.make_graph(fun, (0, 1))(1.0, 2.0)
    ids = graph.reverse()
    cost = graph.cost(ids, model)
    assert graph.costs(ids, model) == by_structures(graph, ids, model)
    assert cost > graph.cost(ids, "operations")
    assert veenv.Order.from_graph(graph, ids).counts[model] == cost
    found = veenv.search.search(graph, "exact", cost=model)
    assert found.cost == graph.cost(found.order, model) <= cost
    env = VertexEnv(graph, model)
    (_, state), step = env.reset(), jax.jit(env.step)
    for v in ids:
        _, state, *_ = step(None, state, graph.eliminable.index(v))
    assert int(state.cost) == cost


def test_several_threads_may_price_orders_of_one_graph():
    expected = task_graph("Encoder")
    orders = orders_of(expected, 40, seed=1)
    prices = [by_structures(expected, order, "operations") for order in orders]
    for _ in range(5):
        graph = task_graph("Encoder")
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(partial(graph.costs, cost="operations"), orders)) == prices


def test_pricing_ends_where_an_order_is_of_no_interest():
    graph = task_graph("RoeFlux_1d")
    for order in orders_of(graph, 5):
        price = graph.cost(order, "operations")
        assert graph.cost_within(order, "operations", price) == price
        assert price // 2 < graph.cost_within(order, "operations", price // 2) <= price
