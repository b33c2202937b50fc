"""`scripts/results.py`: the line of a task holds what its runs have shown."""

from __future__ import annotations

import pytest

from scripts.results import COLUMNS, ResultsArgs, line
from veenv.env.factory import task_graph


@pytest.mark.slow
def test_a_line_of_the_table():
    args = ResultsArgs("PropaneCombustion", seeds=2, steps=3000, anneal="2s")
    cells = line("PropaneCombustion", args).strip("| ").split(" | ")
    row = dict(zip(COLUMNS, cells, strict=True))
    graph = task_graph("PropaneCombustion")
    assert (row["task"], row["goal"], row["steps"]) == ("PropaneCombustion", "88", "3,000")
    assert 88 <= int(row["best"]) <= int(row["median"]) <= int(row["worst"])
    for name in ("last quarter", "random play"):
        assert int(row["worst"]) < float(row[name]) < graph.cost(graph.forward())
    assert row["annealing"].startswith("88 (")
