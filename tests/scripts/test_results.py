"""Benchmark `ppo`: the row of a task holds what its runs have shown."""

from __future__ import annotations

import pytest

from scripts.benchmarks.learning_curves import draw
from scripts.benchmarks.ppo import COLUMNS, ResultsArgs, row
from veenv.env.factory import task_graph


@pytest.mark.slow
def test_a_row_of_the_table():
    args = ResultsArgs("PropaneCombustion", seeds=2, steps=3000, anneal="2s")
    texts, runs = row("PropaneCombustion", args)
    cells = dict(zip(COLUMNS, texts, strict=True))
    graph = task_graph("PropaneCombustion")
    assert (cells["task"], cells["goal"], cells["steps"]) == ("PropaneCombustion", "88", "3,000")
    assert 88 <= int(cells["best"]) <= int(cells["median"]) <= int(cells["worst"])
    for name in ("last quarter", "random play"):
        assert int(cells["worst"]) < float(cells[name]) < graph.cost(graph.forward())
    assert cells["annealing"].startswith("88 (")
    for run in runs:
        steps, means, best = run.curve
        assert steps[-1] >= 3000
        assert list(steps) == sorted(steps)
        assert list(best) == sorted(best, reverse=True)
        assert best[-1] == run.best
        assert max(means) < float(cells["random play"]) * 1.5


def test_the_picture_has_a_panel_for_each_task(tmp_path):
    rows = [
        ("A", "0", "10 20", "9 8", "8 7"),
        ("A", "1", "10 20", "9.5 8.5", "8 8"),
        ("B", "0", "5 9", "30 20", "25 15"),
    ]
    path = tmp_path / "curves.svg"
    draw(rows, {"A": 7, "B": 12}, path)
    text = path.read_text(encoding="utf-8")
    assert [text.count(f"<!-- {title} -->") for title in ("A", "B", "seed 1")] == [1, 1, 1]
