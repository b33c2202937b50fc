"""Annealing by regions, and greedy games by a score, on graphs of scalars and of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles.edge_graph import random_graph
from tests.search.test_precedence import is_legal
from tests.search.test_precedence import random_graph as waiting_graph
from veenv.graph.graph import COST_MODELS, Graph
from veenv.search import search
from veenv.search.budget import Budget, Tracker
from veenv.search.heuristic import learned, regions
from veenv.search.heuristic.greedy_rules import greedy
from veenv.search.problem import Problem, prepare


def scalars(seed: int, size: int = 90) -> Graph:
    """A graph of scalars in which some edges are unit and some vertices outputs."""
    return random_graph(np.random.default_rng(seed), size, unit=0.2, kept=0.1).graph()


def problems(task_graph) -> list[Problem]:
    """A problem of each kind: plain and other scalars, arrays, with and without additions."""
    plain = random_graph(np.random.default_rng(7), 150, kept=0.1).graph()
    graphs = [plain, scalars(0), task_graph("MLP")]
    return [prepare(graph, cost) for graph in graphs for cost in COST_MODELS]


@pytest.mark.parametrize("length", [8, 70])
def test_a_sweep_counts_what_the_graph_counts(task_graph, length):
    """The parts that it anneals have the costs of the whole: the sum is that of the order."""
    for problem in problems(task_graph):
        order = greedy(problem)
        tracker = Tracker(problem, order, Budget(evaluations=1 << 40))
        sweeper = regions.Sweeper(problem, tracker, 0)
        total = sweeper.sweep(order, min(length, problem.n), 1.0)
        assert sorted(order) == list(range(problem.n))
        assert total == problem.graph.cost(problem.to_ids(order), problem.cost_model)
        assert (sweeper.place == -1).all()


def test_annealing_by_regions_finds_better_orders_and_the_same_ones_again(task_graph):
    for graph in (scalars(3, 200), task_graph("MLP")):
        found = search(graph, "anneal", budget=20_000, seed=1)
        problem = prepare(graph)
        assert found.cost == graph.cost(found.order) <= problem.total(greedy(problem))
        assert found.order == search(graph, "anneal", budget=20_000, seed=1).order
    first = search(scalars(3, 200), "anneal", budget=50_000)
    again = search(scalars(3, 200), "anneal", budget=5000, start=first.order)
    assert again.cost <= first.cost


def test_annealing_by_regions_keeps_to_the_orders_that_a_graph_allows():
    for seed in range(5):
        graph = waiting_graph(seed, ())
        found = search(graph, "anneal", budget=2000)
        assert is_legal(graph, found.order)
        assert found.cost == graph.cost(found.order)


def test_a_game_by_a_score_costs_what_the_graph_counts(task_graph):
    rng = np.random.default_rng(0)
    for problem in problems(task_graph):
        player = learned.Player(problem)
        for hidden in (0, 3):
            weights = rng.normal(size=learned.num_weights(hidden, player.num_features))
            order, cost = player.play(weights)
            assert sorted(order) == list(range(problem.n))
            assert cost == problem.graph.cost(problem.to_ids(order), problem.cost_model)


def test_a_score_can_be_a_greedy_rule(task_graph):
    """The first feature is what an elimination costs, which is kept up to date."""
    for problem in (*(prepare(scalars(seed)) for seed in range(5)), prepare(task_graph("MLP"))):
        player = learned.Player(problem)
        weights = np.zeros(learned.num_weights(0, player.num_features))
        weights[0] = 1.0
        assert player.play(weights)[0].tolist() == greedy(problem, "cost").tolist()


def test_games_by_a_score_keep_to_the_orders_that_a_graph_allows():
    weights = np.random.default_rng(0).normal(
        size=learned.num_weights(2, learned.NUM_FEATURES["scalar"])
    )
    for seed in range(10):
        graph = waiting_graph(seed, ())
        problem = prepare(graph)
        assert is_legal(graph, problem.to_ids(learned.Player(problem).play(weights)[0]))
