"""Benchmark `agents`: the row of a task holds what its runs have shown."""

from __future__ import annotations

import pytest

from scripts.benchmarks.agents import STEPS, agents, row
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
