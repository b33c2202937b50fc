"""`scripts/evaluate.py`: the table holds what the graphs count; bad input is one line."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import jax
import pytest

from agents.nn.networks import GraphNetwork
from agents.nn.weights import save_weights
from veenv.env.factory import task_graph

ROOT = Path(__file__).parents[2]


def call(monkeypatch, *args, script="evaluate.py"):
    monkeypatch.setattr(sys, "argv", [script, *args])
    try:
        runpy.run_path(str(ROOT / "scripts" / script), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


@pytest.fixture
def weights(tmp_path):
    """A file of weights that nothing has trained."""
    path = tmp_path / "weights.eqx"
    save_weights(path, GraphNetwork(hidden=4, key=jax.random.key(0)))
    return str(path)


def test_a_network_beside_other_ways(weights, monkeypatch, capsys):
    options = "--task", "Robertson,KerrMetric", "--samples", "4", "--anneal", "3000"
    call(monkeypatch, "--run", weights, *options)
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
    summary = "\n".join(lines[2:])
    assert "best of 4 samples against" in summary
    below = sum(best[name] < task_graph(name).cost(task_graph(name).markowitz()) for name in best)
    assert re.search(rf"Markowitz: +less on +{below} of 2", summary)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--task", "mlp"), "missing option --run"),
        (("--run", "WEIGHTS"), "name it with --task"),
        (("--run", "WEIGHTS", "--task", "nosuch"), "unknown task 'nosuch'"),
        (("--run", "WEIGHTS", "--samples", "0"), "samples must be .* got 0"),
        (("--run", "WEIGHTS", "--task", "LIF", "--anneal", "soon"), "budget must be .* got 'soon'"),
        (("--run", "WEIGHTS", "--task", "random", "--vertices", "9", "2"), "vertices must be a ra"),
        (("--task", "Robertson", "--run", "nowhere"), "No such file"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(args, message, weights, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *(weights if arg == "WEIGHTS" else arg for arg in args))
    said, complaint = capsys.readouterr()
    assert ended.value.code == 2
    assert said == ""
    assert complaint.count("\n") == 1
    assert re.search(message, complaint)


def test_the_pretrained_policy_with_a_clock(monkeypatch, capsys):
    options = "--task", "KerrMetric,PropaneCombustion", "--games", "3", "--anneal", "500"
    call(monkeypatch, *options, script="zero_shot.py")
    head, *lines = capsys.readouterr().out.splitlines()
    for line in lines[:2]:
        row = dict(zip(head.split(), line.split(), strict=True))
        graph = task_graph(row["task"])
        assert int(row["reverse"]) == graph.cost(graph.reverse())
        assert int(row["policy"]) <= int(row["greedy"])
        assert int(row["games"]) == 3
    assert "the policy, which played 2 of 2 in time, against" in lines
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, "--set", "nosuch", script="zero_shot.py")
    assert ended.value.code == 2
    assert "unknown set 'nosuch'" in capsys.readouterr().err
