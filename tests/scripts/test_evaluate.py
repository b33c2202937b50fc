"""`scripts/evaluate.py`: the table holds what the graphs count; bad input is one line."""

from __future__ import annotations

import re
import runpy
import sys

import jax
import pytest

from tests.paths import ROOT
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.nn.weights import save_weights
from veenv.env.factory import task_graph
from veenv.env.rewards import classical_cost


def call(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *args])
    try:
        runpy.run_path(str(ROOT / "scripts" / "evaluate.py"), run_name="__main__")
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
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    tables = [[line.split() for line in lines[k : k + 3]] for k in (0, 3)]
    names, *rows = [a + b[1:] for a, b in zip(*tables, strict=True)]
    best = {}
    for cells in rows:
        row = dict(zip(names, cells, strict=True))
        graph = task_graph(row["task"])
        assert int(row["forward"]) == graph.cost(graph.forward())
        assert int(row["reverse"]) == graph.cost(graph.reverse())
        assert int(row["Markowitz"]) == graph.cost(graph.markowitz())
        assert int(row["annealing"]) <= min(int(row[n]) for n in ("best", "random", "untrained"))
        assert int(row["best"]) <= float(row["mean"])
        best[row["task"]] = int(row["best"])
    summary = "\n".join(lines[6:])
    assert "best of 4 samples to" in summary
    classical = {name: classical_cost(task_graph(name), "multiplications") for name in best}
    below = sum(best[name] < classical[name] for name in best)
    assert re.search(rf"classical: .* below on {50 * below} %", summary)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--task", "mlp"), "missing option --run"),
        (("--run", "WEIGHTS"), "name it with --task"),
        (("--run", "WEIGHTS", "--task", "nosuch"), "unknown task 'nosuch'"),
        (("--run", "WEIGHTS", "--samples", "0"), "samples must be .* got 0"),
        (("--run", "WEIGHTS", "--task", "LIF", "--anneal", "soon"), "budget must be .* got 'soon'"),
        (("--task", "Robertson", "--run", "nowhere"), "No such file"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(args, message, weights, monkeypatch, refused):
    args = [weights if arg == "WEIGHTS" else arg for arg in args]
    assert re.search(message, refused(call, monkeypatch, *args))
