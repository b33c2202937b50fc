"""`scripts/learners.py`: a row goes on where it was, and says what its runs have shown."""

from __future__ import annotations

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

from scripts import learners
from scripts.leaderboard import learner_table, paired_table, read_learners
from scripts.learners import Config, RunResult, evaluation_of, main
from veenv.env.factory import task_graph


@pytest.fixture
def config(tmp_path):
    return Config("anneal", "Robertson", "50", seeds=2, where="here", folder=tmp_path)


def read(config):
    [path] = config.folder.glob("*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_row_goes_on_where_it_was(config, monkeypatch, capsys):
    graph, played = task_graph("Robertson"), []
    orders = [graph.forward(), graph.reverse(), graph.markowitz()]

    def learner(graph, seed, budget):
        played.append((seed, budget))
        if len(played) == 2:
            raise KeyboardInterrupt
        cost = graph.cost(orders[seed])
        return RunResult(
            orders[seed], [(k, 0.1 * k, cost + 0.5, cost + 100 - k) for k in range(101)]
        )

    monkeypatch.setattr(learners, "learner_of", lambda name: learner)
    with pytest.raises(KeyboardInterrupt):
        main(config)
    assert [run["seed"] for run in read(config)["runs"]] == [0]
    main(config)
    assert played == [(0, "50"), (1, "50"), (1, "50")]
    assert f"Robertson, seed 1: {graph.cost(orders[1])}" in capsys.readouterr().out
    main(Config(**{**vars(config), "seeds": 3, "where": ""}))
    assert played[3:] == [(2, "50")]
    row, costs = read(config), [graph.cost(order) for order in orders]
    assert [run["cost"] for run in row["runs"]] == costs
    assert row["machine"] == "here"
    assert [run["order"] for run in row["runs"]] == [list(order) for order in orders]
    for run in row["runs"]:
        assert len(run["curve"]) == learners.POINTS
        assert run["curve"][0][0] == 0
        assert run["curve"][-1] == [100, 10.0, run["cost"] + 0.5, run["cost"]]
    found = evaluation_of(row)
    assert (found.seeds, found.rows[0].costs, found.rows[0].steps) == ((0, 1, 2), (*costs,), 300)
    [shown] = read_learners(config.folder)
    assert shown == found
    cells = [cell.strip() for cell in learner_table([shown]).splitlines()[-1].split("|")[1:-1]]
    assert cells[:3] == ["Robertson", "classical orders", "anneal"]
    assert float(cells[3]) == pytest.approx(np.exp(np.log(costs).mean()), abs=0.06)
    low, high = map(float, re.findall(r"[\d.]+", cells[4])[1:])
    assert min(costs) <= low <= high <= max(costs) == float(cells[5])
    assert cells[7:] == ["50", "3", "100", "0"]


def test_an_order_that_costs_something_else_is_refused(config, monkeypatch):
    graph = task_graph("Robertson")
    wrong = RunResult(graph.reverse(), [(1, 0.1, 5.0, 5)])
    monkeypatch.setattr(learners, "learner_of", lambda name: lambda *_: wrong)
    with pytest.raises(RuntimeError, match=r"an order of \d+ is said to cost 5"):
        main(config)
    assert not list(config.folder.iterdir())


def test_a_search_and_an_agent(config):
    """Their courses are those of the search and of the training."""
    graph = task_graph("Robertson")
    found = learners.searched("anneal", graph, 0, "50")
    assert graph.cost(found.order) == found.course[-1][3] == 17
    learner = learners.learner_of("ppo")
    assert learner.args == ("ppo",)
    with pytest.raises(ValueError, match=r"one of ppo, .*method must be one of"):
        learners.learner_of("nosuch")


@pytest.mark.parametrize("seeds", [1, 3])
def test_two_learners_are_compared_task_by_task(seeds):
    """The interval is of runs within tasks: none where each learner has one seed."""
    tasks = [
        {"task": name, "fingerprint": name, "classical": 20, "reference": 8} for name in "abcd"
    ]

    def row(learner, costs):
        runs = [
            {"task": task, "seed": seed, "cost": cost + seed, "mean": 9.0, "steps": 2}
            | {"seconds": 1.0, "order": [1]}
            for task, cost in zip("abcd", costs, strict=True)
            for seed in range(seeds)
        ]
        row = {"learner": learner, "on": "hard", "budget": "1m", "jax": "0", "tasks": tasks}
        return evaluation_of(row | {"runs": runs})

    ours, theirs = row("auto", (10, 10, 12, 10)), row("ppo", (10, 20, 10, 20))
    *_, line = paired_table([ours, theirs, dataclasses.replace(theirs, budget="2m")]).splitlines()
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:4] + cells[5:] == ["hard", "1m", "auto", "ppo", "2", "1"]
    middle, *interval = map(float, re.findall(r"[\d.]+", cells[4]))
    assert 0.6 < middle < 0.9
    if seeds == 1:
        assert middle == pytest.approx(0.75, abs=1e-3)  # the mean of 1/2 and 1
        assert not interval
    else:
        assert interval[0] < middle < interval[1]
        assert interval[1] - interval[0] < 0.3


def test_starts_are_named_and_costs_are_kept_by_time(config):
    main(config)
    [run, _] = read(config)["runs"]
    assert run["best"][-1][1] == run["cost"]
    seconds, costs = zip(*run["best"], strict=True)
    assert list(seconds) == sorted(seconds)
    assert list(costs) == sorted(costs, reverse=True)
    starts = {name: learners.start_of(name, 300) for name in ("ppo", "ppo-from-nothing", "auto")}
    assert starts["auto"] == "the shipped policy"
    assert starts["ppo"] == learners.start_of("policy-32", 20) == "the shipped policy"
    assert starts["ppo-from-nothing"] == learners.start_of("ppo", 98) == "nothing"
    assert learners.start_of("auto", 40) == learners.start_of("anneal", 900) == "classical orders"
    assert learners.learner_of("ppo-from-nothing").keywords == {"from_nothing": True}


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["ppo", "alphazero", "one-file", "rejax"])
def test_learners(learner, config):
    if learner == "rejax":
        pytest.importorskip("rejax")
    # One-file PPO and rejax use optax, which mixes types as JAX does by default.
    with jax.numpy_dtype_promotion("standard"):
        main(Config(learner, "Robertson", "200", seeds=1, folder=config.folder))
    [run] = read(config)["runs"]
    assert run["cost"] == 17
    assert run["steps"] >= 200
