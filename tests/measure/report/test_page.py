"""The page of a report holds the order's own numbers, runs alone, and its code is right."""

from __future__ import annotations

import dataclasses
import html
import json
import re

import jax
import jax.numpy as jnp
import pytest

import veenv
from veenv.graph.playback import play
from veenv.measure.proof import prove
from veenv.measure.report import Subject, page, page_path, read_subjects, write_report
from veenv.measure.timing import Timing, times
from veenv.orders.shipped import best_for
from veenv.tasks import Task


def subject_of(name: str, **options) -> Subject:
    graph = veenv.make(name).graph
    return Subject(veenv.tasks.get(name), graph, best_for(graph), **options)


def data_of(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def robertson() -> tuple[Subject, str]:
    subject = subject_of("Robertson")
    return subject, page(subject, prove(subject.task, subject.order.ids, 1))


@pytest.mark.parametrize("name", ["RoeFlux_1d", "LSTM", "RandomArray_40"])
@pytest.mark.parametrize("cost", ["multiplications", "operations"])
def test_a_played_order_costs_what_it_costs_and_leaves_the_jacobian(name, cost):
    graph = subject_of(name).graph
    for order in (graph.forward(), graph.markowitz()):
        steps = play(graph, order, cost)
        assert [s.cost for s in steps] == list(graph.costs(order, cost))
        edges = set(graph.edges)
        for step in steps:
            assert set(step.removed) <= edges
            assert not set(step.added) & edges
            edges = (edges - set(step.removed)) | set(step.added)
        assert all(u < graph.num_inputs and v in graph.output_nodes for u, v in edges)


def test_the_page_holds_every_order_with_its_costs(robertson):
    subject, text = robertson
    data = data_of(text)
    assert [o["name"] for o in data["orders"]] == ["this order", "forward", "reverse", "Markowitz"]
    for order, ids in zip(data["orders"], subject.ids().values(), strict=True):
        assert tuple(order["ids"]) == ids
        assert tuple(order["costs"]) == subject.graph.costs(ids)
    assert len(data["graph"]["edges"]) == len(subject.graph.edges)


def test_the_page_is_alone(robertson):
    _, text = robertson
    assert "{{" not in text
    loaded = re.findall(r"(?:src|href)=\"([^\"]*)\"|url\(([^)]*)\)|@import|fetch\(", text)
    assert all(a.startswith(("#", "data:")) for a, _ in loaded)
    assert "default-src 'none'" in text


def test_the_code_of_the_page_runs_and_is_right(robertson, x64):
    subject, text = robertson
    program = html.unescape(re.search(r'id="program"[^>]*>(.*?)</pre>', text, re.DOTALL)[1])
    names: dict = {}
    exec(program, names)
    task = subject.task
    expected = jax.jacrev(task.fun, task.argnums)(*task.example_args())
    assert veenv.tree_allclose(names["blocks"], expected)


def test_text_of_a_user_is_never_markup():
    nasty = "</script><b>'\""
    task = Task(nasty, lambda x: jnp.sin(jnp.exp(x)) * x, lambda: (0.5,), 0, nasty, nasty)
    graph = veenv.make_graph(task.fun)(0.5)
    order = veenv.Order.from_graph(graph, [2, 1], nasty, found_by=nasty)
    text = page(Subject(task, graph, order), prove(task, order.ids, 1))
    assert "</script><b>" not in text
    assert data_of(text)["task"] == nasty


@pytest.mark.parametrize(
    ("counted", "bounds"),
    [
        ({}, {"multiplications": 17}),  # the record's own count, and a bound equal to it
        ({}, {"multiplications": 18}),
        ({"multiplications": 18}, {}),
        ({"multiplications": 17}, {"multiplications": 17}),
        ({"multiplications": 1}, {"multiplications": 1}),
    ],
)
def test_a_proof_is_of_the_graph_and_not_of_the_file(counted, bounds, robertson):
    """Robertson's best order costs 17, which is proved; its reverse order costs 18."""
    subject, honest = robertson
    assert "proved optimal" in honest
    reverse = veenv.Order.from_graph(subject.graph, subject.graph.reverse(), "Robertson")
    forged = dataclasses.replace(reverse, counts=reverse.counts | counted, lower_bounds=bounds)
    proof = prove(subject.task, forged.ids, 1)
    text = page(dataclasses.replace(subject, order=forged), proof)
    assert "proved optimal" not in text
    assert "no order takes less than 17" in text


@pytest.mark.parametrize("cost", ["multiplications", "executed", "operations"])
def test_nothing_is_said_of_a_graph_without_a_proof(cost):
    task = Task("f", lambda x: jnp.sin(jnp.exp(x)) * x, lambda: (0.5,), 0, "", "")
    graph = veenv.make_graph(task.fun)(0.5)
    order = veenv.Order.from_graph(graph, [2, 1], "f")
    bold = dataclasses.replace(order, lower_bounds=dict(order.counts))
    text = page(Subject(task, graph, bold, cost), prove(task, order.ids, 1))
    assert "optimal" not in text.replace("cheapest", "")
    assert "no order takes less" not in text


def test_every_way_is_timed_as_xla_and_as_one_kernel():
    task = Task("cube", lambda x: x * x * x, lambda: (1.5,), 0, "", "")
    bars, missing = times(task, (1,), batch=2, rounds=3)
    assert {bar.method for bar in bars} == {
        way + how for way in ("this order", "jacfwd", "jacrev") for how in ("", ", one kernel")
    }
    assert all(0 < bar.low <= bar.median <= bar.high for bar in bars)
    assert not missing


@pytest.mark.parametrize(
    ("theirs", "said"), [(0.9, "jacrev as one kernel takes 0.45"), (1.3, None)]
)
def test_the_headline_says_when_a_kernel_of_jax_would_do(theirs, said, robertson):
    """XLA's jacrev takes 2 s, the order's kernel 1 s, and jacrev's so many."""
    seconds = {"jacrev": 2.0, "jacfwd": 3.0, "this order": 1.5, "this order, one kernel": 1.0}
    seconds |= {"jacrev, one kernel": theirs, "jacfwd, one kernel": 2.0}
    bars = [Timing(name, t, t - 0.1, t + 0.1, None, None, None) for name, t in seconds.items()]
    subject, _ = robertson
    text = page(subject, prove(subject.task, subject.order.ids, 1), bars)
    cards = text.split('aria-label="Results">')[1].partition("</ul>")[0]
    assert "one kernel against XLA" in cards
    assert said in cards if said else "as well" not in cards


def write_run(folder, names) -> None:
    """A run folder as training leaves it."""
    orders = {name: best_for(subject_of(name).graph) for name in names}
    for name, order in orders.items():
        stem = "order" if len(names) == 1 else f"order-{name}"
        order.save(folder / f"{stem}.json")
        order.save(folder / f"{stem.replace('order', 'order-polished', 1)}.json")
    settings = {"agent": "ppo", "cost": "executed", "ppo": {"seed": 3}, "function": None}
    (folder / "config.json").write_text(json.dumps(settings))
    row = {"update": 1, "steps": 10, "seconds": 2.0}
    row |= {key: dict.fromkeys(names, 9) for key in ("mean_cost", "min_cost", "best_cost")}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + '\n{"steps": 2')


def test_a_run_folder_is_read(tmp_path):
    write_run(tmp_path, ["Robertson", "KerrMetric"])
    subjects = read_subjects(tmp_path)
    assert {s.task.name for s in subjects} == {"Robertson", "KerrMetric"}
    for subject in subjects:
        assert subject.cost == "executed"
        assert list(subject.others) == ["polished"]
        assert [row["steps"] for row in subject.rows] == [10]
        assert subject.facts["agent"] == "ppo, seed 3"


def test_a_folder_without_orders_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"no order\.json"):
        read_subjects(tmp_path)
    (tmp_path / "order.json").write_text("{}")
    with pytest.raises(ValueError, match=r"order\.json"):
        read_subjects(tmp_path)


def test_an_order_of_another_graph_is_refused(tmp_path):
    subject = subject_of("Robertson")
    other = dataclasses.replace(subject, task=veenv.tasks.get("BlackScholes"),
                                graph=subject_of("BlackScholes").graph)  # fmt: skip
    with pytest.raises(ValueError, match="another graph"):
        write_report(tmp_path / "r.html", other, rounds=0)
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        write_report(tmp_path / "r.html", subject, batch=0)
    assert not list(tmp_path.iterdir())


def test_where_a_page_goes(tmp_path):
    assert page_path(tmp_path, "f", False) == tmp_path / "report.html"
    assert page_path(tmp_path, "f", True) == tmp_path / "report-f.html"
    assert page_path(tmp_path / "order.json", "f", False) == tmp_path / "order.html"
