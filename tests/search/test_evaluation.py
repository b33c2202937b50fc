"""The compiled evaluators against sets and dicts, from scratch and incrementally."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.edge_graph import EdgeGraph, from_reference, random_graph
from veenv.graph.graph import COST_MODELS
from veenv.search.heuristic import annealing
from veenv.search.heuristic.annealing import commit, discard, evaluate, load, make_tape
from veenv.search.kernels.compilation import compiled
from veenv.search.problem import Problem, prepare

ARRAY_TASKS = ("RoeFlux_3d", "MLP", "Encoder")
seeds = st.integers(0, 2**32 - 1)


@compiled
def try_window(core, tape, lo, hi):
    """`evaluate` without a limit, for calls from Python."""
    return evaluate(core, tape, lo, hi, np.int64(1) << np.int64(60))


def check_orders(problem: Problem, costs, rng: np.random.Generator, times: int) -> None:
    for _ in range(times):
        order = rng.permutation(problem.n)
        assert problem.costs(order).tolist() == list(costs(problem.to_ids(order)))


@pytest.mark.parametrize("cost", ["executed", "operations"])
@given(seeds, st.integers(1, 30), st.sampled_from([0.0, 0.4]), st.sampled_from([0.0, 0.3]))
@settings(max_examples=150)
def test_scalar_costs_equal_the_oracle(cost, seed, size, unit, kept):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, size, unit=unit, kept=kept)
    check_orders(prepare(graph.graph(), cost), lambda ids: graph.costs(ids, cost), rng, 3)


@pytest.mark.parametrize("cost", ["executed", "operations"])
@pytest.mark.parametrize("unit", [0.0, 0.3])
@pytest.mark.parametrize(("size", "words"), [(100, 2), (160, 3)])
def test_graphs_of_several_words_equal_the_oracle(size, words, unit, cost):
    rng = np.random.default_rng(size)
    graph = random_graph(rng, size, unit=unit, kept=0.5, reach=4)
    problem = prepare(graph.graph(), cost)
    assert problem.core.bits.shape[2] == words
    check_orders(problem, lambda ids: graph.costs(ids, cost), rng, 3)


@pytest.mark.parametrize("cost", COST_MODELS)
@pytest.mark.parametrize("name", ARRAY_TASKS)
def test_array_costs_equal_the_graph(task_graph, name, cost):
    graph = task_graph(name)
    rng = np.random.default_rng(0)
    check_orders(prepare(graph, cost), lambda ids: graph.costs(ids, cost), rng, 10)


def test_tables_that_overflow_are_emptied(task_graph, monkeypatch):
    monkeypatch.setattr("veenv.search.kernels.tables._SIZE", 64)
    graph = task_graph("MLP")
    problem = prepare(graph)
    assert problem.tables is not None
    assert problem.tables.keys.shape == (2, 64)
    check_orders(problem, graph.costs, np.random.default_rng(1), 30)


@pytest.mark.parametrize("name", ["RoeFlux_1d", "RobotArm_6DOF", "HumanHeartDipole"])
def test_published_counts(reference, name):
    data = reference(name)
    graph = from_reference(data)
    problem = prepare(graph.graph())
    ids = list(graph.eliminable)
    orders = {"forward": ids, "reverse": ids[::-1], "markowitz": graph.graph().markowitz()}
    counts = {key: problem.total(problem.to_local(order)) for key, order in orders.items()}
    assert counts == data["counts"]


def check_windows(problem: Problem, rng: np.random.Generator, moves: int) -> None:
    """Random window changes, half of them taken: the tape must agree with full evaluation."""
    tape = make_tape(problem)
    order = rng.permutation(problem.n)
    total = load(problem.core, tape, order)
    assert total == problem.total(order)
    for _ in range(moves):
        lo, hi = sorted(rng.integers(0, problem.n, 2).tolist())
        tape.trial[lo : hi + 1] = rng.permutation(tape.trial[lo : hi + 1])
        before, trial = tape.order.copy(), tape.trial.copy()
        change, end = try_window(problem.core, tape, lo, hi)
        assert total + change == problem.total(trial)
        if rng.random() < 0.5:
            commit(tape, lo, end)
            total += change
            assert (tape.order == trial).all()
            assert (tape.costs == problem.costs(trial)).all()
        else:
            discard(tape, lo, hi)
            assert (tape.order == before).all()
        assert (tape.trial == tape.order).all()


@given(seeds, st.integers(2, 60), st.sampled_from([0.0, 0.3]))
@settings(max_examples=40)
def test_windows_of_scalars_equal_full_evaluation(seed, size, unit):
    rng = np.random.default_rng(seed)
    problem = prepare(random_graph(rng, size, unit=unit, kept=0.1).graph())
    if problem.n:
        check_windows(problem, rng, 30)


@pytest.mark.parametrize("name", ARRAY_TASKS)
def test_windows_of_arrays_equal_full_evaluation(task_graph, name, monkeypatch):
    monkeypatch.setattr(annealing, "_STRIDE_ARRAY", 5)
    check_windows(prepare(task_graph(name)), np.random.default_rng(2), 60)


def test_a_window_that_exceeds_the_limit_is_given_up(task_graph):
    problem = prepare(task_graph("RoeFlux_1d"))
    tape = make_tape(problem)
    load(problem.core, tape, np.arange(problem.n)[::-1].copy())
    tape.trial[:] = np.arange(problem.n)
    change, end = evaluate(problem.core, tape, 0, problem.n - 1, 10)
    assert change > 10
    assert end == -1


def test_graph_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("veenv.search.problem.MAX_BYTES", 50)
    graph = EdgeGraph(1, frozenset({(0, 1), (1, 2)}), (2,)).graph()
    with pytest.raises(ValueError, match="3 nodes is too large"):
        prepare(graph)
