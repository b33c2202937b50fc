"""The pretrained policy that comes with the package."""

from __future__ import annotations

import json
from importlib import resources
from itertools import islice

import jax
import numpy as np
import pytest

from agents.evaluation import GREEDY, Player, evaluate
from agents.nn.weights import architecture
from agents.policy import policy_orders, pretrained
from agents.training.curriculum import EVALUATION_SEEDS
from veenv import make_graph
from veenv.env.factory import task_graph
from veenv.env.task_set import TaskDistribution
from veenv.search import search

DATA = resources.files("agents") / "data"


def unseen(num, vertices, seed=0):
    """Random scalar functions that training has not seen."""
    return TaskDistribution.random(EVALUATION_SEEDS + seed, num, vertices=vertices)


def test_what_is_shipped_is_small_and_says_how_it_was_made():
    with resources.as_file(DATA / "generalist.eqx") as path:
        assert path.stat().st_size < 10_000_000
    record = json.loads((DATA / "generalist.json").read_text())
    assert record["architecture"] == architecture(pretrained())
    assert all(command.startswith("python scripts/train.py") for command in record["commands"])


@pytest.mark.slow
def test_it_plays_functions_that_it_has_not_seen():
    tasks = unseen(6, (20, 24), seed=1)
    results = evaluate(pretrained(), tasks, samples=32)
    best = np.array([result.best for result in results])
    markowitz = np.array([classical["Markowitz"] for classical in tasks.classical])
    random = np.array([result.random for result in results])
    untrained = np.array([result.untrained for result in results])
    assert np.sum(best < markowitz) >= 4
    assert best.sum() < 0.95 * markowitz.sum()
    assert best.sum() < 0.95 * random.sum()
    assert best.sum() < 0.95 * untrained.sum()


@pytest.mark.slow
def test_it_beats_markowitz_on_most_unseen_functions():
    tasks = unseen(100, (20, 60))
    results = evaluate(pretrained(), tasks, samples=32)
    best = np.array([result.best for result in results])
    assert np.sum(best < [classical["Markowitz"] for classical in tasks.classical]) >= 80
    assert np.sum(best < [result.random for result in results]) >= 80


def test_it_is_a_search_method(wide_graph):
    found = search(wide_graph, "policy-32", budget=100, seed=5)
    played = policy_orders(wide_graph, "multiplications", 5)
    orders = list(islice((order for order in played if order is not None), 33))
    assert found.cost == min(wide_graph.cost(order) for order in orders)
    assert found.evaluations <= 32
    assert found.trace[0][2] == wide_graph.cost(orders[0])


def test_functions_without_moves():
    graph = make_graph(lambda x: x)(1.0)
    assert list(policy_orders(graph, "multiplications", 0)) == [()]
    assert search(graph, "policy").order == ()


def test_episodes_in_parts_are_those_of_one_program():
    graph = task_graph("PropaneCombustion")
    tasks = TaskDistribution.of([graph])
    player, params, key = Player(tasks.env), tasks.task(0), jax.random.key(3)
    temperatures = [GREEDY, 1.0, 1.0]
    whole = player.play(pretrained(), params, key, temperatures)
    *parts, last = player.play_in_parts(pretrained(), params, key, temperatures, steps=7)
    assert parts == [None] * -(-tasks.env.num_actions // 7)
    np.testing.assert_array_equal(last.order, whole.order)
    np.testing.assert_array_equal(last.cost, whole.cost)
    assert last.complete.all()
