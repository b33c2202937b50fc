"""The loop: budgets, the best orders, and what it reports."""

import dataclasses
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import veenv
from tests.agents.conftest import lasting
from veenv import Graph
from veenv.agents.config.ppo import PPOConfig
from veenv.agents.ppo.trainer import Trainer
from veenv.agents.training.best import BestOrders
from veenv.agents.training.inputs import Played
from veenv.agents.training.learner import Learner
from veenv.agents.training.loop import CompilingError, train
from veenv.env import TaskDistribution

STEPS = 180


@pytest.fixture(scope="module", name="trainer")
def lasting_trainer(trainer):
    return lasting(trainer, STEPS)


def test_steps_are_rounded_up_to_whole_updates(trainer, both):
    learner = Learner(trainer)
    best, seen = learner.best, list(train(learner))
    size = trainer.steps_per_update
    assert [p.steps for p in seen] == [size * k for k in range(1, -(-STEPS // size) + 1)]
    assert seen[-1].fraction == 1.0
    for name in both.names:
        costs = [p.measured["min_cost"][name] for p in seen]
        assert best.cost(name) == min(costs)
        assert best[name].steps == seen[int(np.argmin(costs))].steps
        assert both.graphs[both.names.index(name)].cost(best[name].ids) == best.cost(name)
        so_far = [p.measured["best_cost"][name] for p in seen]
        assert so_far == np.minimum.accumulate(costs).tolist()
    assert all(np.isfinite(list(seen[0].measured["stats"].values())))


def test_time_limit_counts_from_the_start(trainer, both):
    late = time.monotonic() - 1000.0
    assert len(list(train(Learner(trainer), time_limit=10.0, started=late))) == 1


def test_a_first_round_within_the_limit_is_played_as_ever(trainer, both):
    ends = {"time_limit": 1000.0}
    [first, *_] = train(Learner(trainer), patient=False, **ends)
    [same, *_] = train(Learner(trainer), **ends)
    assert first.measured["mean_cost"] == same.measured["mean_cost"]


def test_what_goes_wrong_in_a_first_round_is_said(trainer, monkeypatch):
    def fail(*_):
        raise TimeoutError("no answer")

    monkeypatch.setattr(type(trainer), "step", fail)
    with pytest.raises(TimeoutError, match="no answer"):
        next(train(Learner(trainer), patient=False, time_limit=100.0))


def test_a_limit_ends_a_first_round_that_takes_longer(trainer, monkeypatch):
    late = threading.Event()
    monkeypatch.setattr(type(trainer), "step", lambda *_: late.wait(60))
    with pytest.raises(CompilingError, match=r"0.01 s, has passed while .* compiled"):
        next(train(Learner(trainer), patient=False, time_limit=0.01))
    late.set()


@pytest.mark.parametrize(("compiled", "ends"), [(55.0, [65.0, 75.0, 85.0, 95.0]), (25.0, [65.0])])
def test_compilation_does_not_count_as_pace(compiled, ends, trainer, monkeypatch):
    """The first step takes 60 of 100 seconds; as long as its episodes, others must fit."""
    clock = iter([0.0, 5.0, compiled, 65.0, 75.0, 85.0, 95.0, 105.0])
    fake = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("veenv.agents.training.loop.time", fake)
    seen = list(train(Learner(lasting(trainer, None)), time_limit=100.0))
    assert [p.seconds for p in seen] == ends


def test_stops_when_asked(trainer, both):
    assert list(train(Learner(trainer), should_stop=lambda: True)) == []


def test_needs_a_budget(both):
    endless = Trainer(PPOConfig(), both)
    with pytest.raises(ValueError, match="steps or a time limit"):
        next(train(Learner(endless)))


def test_best_orders_are_checked_by_the_graph(both):
    best = BestOrders(both)
    assert best.get("wide") is None
    width = both.env.num_actions
    orders = np.full((2, width), -1, np.int32)
    for k, graph in enumerate(both.graphs):
        orders[k, : len(graph.eliminable)] = np.arange(len(graph.eliminable))
    costs = np.array([g.cost(g.forward()) for g in both.graphs])
    assert best.offer(costs, orders, 10) == both.names
    assert best["wide"].ids == both.graphs[0].forward()
    assert best.offer(costs, orders, 20) == ()
    assert best["wide"].steps == 10
    with pytest.raises(RuntimeError, match="wide: the environment counted a cost of 1"):
        best.offer(np.array([1, 10**9]), orders, 30)
    orders[1, 0] = orders[1, 1]
    with pytest.raises(RuntimeError, match="chain: an episode is no order: order repeats"):
        best.offer(np.array([10**9, 1]), orders, 30)
    assert best.cost("wide") == costs[0]


def test_tasks_have_to_be_normalised_and_to_have_moves(wide_graph):
    with pytest.raises(ValueError, match="expected tasks with normalise=True"):
        Trainer(PPOConfig(), TaskDistribution.of({"wide": wide_graph}))
    nothing = Graph(1, [()], [0], [], {"multiplications": {}, "executed": {}})
    tasks = TaskDistribution.of({"wide": wide_graph, "none": nothing}, normalise=True)
    with pytest.raises(ValueError, match="none has no vertex to eliminate"):
        Trainer(PPOConfig(), tasks)


def test_what_was_played_leaves_out_what_was_given():
    played = Played.named("Robertson")
    [graph], best = played.tasks.graphs, BestOrders(played.tasks)
    best.keep("Robertson", dataclasses.replace(veenv.best_order("Robertson"), name="Robertson"))
    assert best.played("Robertson") is None
    slots = np.arange(len(graph.eliminable))[::-1]
    ids = played.tasks.vertex_ids(0, slots)
    best.offer(np.array([graph.cost(ids)]), slots[None], 1)
    assert best.played("Robertson") == ids
    assert best["Robertson"].ids == veenv.best_order("Robertson").ids


def test_schedules_follow_the_budget_and_go_on_where_a_run_was_stopped(trainer):
    other, told = lasting(trainer, 5 * trainer.steps_per_update), []
    other.step = lambda state, progress: told.append(progress) or trainer.step(state, progress)
    whole = list(train(Learner(other)))
    again = list(train(Learner(other), state=whole[2].state))
    assert told == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 0.6, 0.8])
    costs = [p.measured["mean_cost"] for p in whole[3:]]
    assert [p.measured["mean_cost"] for p in again] == costs
