"""Searches of graphs whose rules make some vertices wait: the best legal order, by brute force."""

from __future__ import annotations

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.graph.test_reverse_only import clipped
from tests.sampling import few
from veenv.graph.graph import Graph
from veenv.graph.linearisation import make_graph
from veenv.search import search
from veenv.search.budget import Budget, Tracker
from veenv.search.exact.astar import solve_astar
from veenv.search.heuristic.greedy_rules import RULES, greedy
from veenv.search.problem import prepare


@jax.custom_vjp
def mixed(x, y):
    """Two results whose cotangents meet."""
    return x * y, jnp.sin(x)


def _back(residual, g):
    x, y = residual
    limit = jnp.minimum(1.0, jnp.abs(g[0]))
    return limit * (g[0] * y + g[1] * jnp.cos(x)), limit * g[0] * x


mixed.defvjp(lambda x, y: (mixed(x, y), (x, y)), _back)


def random_graph(seed: int, shape: tuple[int, ...], size: int = 7) -> Graph:
    """The graph of a random program with one or two rules that are not linear."""

    def fun(x, y):
        rng = np.random.default_rng(seed)
        known = [x, y]
        rules = set(rng.choice(size, 2, replace=False).tolist())
        pick = lambda: known[max(0, len(known) - 1 - rng.integers(4))]  # noqa: E731
        for step in range(size):
            a, b = pick(), pick()
            if step in rules:
                known += [clipped(a)] if rng.integers(2) else mixed(a, b)
            elif rng.integers(3):
                known.append(a * b)
            else:
                known.append(jnp.sin(a))
        scale = 1 + jnp.sum(known[-1])
        return known[-1] * known[-2], scale

    point = jax.ShapeDtypeStruct(shape, "float32")
    return make_graph(fun, (0, 1))(point, point)


def is_legal(graph: Graph, order: tuple[int, ...]) -> bool:
    """Whether every vertex comes after those that it must wait for."""
    return all(
        order.index(other) < order.index(vertex)
        for vertex, others in graph.prerequisites.items()
        for other in others
    )


def graphs(shape: tuple[int, ...], number: int) -> list[Graph]:
    """Random graphs whose legal orders are some but not all."""
    found = (random_graph(seed, shape) for seed in range(1000))
    small = (g for g in found if g.prerequisites and 4 <= len(g.eliminable) <= 7)
    return [next(small) for _ in range(number)]


@pytest.mark.parametrize("shape", [(), (2,)], ids=["scalars", "arrays"])
def test_the_best_found_is_the_best_legal_order(shape):
    found_better = 0
    for graph in graphs(shape, few(4, of=30)):
        legal = [o for o in permutations(graph.eliminable) if is_legal(graph, o)]
        assert len(legal) > 0
        best = min(graph.cost(order) for order in legal)
        found_better += best < graph.cost(graph.reverse())
        for method in ("anneal", "exact", "auto"):
            result = search(graph, method, budget=3000, start=None)
            assert is_legal(graph, result.order)
            assert result.cost == graph.cost(result.order) == best
            assert result.lower_bound <= best
        if not shape:
            problem = prepare(graph)
            first = problem.to_local(graph.reverse())
            tracker = Tracker(problem, first, Budget(evaluations=1 << 20))
            assert solve_astar(problem, tracker)
            assert tracker.cost == tracker.lower_bound == best
    assert found_better


@pytest.mark.parametrize("rule", RULES)
def test_greedy_orders_take_what_may_go(rule):
    for graph in graphs((), 3):
        problem = prepare(graph)
        assert is_legal(graph, problem.to_ids(greedy(problem, rule)))
