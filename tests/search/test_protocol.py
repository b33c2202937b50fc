"""`veenv.evaluate`: costs are those of the graphs, whoever plays; sets have one name everywhere."""

from __future__ import annotations

import dataclasses
import json
import runpy
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.paths import ROOT
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.nn.weights import save_weights
from veenv.agents.training.inputs import Played
from veenv.env import TaskDistribution, random_action
from veenv.search import search
from veenv.search.evaluation import Evaluation

NAMES = ["Robertson", "KerrMetric", "PropaneCombustion"]


def at_random(key, seen, mask):
    return random_action(key, mask)


@pytest.fixture(scope="module")
def found():
    return veenv.evaluate(at_random, NAMES, samples=5, seed=(3, 4))


def test_rows_are_costs_of_orders_of_the_graphs(found, task_graph):
    assert [row.task for row in found.rows] == NAMES
    for row in found.rows:
        graph = task_graph(row.task)
        classical = graph.forward(), graph.reverse(), graph.markowitz()
        assert row.classical == min(graph.cost(order) for order in classical)
        assert row.costs == tuple(graph.cost(graph.check_order(o)) for o in row.orders)
        assert min(row.costs) == graph.cost(row.order) <= row.mean
        assert row.steps == 2 * 5 * len(graph.eliminable)
    again = veenv.evaluate(at_random, NAMES, samples=5, seed=(3, 4))
    assert [row.costs for row in again.rows] == [row.costs for row in found.rows]


def test_the_table_is_narrow_and_its_columns_are_in_line(found):
    head, *rows = str(found).splitlines()[: 1 + len(found.rows)]
    assert max(map(len, [head, *rows])) <= 80
    assert {len(row) for row in rows} == {len(head)}
    assert [row.split()[4] for row in rows] == [f"{min(row.costs):,}" for row in found.rows]


def test_the_first_legal_action_is_the_forward_order(task_graph):
    graph, first = task_graph("KerrMetric"), lambda key, seen, mask: jnp.argmax(mask, axis=-1)
    [row] = veenv.evaluate(first, [graph], samples=2, cost="operations").rows
    assert row.costs == (graph.cost(graph.forward(), "operations"),)


def test_searches_networks_and_files_are_policies(tmp_path, task_graph):
    [row] = veenv.evaluate("markowitz", "KerrMetric").rows
    assert row.order == task_graph("KerrMetric").markowitz()
    network = GraphNetwork(hidden=4, key=jax.random.key(0))
    save_weights(tmp_path / "weights.eqx", network)
    one, other = (veenv.evaluate(p, "Robertson", samples=3) for p in (network, str(tmp_path)))
    assert [r.costs for r in one.rows] == [r.costs for r in other.rows]
    graphs = TaskDistribution.of(["Robertson"]).observing("graph")
    with pytest.raises(ValueError, match="read observation='adjacency', got 'graph'"):
        veenv.evaluate(network, graphs)
    assert veenv.evaluate(at_random, graphs, samples=1).tasks == "Robertson"


@pytest.mark.parametrize("asks", ["both", "state", "partial", "object"])
def test_a_policy_that_searches_is_given_the_state(asks, task_graph):
    """The cheapest next elimination, found by playing each from the state that it is given."""
    env = veenv.make("PropaneCombustion")

    def ahead(key, seen, mask, state, params=env.default_params):
        after = jax.vmap(jax.vmap(env.transition, (None, 0, None)), (0, None, None))
        cost = after(state, jnp.arange(env.num_actions), params)[0].cost
        return jnp.argmin(jnp.where(mask, cost, jnp.iinfo(jnp.int32).max), axis=-1)

    class Search:
        def __call__(self, key, seen, mask, *, state, **others):
            return ahead(key, seen, mask, state)

    policies = {
        "both": ahead,
        "state": lambda key, seen, mask, state: ahead(key, seen, mask, state),
        "partial": partial(ahead, params=env.default_params),
        "object": Search(),
    }
    [row] = veenv.evaluate(policies[asks], "PropaneCombustion", samples=2).rows
    graph = task_graph("PropaneCombustion")
    assert row.costs[0] == graph.cost(search(graph, "cost").order)


def test_the_summary_by_hand(found):
    rows = [
        dataclasses.replace(row, costs=costs, reference=10, classical=20)
        for row, costs in zip(found.rows, [(5, 10), (10, 20), (40, 80)], strict=True)
    ]
    summary = dataclasses.replace(found, rows=tuple(rows)).compared()
    ratios = [0.5, 1, 1, 2, 4, 8]
    assert summary.middle == np.mean(ratios[1:-1])
    assert summary.mean == pytest.approx(np.exp(np.log(ratios).mean()))
    assert (summary.below, summary.equal, summary.tasks) == (1 / 6, 2 / 6, 3)
    assert 0.5 <= summary.low < summary.middle < summary.high <= 8
    assert found.compared("reference").tasks == 2  # Robertson's and PropaneCombustion's
    unknown = tuple(dataclasses.replace(row, reference=None) for row in found.rows)
    assert dataclasses.replace(found, rows=unknown).compared("reference") is None
    one = dataclasses.replace(found, seeds=(3,), rows=tuple(
        dataclasses.replace(row, costs=row.costs[:1], orders=row.orders[:1]) for row in found.rows
    ))  # fmt: skip
    same, spread = one.compared(one), found.compared(one)
    assert (same.middle, same.low, same.high, same.equal) == (1, 1, 1, 1)
    assert spread.low <= spread.middle <= spread.high
    assert found.compared(found).middle == pytest.approx(1, rel=0.2)
    with pytest.raises(ValueError, match="got 'annealing'"):
        found.compared("annealing")


def test_a_file_holds_it_all(found, tmp_path):
    found.save(tmp_path / "found.json")
    assert Evaluation.load(tmp_path / "found.json") == found


@pytest.mark.parametrize(
    "change",
    [
        lambda file: {"rows": [{"task": 3}]},
        lambda file: file | {"seeds": 3},
        lambda file: file | {"rows": [row | {"costs": ["1"]} for row in file["rows"]]},
        lambda file: file | {"rows": [row | {"seconds": -1} for row in file["rows"]]},
        lambda file: file | {"rows": [{**row, "orders": None} for row in file["rows"]]},
        lambda file: file | {"cost": "additions"},
    ],
)
def test_a_file_of_another_kind_is_refused(change, found, tmp_path):
    found.save(tmp_path / "found.json")
    file = json.loads((tmp_path / "found.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(change(file)))
    with pytest.raises(ValueError, match="is no evaluation"):
        Evaluation.load(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("policy", "tasks", "options", "message"),
    [
        ("nosuch", "real", {}, "neither a file or folder nor a method: method must be one of"),
        ("anneal", "Robertson", {"samples": 3}, "samples is for a policy"),
        (at_random, "Robertson", {"budget": "3s"}, "budget is for a method of search"),
        (at_random, "Robertson", {"samples": 0}, "samples must be .* got 0"),
        (at_random, "Robertson", {"seed": -1}, "seed must be .* got -1"),
        (at_random, "Robertson", {"seed": (1, 2, 1)}, "several different ones, got "),
        (at_random, "small", {}, "unknown task 'small'"),
        (at_random, veenv.make_graph(jnp.sin)(1.0), {}, "list of names and graphs, got Graph"),
        (
            lambda key, seen, mask: jnp.zeros(len(mask), int),
            "Robertson",
            {},
            "4 of 4 episodes did not end",
        ),
        (lambda key, seen, mask: jnp.ones(len(mask)), "Robertson", {}, "got dtype float32"),
        (lambda key, seen, mask: mask[0, 0], "Robertson", {}, r"int \[4\]; got shape \(\)"),
        (3, "Robertson", {}, "expected a function of key, observations and masks"),
    ],
)
def test_wrong_input_is_one_sentence(policy, tasks, options, message):
    if callable(policy) and "samples" not in options:
        options = {"samples": 4, **options}
    with pytest.raises((ValueError, TypeError), match=message):
        veenv.evaluate(policy, tasks, **options)


def test_sets_have_one_name_everywhere():
    chosen = veenv.sets("arrays-train")
    assert chosen.title == "arrays-train"
    assert Played.named("arrays-train").tasks.names == chosen.names
    assert set(Played.of("real").functions) == set(veenv.sets("real").names)
    with pytest.raises(ValueError, match=r"set of tasks: veenv\.sets\('arrays'\)"):
        veenv.make("arrays")
    with pytest.raises(ValueError, match="unknown set 'RoeFlux'"):
        veenv.sets("RoeFlux")


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["adjacency", "graph"])
def test_the_example_trains_and_evaluates_a_network_of_its_own(kind, monkeypatch, capsys):
    script = ROOT / "docs" / "examples" / "own_policy.py"
    monkeypatch.setattr(sys, "argv", [str(script), "2", kind])
    with jax.numpy_dtype_promotion("standard"):
        runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 90
    assert said[0].startswith("update 0: mean cost")
    assert said[-1].startswith("own network to classical: ")
