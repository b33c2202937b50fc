"""Lower bounds and exact searches against brute force."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.edge_graph import EdgeGraph, cheapest, from_reference, random_graph
from tests.sampling import few
from tests.search.test_patterns import patterns_of, tracker_of
from veenv.graph.graph import COST_MODELS
from veenv.search.exact.astar import solve_astar
from veenv.search.exact.bounds import vertex_bounds
from veenv.search.problem import prepare

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("cost", ["executed", "operations"])
@given(seeds, st.integers(2, 40), st.sampled_from([0.0, 0.4]), st.sampled_from([0.0, 0.3]))
@settings(max_examples=60)
def test_no_elimination_costs_less_than_its_bound(cost, seed, size, unit, kept):
    rng = np.random.default_rng(seed)
    problem = prepare(random_graph(rng, size, unit=unit, kept=kept).graph(), cost)
    bounds = vertex_bounds(problem)
    for _ in range(20):
        order = rng.permutation(problem.n)
        assert (problem.costs(order) >= bounds[order]).all()


@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("name", ["RoeFlux_3d", "MLP", "Encoder", "Lorenz96_RK4", "LSTM"])
def test_no_elimination_of_arrays_costs_less_than_its_bound(task_graph, name, cost):
    problem = prepare(task_graph(name), cost)
    bounds = vertex_bounds(problem)
    assert bounds.sum() > 0
    rng = np.random.default_rng(0)
    for _ in range(50):
        order = rng.permutation(problem.n)
        assert (problem.costs(order) >= bounds[order]).all()


def test_bounds_of_the_published_tasks(reference):
    """Two published bests are optimal, and so is 221 for the robot arm (test_search)."""
    bounds = {
        name: int(vertex_bounds(prepare(from_reference(reference(name)).graph())).sum())
        for name in ("HumanHeartDipole", "PropaneCombustion", "RobotArm_6DOF", "RoeFlux_1d")
    }
    assert bounds["HumanHeartDipole"] == 148
    assert bounds["PropaneCombustion"] == 88
    assert bounds["RobotArm_6DOF"] == 221
    assert 200 <= bounds["RoeFlux_1d"] <= 295


@pytest.mark.parametrize("cost", ["executed", "operations"])
@given(seeds, st.integers(1, 7), st.sampled_from([0.0, 0.3, 0.7]), st.sampled_from([0.0, 0.3]))
@settings(max_examples=few(12, of=75))
def test_all_exact_searches_equal_brute_force(cost, seed, size, unit, kept):
    graph = random_graph(np.random.default_rng(seed), size, unit=unit, kept=kept, reach=6)
    problem, least = prepare(graph.graph(), cost), cheapest(graph, cost)
    patterns = patterns_of(problem)
    assert patterns.total <= least
    for solve in (solve_astar, partial(solve_astar, patterns=patterns)):
        tracker = tracker_of(problem)
        assert solve(problem, tracker)
        assert tracker.cost == tracker.lower_bound == least
        assert graph.cost(problem.to_ids(tracker.order), cost) == least


@pytest.mark.parametrize("cost", ["executed", "operations"])
@pytest.mark.parametrize("seed", range(4))
def test_the_rule_of_astar_keeps_an_optimal_order(seed, cost):
    """Larger plain graphs, where safe vertices and twins abound, against a search without it.

    Under ``"operations"`` the rule does not hold and is not used.
    """
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 15, reach=6)
    if seed % 2:
        # A twin of every third vertex.
        shift = max(v for e in graph.edges for v in e) + 1
        twins = {v: shift + v for v in range(graph.num_inputs, shift, 3)}
        extra = {(twins.get(u, u), twins.get(v, v)) for u, v in graph.edges}
        graph = EdgeGraph(graph.num_inputs, graph.edges | extra, graph.outputs)
    problem = prepare(graph.graph(), cost)
    with_rule, without = tracker_of(problem), tracker_of(problem)
    assert solve_astar(problem, with_rule)
    assert solve_astar(replace(problem, core=problem.core._replace(plain=False)), without)
    assert with_rule.cost == without.cost == without.lower_bound
    assert with_rule.evaluations <= without.evaluations


def test_an_unfinished_proof_gives_a_bound(task_graph):
    problem = prepare(task_graph("KerrMetric_Jacobian"))
    tracker = tracker_of(problem, evaluations=300)
    assert not solve_astar(problem, tracker)
    assert vertex_bounds(problem).sum() <= tracker.lower_bound < tracker.cost


def test_a_full_memory_ends_the_proof(task_graph):
    problem = prepare(task_graph("KerrMetric_Jacobian"))
    assert not solve_astar(problem, tracker_of(problem), max_states=2000)
