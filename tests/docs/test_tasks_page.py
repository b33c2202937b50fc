"""The page with a screen for each task says what is shipped, and what is traced."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

import veenv
from scripts.docs import pages, pictures
from tests.sampling import spared
from veenv.orders.shipped import shipped_orders

RECORDS = json.loads(pages.RECORDS.read_text(encoding="utf-8"))
SMALL = "Robertson", "LIF", "KerrMetric"


def test_the_records_are_of_all_tasks():
    assert tuple(RECORDS) == veenv.tasks.list()


def test_best_counts_are_those_of_shipped_orders():
    shipped = defaultdict(list)
    for order in shipped_orders():
        if not order.jax_version.startswith("0.12"):  # the pages are of the oldest
            shipped[order.name].append(order)
    for name, found in RECORDS.items():
        counts = [order.counts["multiplications"] for order in shipped[name]]
        assert found["best"]["multiplications"] == min(counts), name
        assert found["vertices"] == len(shipped[name][0].ids), name
        assert found["edges"] == shipped[name][0].num_edges, name


@pytest.mark.parametrize(
    "name", spared([name for name in RECORDS if not name.endswith("_Jacobian")], *SMALL)
)
def test_records_and_pictures_are_of_the_graph(name):
    """But of the two Jacobians, which newer versions trace differently."""
    found = json.loads(json.dumps(pages.record(veenv.tasks.get(name))))
    assert found == RECORDS[name]
    drawn = (pictures.FOLDER / "tasks" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.graph_picture(veenv.make(name).graph)
    section = pages.screen(veenv.tasks.get(name), found)
    assert len(section.splitlines()) < 30  # a screen


@pytest.mark.parametrize(
    ("given", "said"),
    [([[]], "1 number"), ([[], [3], [], [3]], "2 numbers, 2 × [3]"), ([[2, 4]], "[2, 4]")],
)
def test_shapes_are_said_briefly(given, said):
    assert pages.shapes(given) == said
