"""`scripts/evaluate.py`: the table holds what the graphs count; bad input is one line."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from veenv.env.factory import task_graph

ROOT = Path(__file__).parents[2]


def call(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *args])
    try:
        runpy.run_path(str(ROOT / "scripts" / "evaluate.py"), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


def test_the_pretrained_policy_beside_other_ways(monkeypatch, capsys):
    call(monkeypatch, "--task", "Robertson,KerrMetric", "--samples", "4", "--anneal", "3000")
    head, *lines = capsys.readouterr().out.splitlines()
    names = head.replace("best of 4", "best").split()
    best = {}
    for line in lines[:2]:
        row = dict(zip(names, line.split(), strict=True))
        graph = task_graph(row["task"])
        assert int(row["forward"]) == graph.cost(graph.forward())
        assert int(row["reverse"]) == graph.cost(graph.reverse())
        assert int(row["Markowitz"]) == graph.cost(graph.markowitz())
        assert int(row["annealing"]) <= min(int(row[n]) for n in ("best", "random", "untrained"))
        assert int(row["best"]) <= float(row["mean"])
        best[row["task"]] = int(row["best"])
    assert best["KerrMetric"] < 58  # Markowitz
    summary = "\n".join(lines[2:])
    assert "best of 4 samples against" in summary
    below = sum(best[name] < task_graph(name).cost(task_graph(name).markowitz()) for name in best)
    assert re.search(rf"Markowitz: +less on +{below} of 2", summary)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "name it with --task"),
        (("--task", "nosuch"), "unknown task 'nosuch'"),
        (("--task", "Robertson", "--samples", "0"), "samples must be .* got 0"),
        (("--task", "Robertson", "--anneal", "soon"), "budget must be .* got 'soon'"),
        (("--task", "random", "--vertices", "9", "2"), "vertices must be a range"),
        (("--task", "Robertson", "--run", "nowhere"), "No such file"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(args, message, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *args)
    said, complaint = capsys.readouterr()
    assert ended.value.code == 2
    assert said == ""
    assert complaint.count("\n") == 1
    assert re.search(message, complaint)
