"""Benchmarks `ppo-sets` and `equal-time`: the tables hold what the runs have shown."""

from __future__ import annotations

import json
import math

import pytest

from scripts.benchmark import run
from scripts.benchmarks import learning, zero_shot
from veenv.agents.api import train
from veenv.agents.config.ppo import PPOConfig
from veenv.env import TaskDistribution
from veenv.env.factory import task_graph
from veenv.search import search
from veenv.tasks.evaluation_sets import evaluation_set


def rows_of(table):
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


@pytest.fixture
def call(monkeypatch, tmp_path):
    """Runs a script with options; what it writes."""

    def called(name, *args):
        path = tmp_path / "result.json"
        run([name, *args, "--out", str(path)])
        return json.loads(path.read_text(encoding="utf-8"))

    return called


def test_ratios_to_annealing(monkeypatch, capsys, call):
    costs = iter([500, 600, 18])  # what PPO finds
    monkeypatch.setattr(learning, "learned", lambda *_: (next(costs), 1000))
    options = "--set", "scalar-large", "--functions", "2", "--task", "Robertson", "--anneal", "50"
    result = call("ppo-sets", *options)
    functions, sets = map(rows_of, result["tables"])
    graphs = (
        *TaskDistribution.of(evaluation_set("scalar-large")).graphs[:2],
        task_graph("Robertson"),
    )
    ratios = []
    for row, graph, cost in zip(functions, graphs, (500, 600, 18), strict=True):
        annealed = search(graph, "anneal", budget=50).cost
        assert row["annealing"] == f"{annealed:,}"
        assert row["best classical"] == f"{min(graph.cost(o) for o in classical(graph)):,}"
        assert (row["PPO"], row["steps"]) == (f"{cost:,}", "1,000")
        assert row["ratio"] == f"{cost / annealed:.3f}"
        ratios.append(cost / annealed)
    assert [row["set"] for row in sets] == ["scalar-large", "tasks", "all"]
    assert sets[-1]["within 1 %"] == str(sum(ratio <= 1.01 for ratio in ratios))
    assert sets[0]["geometric mean"] == f"{math.sqrt(ratios[0] * ratios[1]):.3f}"
    assert f"| {' | '.join(sets[-1].values())} |" in capsys.readouterr().out
    assert result["command"].startswith("python scripts/benchmark.py ppo-sets --set scalar-large")


def classical(graph):
    return graph.forward(), graph.reverse(), graph.markowitz()


def test_wrong_options_are_named(monkeypatch, capsys):
    for args, message in (
        (("--functions", "0"), "functions must be an integer of at least 1, got 0"),
        (("--time-limit", "soon"), "time_limit must be a positive duration"),
        (("--set", "nosuch"), "unknown set 'nosuch'"),
    ):
        with pytest.raises(SystemExit) as ended:
            run(["ppo-sets", *args])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_what_ppo_finds_is_its_own_best():
    graph = task_graph("Robertson")
    cost, steps = learning.learned(graph, PPOConfig(), "1s")
    trained = train(graph, PPOConfig(), time_limit=1.0)
    assert cost == trained.order.counts["multiplications"] == 17
    assert steps > 0


@pytest.mark.slow
def test_both_agents_after_equal_time(call):
    options = "--task", "Robertson", "--time-limit", "2s", "--seeds", "2", "--num-simulations", "4"
    [table] = call("equal-time", *options)["tables"]
    rows = rows_of(table)
    assert [row["agent"] for row in rows] == ["PPO", "AlphaZero"]
    for row in rows:
        assert row["published"] == "-"
        assert 17 <= int(row["best"]) <= float(row["median"]) <= int(row["worst"]) <= 18
        assert int(row["steps of a run"].replace(",", "")) > 0


def test_without_sets_and_tasks_all_tasks_are_played():
    [(name, played)] = zero_shot.played(None, None)
    assert (name, "RandomArray_40" in played.names, len(played)) == ("tasks", True, 27)
