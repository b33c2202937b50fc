"""`scripts/search.py`: what it reports and writes, and one line for every wrong input."""

from __future__ import annotations

import threading

import pytest

from veenv import Order
from veenv.agents.cli.commands.search import main
from veenv.measure.comparison import Comparison
from veenv.measure.timing import Timing
from veenv.search import search
from veenv.tasks.user import trace_task


def run(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["search.py", "--timing", "0", *arguments])
    return main()


def test_a_task_is_searched_and_its_order_written(monkeypatch, capsys, tmp_path, task_graph):
    path = tmp_path / "order.json"
    arguments = ("--task", "humanheartdipole", "--budget", "50000", "--out", str(path))
    assert run(monkeypatch, *arguments) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[1].split()[:2] == ["forward", "240"]
    assert "proven optimal" in text
    graph = task_graph("HumanHeartDipole")
    order = Order.load(path)
    assert order.name == "HumanHeartDipole"
    assert graph.cost(order.ids_for(graph)) == order.counts["multiplications"] == 148


def test_a_cheaper_classical_order_is_written_beside(monkeypatch, capsys, tmp_path, task_graph):
    path = tmp_path / "mine.json"
    options = ("--task", "humanheartdipole", "--method", "forward", "--out", str(path))
    assert run(monkeypatch, *options) == 0
    text = capsys.readouterr().out
    graph = task_graph("HumanHeartDipole")
    least = min((graph.reverse(), graph.markowitz()), key=graph.cost)
    assert "takes fewer" in text
    assert str(tmp_path / "mine-classical.json") in text
    beside = Order.load(tmp_path / "mine-classical.json")
    assert graph.cost(beside.ids_for(graph)) == graph.cost(least) < graph.cost(graph.forward())
    result = search(graph, "forward")
    assert result.classical is not None
    assert result.classical[1].ids == beside.ids
    assert search(graph, "anneal", budget=100).classical is None


def test_a_proof_that_is_shipped_counts(monkeypatch, capsys):
    assert run(monkeypatch, "--task", "Robertson", "--method", "markowitz") == 0
    assert "proven optimal; " in capsys.readouterr().out
    assert run(monkeypatch, "--task", "Robertson", "--method", "forward") == 0
    assert 'no order costs less than 17, and order="best" costs 17; ' in capsys.readouterr().out


def test_what_stands_in_for_a_method_is_named(monkeypatch, capsys, tmp_path):
    going = threading.Event()
    monkeypatch.setattr("veenv.search.api._improve", lambda *args: going.wait(60))
    path = tmp_path / "order.json"
    options = ("--task", "Robertson", "--method", "exact", "--budget", "0.3s", "--out", str(path))
    try:
        assert run(monkeypatch, *options) == 0
    finally:
        going.set()
    text = capsys.readouterr().out
    assert "best found (hill climbing)" in text
    assert "exact is still compiling" in text
    assert Order.load(path).found_by.startswith("search hill climbing")


def test_a_function_is_searched(monkeypatch, capsys):
    function = ("--function", "jax.numpy:hypot", "--args", "(1.0, [2.0, 3.0])")
    search = ("--method", "exact", "--argnums", "1", "--budget", "2m")  # the proof ends it sooner
    assert run(monkeypatch, *function, *search) == 0
    assert "proven optimal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing option --task NAME or --function MODULE:NAME"),
        (("--task", "MLP", "--function", "a:b"), "give either --task NAME or --function"),
        (("--task", "RoeFlx"), "unknown task 'RoeFlx'; did you mean RoeFlux"),
        (("--task", "MLP", "--args", "(1,)"), "--args and --argnums belong to --function"),
        (("--task", "MLP", "--budget", "soon"), "budget must be a time"),
        (("--task", "MLP", "--seed", "-1"), "seed must be an int that is not negative"),
        (("--task", "MLP", "--timing", "-1"), "timing must not be negative, got -1"),
        (("--task", "MLP", "--out", "/no/such/folder/x.json"), "folder of --out"),
        (("--task", "MLP", "--budgt", "3s"), "Unrecognized options"),
        (("MLP", "--budget", "3s"), "unexpected 'MLP': every value follows"),
        (("--function", "jax.numpy:sin"), "needs --args"),
        (("--function", "jax.numpy:sin", "--args", "f33[2]"), "of types f16, bf16, f32"),
        (("--function", "jax.numpy:sin", "--args", "f32[2"), "shapes such as"),
        (("--function", "jax.numpy:sin", "--args", "f32[9,9999999999]"), "has more than"),
        (("--function", "jax.numpy:sin", "--args", "i32[2]"), "no argument of floating"),
        (("--function", "jax.numpy:sin", "--args", "f32[2]", "--argnums", "1"), "has 1"),
        (("--function", "jax.numpy", "--args", "(1.0,)"), "must be MODULE:NAME"),
        (("--function", "no.module:f", "--args", "(1.0,)"), "No module named"),
        (("--function", "jax.numpy:sinn", "--args", "(1.0,)"), "no attribute 'sinn'"),
        (("--function", "jax.numpy:sin", "--args", "1.0"), "must be a Python tuple"),
        (("--function", "jax.numpy:sin", "--args", "(['a'],)"), "not a number"),
        (("--function", "jax.numpy:sin", "--args", "(1.0, 2.0)"), "cannot be traced"),
    ],
)
def test_wrong_input_takes_one_line(monkeypatch, refused, arguments, message):
    assert message in refused(run, monkeypatch, *arguments)


def test_the_order_is_timed_in_the_end(monkeypatch, capsys):
    def compare(task, order, limit):
        graph = trace_task(task)
        assert graph.cost(order) <= graph.cost(graph.markowitz())
        row = Timing("kernel, found", 0.001, 0.001, 0.001, None, None, ratio=0.5)
        base = Timing("jacfwd", 0.002, 0.002, 0.002, None, None, ratio=1.0)
        return Comparison(1, (base, row), {"jacrev": f"after {limit} s"})

    monkeypatch.setattr("veenv.agents.cli.commands.search.compare", compare)
    arguments = ("--task", "HumanHeartDipole", "--method", "markowitz", "--timing", "2")
    assert run(monkeypatch, *arguments) == 0
    *_, row, missing = capsys.readouterr().out.splitlines()
    assert row.split() == ["kernel,", "found", "1.000", "0.500"]
    assert missing == "jacrev: not timed, after 2.0 s"
