"""`scripts/validate.py`: right orders pass, wrong ones fail, bad input is one line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from veenv.agents.cli.commands.validate import Config, main
from veenv.agents.cli.report import verdict
from veenv.measure import proof as proofs
from veenv.measure.proof import error, prove
from veenv.measure.validation import Count, validate
from veenv.orders.order import Order
from veenv.tasks import Task

ROBERTSON = veenv.tasks.get("Robertson")


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "order.json"
    veenv.best_order("Robertson").save(path)
    return path


def test_a_right_order_passes_on_every_count():
    order = veenv.best_order("Robertson")
    report = validate(order, ROBERTSON, rounds=0, points=2)
    assert report.passed
    assert report.timings == ()
    assert report.counts["multiplications"] == Count(17, 17, 17, 17)
    assert report.counts["executed"] == Count(3, 3, 3, 3)
    assert set(report.proof.errors) == {"jacrev", "jacfwd"}
    assert max(report.proof.errors.values()) < 1e-13


def test_arrays_are_counted_alike(x64):
    def fun(x, y):
        return jnp.sin(x @ y) * y, jnp.exp(x).sum()

    task = task_of(fun, np.full((3, 3), 0.3), np.arange(3.0), argnums=(0, 1))
    graph = veenv.make_graph(fun, (0, 1))(*task.example_args())
    order = Order.from_graph(graph, graph.markowitz())
    report = validate(order, task, rounds=0, points=1)
    assert report.passed
    assert len({*dataclasses.astuple(report.counts["multiplications"])}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", veenv.tasks.list())
def test_every_shipped_order_passes(name):
    for cost in ("multiplications", "executed"):
        report = validate(veenv.best_order(name, cost), veenv.tasks.get(name), rounds=0)
        assert report.passed, report.problems


def test_a_wrong_record_fails(written, capsys):
    record = json.loads(written.read_text())
    record["counts"]["multiplications"] += 1
    record["lower_bounds"] = {}
    written.write_text(json.dumps(record))
    assert main(Config(order=written, rounds=0, points=1)) == 1
    out = capsys.readouterr().out
    assert "multiplications: recorded 18, environment 17, engine 17, emitted 17 do not agree" in out
    assert out.rstrip().endswith("FAIL")


def test_a_wrong_jacobian_fails(monkeypatch):
    true = proofs.jacve

    def wrong(fun, *args, **options):
        def jacobian(*point):
            found = true(fun, *args, **options)(*point)
            right = "count_ops" in options
            return found if right else jax.tree.map(lambda x: x * (1 + 1e-6), found)

        return jacobian

    monkeypatch.setattr(proofs, "jacve", wrong)
    report = validate(veenv.best_order("Robertson"), ROBERTSON, rounds=0, points=1)
    assert not report.passed
    assert report.proof.errors["jacrev"] == pytest.approx(1e-6, rel=1e-3)
    assert "differs from jacrev's by 1.0e-06, more than 1.0e-09" in report.problems[0]


def test_json_holds_the_machine_and_the_timings(written, capsys):
    assert main(Config(order=written, json=True, batch=4, rounds=2, points=1, timing=0)) == 0
    record = json.loads(capsys.readouterr().out)
    assert f"jax {jax.__version__}" in record["machine"]
    (report,) = record["reports"]
    assert report["passed"] is True
    assert report["batch"] == 4
    methods = [t["method"] for t in report["timings"]]
    assert methods == ["order", "jacfwd", "jacrev", "forward", "reverse", "markowitz"]
    for timing in report["timings"]:
        assert 0 < timing["low"] <= timing["median"] <= timing["high"]
        assert timing["flops"] > 0
        assert timing["temporary"] >= 0


def test_a_tasks_shipped_orders_are_found_without_a_file(capsys):
    assert main(Config(task="robertson", rounds=0, points=1)) == 0
    assert "PASS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": Path("absent.json")}, "order file absent.json: no order file"),
        ({"task": "Robertsn"}, "did you mean Robertson"),
        ({"task": "mlp"}, "is for another graph"),
        ({"points": 0}, "points must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"rounds": -1}, "rounds must be at least 0, got -1"),
    ],
)
def test_bad_input_is_one_line(written, refused, changes, message):
    config = dataclasses.replace(Config(order=written, rounds=0, points=1), **changes)
    complaint = refused(main, config)
    assert complaint.startswith("error: ")
    assert message in complaint


def test_errors_are_relative_to_their_block():
    expected = (np.array([1e6, 2e6]), np.array([0.0, 1.0]), np.array([1e-30]))
    found = (np.array([1e6, 2e6 + 2.0]), np.array([0.0, 1.0]), np.array([0.0]))
    assert error(expected, expected) == 0.0
    assert error(found, expected) == pytest.approx(1e-6)
    assert error((np.array([1.0, 1.1]),), (np.array([1.0, 1.0]),)) == pytest.approx(0.1)
    assert error((np.array([np.nan]),), (np.array([1.0]),)) == np.inf
    assert error((np.array([np.nan, np.inf]),), (np.array([np.nan, np.inf]),)) == 0.0
    assert error((np.array([1.0]),), (np.array([np.inf]),)) > 1


def test_a_function_without_forward_mode_is_compared_with_reverse_mode():
    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))

    def fun(x):
        return sine(x) * x

    task = Task("own rule", fun, lambda: (np.array(0.7),), 0, "", "")
    graph = veenv.make_graph(fun)(0.7)
    report = validate(Order.from_graph(graph, graph.reverse()), task, points=2, rounds=1, batch=2)
    assert report.passed
    assert set(report.proof.errors) == {"jacrev"}
    assert report.proof.noise is None
    assert "jacfwd" not in {t.method for t in report.timings}


def task_of(fun, *args, argnums=0):
    return Task("f", fun, lambda: args, argnums, "", "")


def reverse_of(task):
    return veenv.make_graph(task.fun, task.argnums)(*task.example_args()).reverse()


def test_vertices_may_have_other_numbers_in_float64():
    """Indices of 64 bits are converted there, and the conversions are numbered."""
    indices = np.array([2, 0, 1, 0])

    def fun(x):
        return jnp.tanh(jax.ops.segment_sum(jnp.sin(x), jnp.asarray(indices), 3)) ** 2

    task = task_of(fun, np.array([0.3, -0.5, 0.8, 1.1]))
    order = reverse_of(task)
    with jax.enable_x64(True):
        assert order != reverse_of(task)
    assert prove(task, order).passed
    assert prove(task, order[::-1]).passed


def test_points_without_a_derivative_are_passed_by():
    """At the task's own point the derivative is infinite, and half of the others lie outside."""
    task = task_of(lambda x: jnp.sqrt(x - 1.0) * x, np.ones(2))
    proof = prove(task, reverse_of(task), points=4)
    assert proof.passed
    assert (proof.points, proof.missing) == (4, ())
    assert proof.tried > 8
    assert proof.entries == 4
    assert set(proof.errors) == {"jacrev", "jacfwd"}


def test_what_has_no_finite_derivative_anywhere_is_named_and_the_rest_compared():
    def fun(x, y):
        return {"a": jnp.sin(x), "b": jnp.sqrt(0.0 * y)}

    task = task_of(fun, np.array([1.0, 2.0]), np.array([3.0, 4.0]), argnums=(0, 1))
    proof = prove(task, reverse_of(task))
    assert proof.passed
    assert proof.error < 1e-12
    # JAX multiplies 0 by inf in the blocks that only pass by the square root, too.
    assert proof.missing == tuple(
        f"4 of 4 entries of the Jacobian{block}" for block in ("['a'][1]", "['b'][0]", "['b'][1]")
    )
    assert proof.entries == 4
    assert proof.points == 3


def test_nothing_to_compare_is_no_proof():
    task = task_of(lambda x: jnp.sqrt(x * 0.0), np.ones(2))
    proof = prove(task, reverse_of(task), points=1)
    assert not proof.passed
    assert proof.entries == 0
    assert (
        "nothing could be compared: JAX's derivative is not finite at 10 points"
        in proof.problems[0]
    )
    assert "nothing could be compared" in verdict(proof)[0]


def test_an_order_whose_jacobian_alone_is_not_finite_is_wrong(monkeypatch):
    monkeypatch.setattr(proofs, "jacve", lambda *_, **__: lambda *point: jnp.log(-1.0))
    proof = prove(task_of(lambda x: x * x * x, np.array(2.0)), (1,))
    assert proof.error == np.inf
    assert not proof.passed
    assert "WRONG: more than 1e-09" in verdict(proof)[0]


def test_the_report_names_what_it_could_not_compare(capsys, monkeypatch, tmp_path):
    task = task_of(lambda x, y: (jnp.sqrt(0.0 * x), y * y), 1.0, 2.0, argnums=(0, 1))
    graph = veenv.make_graph(task.fun, (0, 1))(1.0, 2.0)
    monkeypatch.setattr("veenv.tasks.get", lambda name: task)
    Order.from_graph(graph, graph.reverse(), "f").save(tmp_path / "order.json")
    assert main(Config(order=tmp_path / "order.json", rounds=0)) == 0
    out = capsys.readouterr().out
    assert "not compared, as JAX gives nothing finite: 1 of 1 entries of the Jacobian[0][0]" in out
    assert "3 points (of 30 tried)" in out
    assert "inf" not in out.replace("finite", "")


def test_results_are_counted_again(tmp_path, capsys):
    path = tmp_path / "found.json"
    found = veenv.evaluate("markowitz", ["Robertson", "KerrMetric"])
    found.save(path)
    assert main(Config(results=str(path))) == 0
    said = capsys.readouterr().out
    assert "Robertson" in said
    assert "all orders are counted again" in said
    first, second = found.rows
    lower = dataclasses.replace(first, classical=99)
    dataclasses.replace(found, rows=(lower, second)).save(path)
    assert type(found).load(path).recounted().rows == found.rows
    wrong = {
        "its orders cost": {"costs": (first.costs[0] - 1,)},
        "traces another graph": {"fingerprint": second.fingerprint},
        "unknown task": {"task": "Robertsn"},
        "order misses": {"orders": (first.orders[0][1:],)},
    }
    for message, change in wrong.items():
        rows = (second, dataclasses.replace(first, **change))
        dataclasses.replace(found, rows=rows).save(path)
        assert main(Config(results=str(path))) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(ValueError, match="'Robertson' is no function of real"):
        dataclasses.replace(found, tasks="real").recounted()


def test_the_text_has_a_row_for_each_method_and_a_verdict(written, capsys):
    assert main(Config(order=written, batch=4, rounds=1, points=1, timing=0)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Robertson (")
    assert [line.split()[0] for line in lines[-7:]] == [
        *("order", "jacfwd", "jacrev", "forward", "reverse", "markowitz"),
        "PASS",
    ]
