"""The pretrained policy that comes with the package, and how it is trained."""

from __future__ import annotations

import dataclasses
import json
import shlex
from importlib import resources
from itertools import islice

import numpy as np
import pytest
import tyro

from veenv import make_graph
from veenv.agents.policy import policy_orders, pretrained
from veenv.agents.training.score import FAMILIES, VALIDATION_SEED, ScoreConfig, draw, train_score
from veenv.env.factory import task_graph
from veenv.env.rewards import classical_cost
from veenv.search import search
from veenv.search.heuristic.learned import NUM_FEATURES, num_weights
from veenv.tasks import RandomFunctions

DATA = resources.files("veenv.agents") / "data"
WIDE = RandomFunctions(vertices=(1000, 1000), inputs=(8, 64), outputs=(8, 64))


def graph_of(family: RandomFunctions, seed: int = 0):
    """The graph of a random function that training has not seen."""
    fun, point = family.draw([VALIDATION_SEED, seed])
    return make_graph(fun, tuple(range(len(point))))(*point)


def best_of(graph) -> int:
    """The least cost of the first 32 games."""
    return min(map(graph.cost, islice(policy_orders(graph, "multiplications", 0), 32)))


@pytest.mark.parametrize("kind", ["scalar", "arrays"])
def test_what_is_shipped_says_how_it_was_made(kind):
    card = json.loads((DATA / f"policy-{kind}.json").read_text())
    name, script, *options = shlex.split(card["command"])
    assert (name, script) == ("python", "scripts/data/train_policy.py")
    assert options[options.index("--out") + 1] == f"agents/data/policy-{kind}.json"
    config = tyro.cli(ScoreConfig, args=options[: options.index("--out")])
    assert card["settings"] == vars(config)
    assert config.kind == kind
    assert card["families"] == json.loads(json.dumps(list(map(vars, FAMILIES[kind]))))
    assert len(pretrained(kind)) == num_weights(config.hidden, NUM_FEATURES[kind])
    assert len(card["validation"]) == len(FAMILIES[kind])
    assert max(card["validation"]) < 1.0


def test_it_is_a_search_method(wide_graph):
    found = search(wide_graph, "policy-32", budget=100, seed=5)
    orders = list(islice(policy_orders(wide_graph, "multiplications", 5), 33))
    assert found.cost == min(wide_graph.cost(order) for order in orders)
    assert found.evaluations <= 32
    assert found.trace[0][2] == wide_graph.cost(orders[0])


def test_it_plays_scalars_that_it_has_not_seen():
    assert best_of(task_graph("RoeFlux_1d")) < 320  # the published count of a trained agent


@pytest.mark.parametrize("name", ["LSTM", pytest.param("HydrogenOxygen", marks=pytest.mark.slow)])
def test_it_plays_arrays_larger_than_those_it_was_trained_on(name):
    graph = task_graph(name)
    assert best_of(graph) < 0.6 * classical_cost(graph, "multiplications")


def test_it_plays_a_thousand_vertices_better_than_a_classical_order():
    graph = graph_of(WIDE)
    order = next(policy_orders(graph, "multiplications", 0))
    assert graph.cost(order) < 0.97 * classical_cost(graph, "multiplications")


@pytest.mark.slow
def test_auto_starts_from_the_policy_on_large_graphs():
    graph = graph_of(dataclasses.replace(WIDE, vertices=(500, 500)))
    first = graph.cost(next(policy_orders(graph, "multiplications", 0)))
    assert search(graph, "auto", budget=3000).cost <= first


def test_arrays_are_played_under_every_cost_model():
    graph = graph_of(RandomFunctions(vertices=(140, 140), arrays=1.0), 1)
    for cost in ("multiplications", "operations"):
        assert graph.cost(next(policy_orders(graph, cost, 0)), cost) > 0


@pytest.mark.parametrize("kind", ["scalar", "arrays"])
def test_training_is_the_same_again(kind):
    config = ScoreConfig(kind, steps=2, functions=1, validation=1, batch=2, pairs=2, hidden=1)
    logs = []
    weights, validation = train_score(config, lambda *row: logs.append(row[:2]))
    again, _ = train_score(config)
    assert weights.tobytes() == again.tobytes()
    assert [step for step, _ in logs] == [1, 2]
    assert len(validation) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scalar", "arrays"])
def test_it_beats_the_best_classical_order_on_most_unseen_functions(kind):
    opponents = draw(kind, 2 * VALIDATION_SEED, 60)
    logs = np.array([opponent.play(pretrained(kind)) for opponent in opponents])
    assert np.exp(logs.mean()) < 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("arrays", "most"), [(0.0, 1.0), (1.0, 1.05)])
def test_its_games_cost_about_what_annealing_finds(arrays, most):
    graphs = [graph_of(RandomFunctions((20, 60), arrays=arrays), seed) for seed in range(30)]
    annealed = [search(graph, "anneal", budget=2000).cost for graph in graphs]
    ratios = np.log([max(best_of(graph), 1) for graph in graphs]) - np.log(np.maximum(annealed, 1))
    assert np.exp(ratios.mean()) <= most
