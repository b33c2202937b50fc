"""The leaderboard lists what its order files say, and nothing that is not proved."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from scripts.leaderboard import Config, main, read_entries, shipped_entries, table
from veenv import Order, tasks
from veenv.tasks.user import trace_task

ROOT = Path(__file__).parents[2]
WORDS = '[mine]\nby = "A"\nseconds = 3\nmachine = "B"\n'


@pytest.fixture
def folder(tmp_path):
    graph = trace_task(tasks.get("Robertson"))
    order = Order.from_graph(graph, graph.reverse(), "Robertson", "by hand")
    order.save(tmp_path / "mine.json")
    (tmp_path / "entries.toml").write_text(WORDS)
    return tmp_path


def test_the_page_has_the_orders_of_the_files():
    entries = [*shipped_entries(), *read_entries(ROOT / "docs" / "leaderboard", points=0)]
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    assert table(entries) in page


def test_an_order_is_proved_and_listed(folder):
    page = folder / "page.md"
    page.write_text("<!-- leaderboard: begin -->\n\n<!-- leaderboard: end -->\n")
    assert main(Config(folder, page, points=1)) == 0
    assert "| Robertson | 18 | by hand | A | 3 | B |" in page.read_text()


def test_wrong_files_are_refused(folder, capsys):
    order = Order.load(folder / "mine.json")
    wrong = dataclasses.replace(order, counts={**order.counts, "multiplications": 5})
    wrong.save(folder / "mine.json")
    assert main(Config(folder, folder / "page.md", points=1)) in (1, 2)
    (folder / "entries.toml").write_text("")
    assert main(Config(folder, folder / "page.md", points=0)) == 2
    assert "entries.toml names [], the folder has ['mine']" in capsys.readouterr().err
