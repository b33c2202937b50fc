"""The policy for graphs of any size: the score that is shipped, and how it is trained."""

from __future__ import annotations

import json
import shlex
from importlib import resources
from itertools import islice

import numpy as np
import pytest
import tyro

from agents.large import large_orders, pretrained_score
from agents.policy import LARGE, policy_orders
from agents.training.large import FAMILIES, VALIDATION_SEED, LargeConfig, draw, train_score
from veenv.env.rewards import classical_cost
from veenv.graph.linearisation import make_graph
from veenv.search import search
from veenv.search.heuristic.learned import num_weights
from veenv.tasks import RandomFunctions

CARD = json.loads((resources.files("agents") / "data" / "large.json").read_text())


def wide_graph(vertices: int, seed: int = 0):
    """The graph of a random function that training has not seen."""
    family = RandomFunctions(vertices=(vertices, vertices), inputs=(8, 64), outputs=(8, 64))
    fun, point = family.draw([VALIDATION_SEED, seed])
    return make_graph(fun, tuple(range(len(point))))(*point)


def test_what_is_shipped_says_how_it_was_made():
    name, script, *options = shlex.split(CARD["command"])
    assert (name, script) == ("python", "scripts/train_large.py")
    config = tyro.cli(LargeConfig, args=options[: options.index("--out")])
    assert CARD["settings"] == vars(config)
    assert len(pretrained_score()) == num_weights(config.hidden)
    assert len(CARD["validation"]) == len(CARD["families"]) == len(FAMILIES)
    assert max(CARD["validation"]) < 1.0


def test_it_plays_a_thousand_vertices_better_than_a_classical_order():
    graph = wide_graph(1000)
    order = next(order for order in policy_orders(graph, "multiplications", 0) if order)
    assert graph.cost(order) < 0.97 * classical_cost(graph, "multiplications")


def test_samples_are_other_orders_that_the_seed_decides():
    graph = wide_graph(LARGE + 100)
    orders = list(islice(large_orders(graph, "multiplications", 3), 4))
    assert len(set(orders)) > 1
    assert orders == list(islice(large_orders(graph, "multiplications", 3), 4))
    assert [graph.check_order(order) for order in orders] == orders


@pytest.mark.slow
def test_auto_starts_from_the_policy_on_large_graphs():
    graph = wide_graph(500)
    first = graph.cost(next(large_orders(graph, "multiplications", 0)))
    assert search(graph, "auto", budget=3000).cost <= first


def test_arrays_are_played_under_every_cost_model():
    fun, point = RandomFunctions(vertices=(140, 140), arrays=1.0).draw([VALIDATION_SEED, 1])
    graph = make_graph(fun, tuple(range(len(point))))(*point)
    for cost in ("multiplications", "operations"):
        assert graph.cost(next(large_orders(graph, cost, 0)), cost) > 0


def test_training_is_the_same_again_and_needs_its_settings():
    config = LargeConfig(steps=2, functions=1, validation=1, batch=2, pairs=2, hidden=1)
    logs = []
    weights, validation = train_score(config, lambda *row: logs.append(row[:2]))
    again, _ = train_score(config)
    assert weights.tobytes() == again.tobytes()
    assert [step for step, _ in logs] == [1, 2]
    assert len(validation) == 1
    with pytest.raises(ValueError, match="batch must be a positive number, got 0"):
        LargeConfig(batch=0)


@pytest.mark.slow
def test_it_beats_the_best_classical_order_on_most_unseen_functions():
    logs = np.array(
        [opponent.play(pretrained_score()) for opponent in draw(2 * VALIDATION_SEED, 60)]
    )
    assert np.exp(logs.mean()) < 0.97
