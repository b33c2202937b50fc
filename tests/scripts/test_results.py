"""`scripts/results.py`: the row of a task holds what its runs have shown."""

from __future__ import annotations

import pytest

from scripts.results import COLUMNS, ResultsArgs, row
from veenv.env.factory import task_graph


@pytest.mark.slow
def test_a_row_of_the_table():
    args = ResultsArgs("PropaneCombustion", seeds=2, steps=3000, anneal="2s")
    cells = dict(zip(COLUMNS, row("PropaneCombustion", args), strict=True))
    graph = task_graph("PropaneCombustion")
    assert (cells["task"], cells["goal"], cells["steps"]) == ("PropaneCombustion", "88", "3,000")
    assert 88 <= int(cells["best"]) <= int(cells["median"]) <= int(cells["worst"])
    for name in ("last quarter", "random play"):
        assert int(cells["worst"]) < float(cells[name]) < graph.cost(graph.forward())
    assert cells["annealing"].startswith("88 (")
