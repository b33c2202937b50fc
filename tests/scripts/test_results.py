"""Benchmark `agents`: the row of a task holds what its runs have shown."""

from __future__ import annotations

import json

import pytest

from scripts.benchmarks.agents import STEPS, agents, row
from scripts.docs import pictures
from scripts.docs.pictures import PICTURES
from veenv.env.factory import task_graph


@pytest.mark.slow
def test_a_row_of_the_table():
    texts, runs = row("PropaneCombustion", seeds=2, steps=3000, anneal="2s")
    cells = dict(zip(next(agents()).columns, texts, strict=True))
    graph = task_graph("PropaneCombustion")
    assert (cells["task"], cells["goal"], cells["steps"]) == ("PropaneCombustion", "88", "3,000")
    assert 88 <= int(cells["best"]) <= int(cells["median"]) <= int(cells["worst"])
    for name in ("last quarter", "random play"):
        assert int(cells["worst"]) < float(cells[name]) < graph.cost(graph.forward())
    assert cells["annealing"].startswith("88 (")
    for run in runs:
        steps, means, best, _ = zip(*run, strict=True)
        assert steps[-1] >= 3000
        assert list(steps) == sorted(steps)
        assert list(best) == sorted(best, reverse=True)
        assert max(means) < float(cells["random play"]) * 1.5


def test_the_picture_has_a_panel_for_each_task(tmp_path):
    PICTURES["learning-curves"](tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    for title in (*STEPS, "seed 0", "seed 4"):
        assert text.count(f"<!-- {title} -->") == 1


def test_costs_by_time_are_a_line_for_each_learner(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "LEARNERS", tmp_path)
    PICTURES["anytime"](tmp_path / "anytime.svg")
    assert not [*tmp_path.iterdir()]  # no row has them
    tasks = [{"task": "a", "classical": 20, "reference": 10}]
    for learner in ("auto", "ppo-from-nothing"):
        run = {"task": "a", "seconds": 10.0, "best": [[0.5, 25], [2.0, 15], [8.0, 10]]}
        row = {"learner": learner, "budget": "10s", "tasks": tasks, "runs": [run, run]}
        (tmp_path / f"{learner}-hard-10s.json").write_text(json.dumps(row))
    PICTURES["anytime"](tmp_path / "anytime.svg")
    text = (tmp_path / "anytime.svg").read_text(encoding="utf-8")
    for title in ("auto, 10s", "ppo-from-nothing, 10s", "seconds", "1 functions"):
        assert text.count(f"<!-- {title} -->") == 1
    tasks.append({"task": "b", "classical": 30, "reference": 20})
    row |= {"learner": "anneal", "tasks": tasks, "runs": [run, run | {"task": "b"}]}
    (tmp_path / "anneal-hard-10s.json").write_text(json.dumps(row))
    PICTURES["anytime"](tmp_path / "anytime.svg")
    text = (tmp_path / "anytime.svg").read_text(encoding="utf-8")
    named = {"anneal, 10s": 2, "auto, 10s": 1, "1 functions": 1, "2 functions": 1}
    for title, panels in named.items():
        assert text.count(f"<!-- {title} -->") == panels
