"""The entry point: what each method finds, determinism, budgets, interruption, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import veenv
from tests.oracles.edge_graph import EdgeGraph, cheapest, random_graph
from tests.sampling import spared
from veenv.env.rewards import classical_cost
from veenv.graph.graph import COST_MODELS
from veenv.search import METHODS, Budget, search
from veenv.search.budget import Tracker
from veenv.search.exact.astar import solve_astar
from veenv.search.heuristic.greedy_rules import greedy
from veenv.search.problem import prepare


@pytest.mark.parametrize(
    ("name", "method", "evaluations", "wanted"),
    [
        ("RoeFlux_1d", "anneal", 400_000, 295),
        ("RobotArm_6DOF", "exact", 400_000, 221),
        ("HumanHeartDipole", "anneal", 100_000, 148),
        pytest.param("Encoder", "auto", 200_000, 4226, marks=pytest.mark.slow),
    ],
)
def test_best_known_counts_are_reached(task_graph, name, method, evaluations, wanted):
    graph = task_graph(name)
    result = search(graph, method, budget=evaluations)
    assert result.cost <= wanted
    assert result.lower_bound <= result.cost == graph.cost(result.order)
    assert result.optimal == (result.lower_bound == result.cost)
    assert result.optimal == (name not in ("RoeFlux_1d", "Encoder"))


def test_annealing_finds_the_optimum_of_small_graphs():
    missed = 0
    for seed in range(20):
        graph = random_graph(np.random.default_rng(seed), 14, kept=0.1).graph()
        problem = prepare(graph)
        tracker = Tracker(problem, np.arange(problem.n), Budget())
        assert solve_astar(problem, tracker)
        missed += search(graph, "anneal", budget=5000).cost != tracker.cost
    assert missed <= 1


@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_every_kind_of_graph(task_graph, method, cost):
    for name in ("PropaneCombustion", "MLP"):
        graph = task_graph(name)
        result = search(graph, method, cost=cost, budget=300)
        assert graph.check_order(result.order) == result.order
        assert result.cost == graph.cost(result.order, cost) == result.trace[-1][2]
        assert (result.method, result.cost_model) == (method, cost)
        assert result.lower_bound <= result.cost


@pytest.mark.parametrize("method", ["anneal", "exact", "auto"])
def test_no_search_is_worse_than_its_start(task_graph, method):
    graph = task_graph("KerrMetric_Jacobian")
    result = search(graph, method, budget=1)
    assert result.cost <= classical_cost(graph, "multiplications")


@pytest.mark.parametrize(
    ("name", "method"),
    spared(
        itertools.product(["VanDerPol_RK4", "MLP"], ["anneal", "exact", "auto"]),
        ("VanDerPol_RK4", "anneal"),
        *itertools.product(["MLP"], ["exact", "auto"]),
    ),
)
def test_equal_seeds_give_equal_orders(task_graph, method, name):
    graph = task_graph(name)
    first, second = (search(graph, method, budget=6000, seed=7) for _ in range(2))
    assert first.order == second.order
    assert first.evaluations == second.evaluations
    assert [t[1:] for t in first.trace] == [t[1:] for t in second.trace]


@pytest.mark.parametrize("method", ["anneal", "exact", "auto"])
def test_budget_of_evaluations_is_kept(task_graph, method):
    result = search(task_graph("RoeFlux_1d"), method, budget=1000)
    assert result.evaluations == 1000


@pytest.mark.parametrize("method", ["anneal", "exact", "auto"])
def test_budget_of_time_is_kept(task_graph, method):
    graph = task_graph("RoeFlux_1d")
    search(graph, method, budget=10)
    assert 0.2 <= search(graph, method, budget="200ms").seconds < 1.0


@pytest.mark.parametrize("method", ["anneal", "exact", "auto"])
def test_an_interrupt_gives_the_best_so_far(task_graph, method):
    graph = task_graph("RoeFlux_1d")
    seen = []

    def interrupt(progress):
        seen.append(progress.cost)
        if len(seen) > 3:
            raise KeyboardInterrupt

    result = search(graph, method, budget="20s", callback=interrupt)
    assert result.cost == graph.cost(result.order) <= min(seen)  # the search runs in a thread
    assert result.seconds < 10


def test_progress_falls_and_ends_at_the_result(task_graph):
    reports = []
    result = search(task_graph("RoeFlux_1d"), budget=20_000, callback=reports.append)
    improvements = [p.cost for p in reports if p.improved]
    assert improvements == sorted(improvements, reverse=True)
    assert improvements == [t[2] for t in result.trace]
    assert improvements[-1] == result.cost


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "graph",
    [
        EdgeGraph(1, frozenset({(0, 1)}), (1,)),
        EdgeGraph(1, frozenset(), (None, 0)),
        EdgeGraph(1, frozenset({(0, 1), (1, 2)}), (2, 1)),
        EdgeGraph(1, frozenset({(0, 1), (1, 2), (2, 3)}), (3, 3)),
    ],
    ids=["none", "constant", "one", "two"],
)
def test_tiny_graphs(graph, method):
    result = search(graph.graph(), method, budget=100)
    assert result.cost == cheapest(graph)
    assert sorted(result.order) == list(graph.eliminable)


@pytest.mark.parametrize("cost", ["executed", "operations"])
@pytest.mark.parametrize("seed", range(5))
def test_greedy_orders_follow_their_rules(seed, cost):
    graph = random_graph(np.random.default_rng(seed), 25, unit=0.2, kept=0.1)
    problem = prepare(graph.graph(), cost)
    assert problem.to_ids(greedy(problem, "markowitz")) == graph.graph().markowitz()
    cost_order, left = [], list(graph.eliminable)
    while left:
        cost_order.append(min(left, key=lambda v: (graph.costs([*cost_order, v], cost)[-1], v)))
        left.remove(cost_order[-1])
    assert problem.to_ids(greedy(problem, "cost")) == tuple(cost_order)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "magic"}, "method must be one of auto, anneal"),
        ({"cost": "flops"}, "cost must be one of"),
        ({"budget": "soon"}, "budget must be a time such as '10s'"),
        ({"budget": True}, "budget must be"),
        ({"seed": -1}, "seed must be an int that is not negative, got -1"),
    ],
)
def test_wrong_arguments_are_named(task_graph, arguments, message):
    with pytest.raises(ValueError, match=message):
        search(task_graph("KerrMetric_Jacobian"), **arguments)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10s", Budget(seconds=10.0)),
        ("1.5 m", Budget(seconds=90.0)),
        ("250ms", Budget(seconds=0.25)),
        ("1h", Budget(seconds=3600.0)),
        ("5000", Budget(evaluations=5000)),
        (7, Budget(evaluations=7)),
        (Budget(1.0, 2), Budget(1.0, 2)),
    ],
)
def test_budgets_are_read(text, wanted):
    assert Budget.parse(text) == wanted


def test_tasks_by_their_names(task_graph):
    found = search("robertson", "reverse")
    assert found.cost == task_graph("Robertson").cost(task_graph("Robertson").reverse())
    order = veenv.optimize("Robertson", method="reverse")
    assert (order.name, order.ids) == ("Robertson", found.order)
    for call, wrong in (
        (lambda: veenv.optimize("real"), "real is a set of tasks"),
        (lambda: veenv.optimize("Robertson", 1.0), "takes neither arguments nor argnums"),
    ):
        with pytest.raises(ValueError, match=wrong):
            call()
    with pytest.raises(TypeError, match="expected a task's name, a function or a graph, got"):
        search(veenv.make("Robertson"))
