"""`scripts/data/refresh_references.py`: goes on where it was, and takes cheaper orders alone."""

from __future__ import annotations

import dataclasses
import json

import pytest

from scripts.data.refresh_references import Config, main
from veenv.env.factory import task_graph
from veenv.orders.order import Order, fingerprint

TASKS = "HumanHeartDipole", "VanDerPol_RK4"


@pytest.fixture
def config(tmp_path):
    page, file = tmp_path / "page.md", tmp_path / "references.json"
    page.write_text("<!-- audit: begin -->\n\n<!-- audit: end -->\n")
    file.write_text('{"known": {}, "left_out": {}, "sets": {}}')
    return Config(("named",), TASKS, budget="40", proof="1ms", board=tmp_path, file=file, docs=page)


def read(config):
    document = json.loads(config.file.read_text(encoding="utf-8"))
    return document, {one["task"]: one for one in document["known"].values()}


def test_a_cheaper_order_becomes_the_reference_and_no_other(config, tmp_path, capsys):
    main(config)
    graph = task_graph("VanDerPol_RK4")
    document, _ = read(config)
    dear = dict(document["known"][fingerprint(graph)], order=[*graph.reverse()], cost=126)
    document["known"][fingerprint(graph)] = dear
    config.file.write_text(json.dumps(document))
    empty = dataclasses.replace(config, board=tmp_path / "nothing")
    path, best = tmp_path / "found.json", graph.markowitz()
    capsys.readouterr()
    for ids, cost in ((graph.forward(), 126), (best, 126), ([*best[::-1]], 126)):
        order = Order.from_graph(graph, ids, "mine", "by hand")
        order.save(path)
        main(dataclasses.replace(empty, orders=(path,)))
        one = read(config)[1]["VanDerPol_RK4"]
        assert one["cost"] == graph.cost(one["order"]) <= min(cost, graph.cost(ids))
    assert "VanDerPol_RK4: 126, was 126" in capsys.readouterr().out
    document, known = read(config)
    heart, solution = task_graph("HumanHeartDipole"), known["HumanHeartDipole"]["order"]
    document["known"][fingerprint(heart)] |= {"order": [*heart.reverse()], "cost": 172}
    document["sets"] = {"named": ["HumanHeartDipole", "VanDerPol_RK4"], "solved": []}
    config.file.write_text(json.dumps(document))
    Order.from_graph(heart, solution, "mine").save(path)
    main(dataclasses.replace(empty, orders=(path,)))
    assert read(config)[0]["sets"] == {"named": ["VanDerPol_RK4"], "solved": ["HumanHeartDipole"]}
    Order.from_graph(task_graph("Robertson"), task_graph("Robertson").reverse(), "other").save(path)
    with pytest.raises(ValueError, match="order 'other' is for no function of a test set"):
        main(dataclasses.replace(empty, orders=(path,)))
