"""A function of one's own, in an empty folder: trained, gone on with, proved, played."""

from __future__ import annotations

import html
import json
import sys
import textwrap

import jax
import numpy as np
import pytest

from veenv import Order
from veenv.agents.cli.commands import evaluate, report, search, train, validate
from veenv.agents.nn.networks import GraphNetwork
from veenv.agents.nn.weights import save_weights
from veenv.measure.proof import prove
from veenv.tasks.user import from_function, from_path, read_point, trace_task

ROBOT = """
import jax.numpy as jnp

def robot(angles, lengths, steps):
    x = jnp.cumsum(jnp.cos(jnp.cumsum(angles)) * lengths)[-1]
    y = jnp.sum(jnp.sin(jnp.cumsum(angles)) * lengths)
    return jnp.stack([x * y, x / y]) * jnp.where(steps > 1, x, y)

def robot_args():
    return jnp.array([0.3, 0.2, 0.1]), jnp.ones(3), 2
"""
PATH = "my_robot:robot"
SMALL = ("--num-envs", "2", "--hidden", "4", "--checkpoint-updates", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_robot.py").write_text(textwrap.dedent(ROBOT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("my_robot", None)


def run(monkeypatch, script, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["script.py", *arguments])
    return script.main()


@pytest.mark.slow
def test_train_resume_validate_evaluate_and_search(folder, monkeypatch, capsys):
    assert run(monkeypatch, train, "--function", PATH, "--steps", "20", *SMALL) == 0
    (made,) = (folder / "runs" / "my_robot.robot").iterdir()
    assert "(right)" in capsys.readouterr().out
    settings = (made / "config.toml").read_text()
    assert 'function = "my_robot:robot"' in settings
    before = len((made / "metrics.jsonl").read_text().splitlines())

    again = ("--resume", str(made), "--steps", "40", "--function", PATH, "--report")
    assert run(monkeypatch, train, *again) == 0
    assert f"from_path('{PATH}')" in html.unescape((made / "report.html").read_text())
    assert "going on in" in capsys.readouterr().out
    assert len((made / "metrics.jsonl").read_text().splitlines()) > before

    order = Order.load(made / "order.json")
    task = from_path(PATH)
    assert order.name == task.name == PATH
    assert trace_task(task).cost(order.ids) == order.counts["multiplications"]
    proved = ("--order", str(made / "order.json"), "--points", "1", "--rounds", "0")
    assert run(monkeypatch, validate, "--function", PATH, *proved) == 0
    assert "PASS" in capsys.readouterr().out

    played = ("--run", str(made), "--samples", "2", "--anneal", "0", "--function", PATH)
    run(monkeypatch, evaluate, *played)
    assert PATH in capsys.readouterr().out
    assert run(monkeypatch, search, "--function", PATH, "--method", "reverse") == 0


def test_code_that_a_file_names_is_not_run(folder, monkeypatch, refused):
    """Of a run folder and of a file of options: whatever reads them, nothing is imported."""
    (folder / "evil.py").write_text("raise SystemExit('imported')")
    made = folder / "run"
    made.mkdir()
    (made / "config.toml").write_text('function = "evil:f"\nargs = "(1.0,)"\n')
    settings = {"own": {"function": "evil:f", "args": "(1.0,)"}, "graphs": {"evil:f": {}}}
    (made / "config.json").write_text(json.dumps(settings))
    save_weights(made / "weights.eqx", GraphNetwork(hidden=4, key=jax.random.key(0)))
    graph = trace_task(from_path(PATH))
    Order.from_graph(graph, graph.reverse(), "evil:f").save(made / "order.json")
    for script, *options in (
        (train, "--resume", "run"), (train, "--resume=run", "--steps", "5"),
        (train, "--config", "run/config.toml"), (evaluate, "--run", "run"), (report, "run"),
        (report, "run/order.json"), (validate, "--order", "run/order.json"),
    ):  # fmt: skip
        complaint = refused(run, monkeypatch, script, *options)
        assert "evil:f" in complaint
        if script is not validate and options != ["run/order.json"]:
            assert "code runs only if the command line names it: add --function" in complaint
    # Named, so imported: another one, at the arguments of the file.
    options = "--config", "run/config.toml", "--function", "math:hypot"
    assert "math:hypot cannot be traced" in refused(run, monkeypatch, train, *options)


def test_an_order_of_a_function_is_not_proved_without_it(folder, monkeypatch, capsys):
    graph = trace_task(from_path(PATH))
    Order.from_graph(graph, graph.reverse(), PATH).save(folder / "order.json")
    assert run(monkeypatch, validate, "--order", "order.json") == 2
    assert "unknown task 'my_robot:robot'" in capsys.readouterr().err
    assert run(monkeypatch, validate, "--function", PATH) == 2
    assert "--function goes with --order FILE" in capsys.readouterr().err


def test_shapes_are_a_point_at_which_an_order_can_be_proved(folder):
    task = from_path(PATH, "f32[4],f32[4],i32[]")
    again = task.example_args()
    assert [np.shape(x) for x in again] == [(4,), (4,), ()]
    assert task.argnums == (0, 1)
    assert from_path(PATH, "f32[4],f32[4],i32[]", "1").argnums == (1,)
    assert prove(task, trace_task(task).reverse(), points=1).passed
    again[0][0] = np.nan  # a point of one's own each time
    np.testing.assert_array_equal(task.example_args()[0], read_point("f32[4]")[0])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "importing my_robot fails: ZeroDivisionError"),
        ("robot = abs\ndef robot_args(): return 1.0", "must be a tuple of arguments, got float"),
        ("robot = abs\ndef robot_args(): return {}['a']", "my_robot:robot_args\\(\\) fails: KeyE"),
        ("robot = abs\ndef robot_args(): return 'a',", "'a' is not a number"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(folder, source, message):
    (folder / "my_robot.py").write_text(source)
    with pytest.raises(ValueError, match=message):
        from_path(PATH)


def test_tasks_have_functions_of_their_own():
    with pytest.raises(ValueError, match="cannot be traced at arguments of shapes"):
        trace_task(from_function(lambda x, y: x, (1.0,)))
