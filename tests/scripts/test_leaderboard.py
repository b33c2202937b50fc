"""The leaderboard lists what its order files say, and nothing that is not proved."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path

import pytest

import veenv
from scripts.leaderboard import (
    Config,
    by_task,
    learner_table,
    main,
    policy_table,
    read_entries,
    read_learners,
    read_policies,
    shipped_entries,
    table,
)
from veenv import Order, tasks
from veenv.tasks.user import trace_task

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    f"<!-- {name}: begin -->\n\n<!-- {name}: end -->\n"
    for name in ("policies", "learners", "hard", "leaderboard")
)
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
    assert policy_table(read_policies(ROOT / "docs" / "leaderboard" / "policies")) in page
    learners = read_learners(ROOT / "docs" / "leaderboard" / "learners")
    assert learner_table(learners) in page
    assert by_task([one for one in learners if one.tasks == "hard"]) in page


def test_an_order_is_proved_and_listed(folder):
    page = folder / "page.md"
    page.write_text(PAGE)
    assert main(Config(folder, page, points=1)) == 0
    assert "| Robertson | 18 | by hand | A | 3 | B |" in page.read_text()


def test_what_others_write_is_text(folder):
    """Not a cell, a line, an end of the table, a tag, a link or emphasis."""
    hostile = (
        "a|b\\|c\n| d |\r<!-- leaderboard: end --><script>x</script> [l](javascript:x) `*_e_*` &lt;"
    )
    order = dataclasses.replace(Order.load(folder / "mine.json"), found_by=hostile)
    order.save(folder / "mine.json")
    named = f"[mine]\nby = {json.dumps(hostile)}\nseconds = 3\nmachine = {json.dumps(hostile)}\n"
    (folder / "entries.toml").write_text(named)
    page = folder / "page.md"
    page.write_text(PAGE + "after\n")
    for _ in range(2):  # the end of the table is where it was
        assert main(Config(folder, page, points=0)) == 0
        text = page.read_text()
        assert text.endswith("|\n<!-- leaderboard: end -->\nafter\n")
        [line] = [line for line in text.splitlines() if "script" in line]
        assert line.count("|") == 7
        cells = [html.unescape(cell.strip()) for cell in line.split("|")[1:-1]]
        shown = hostile.replace("\n", " ").replace("\r", " ")
        assert cells == ["Robertson", "18", shown, shown, "3", shown]
        assert not set("<>[]`*\\") & set(line)


@pytest.mark.parametrize(
    "words",
    ["mine = 3", "[mine]", WORDS.replace("3", "'3'"), WORDS.replace("3", "inf"), "[mine", b"\xff"],
)
def test_words_of_another_kind_are_refused(words, folder, capsys):
    (folder / "entries.toml").write_bytes(words if isinstance(words, bytes) else words.encode())
    assert main(Config(folder, folder / "page.md", points=0)) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_evaluations_are_counted_again(folder, capsys):
    found = veenv.evaluate("markowitz", "real")
    (folder / "policies").mkdir()
    found.save(folder / "policies" / "mine.json")
    (folder / "page.md").write_text(PAGE)
    assert main(Config(folder, folder / "page.md", points=0)) == 0
    assert re.search(r"\| real \| 1\.[^|]* \| markowitz \|", (folder / "page.md").read_text())
    better = dataclasses.replace(found.rows[0], costs=(found.rows[0].costs[0] - 1,))
    wrong = dataclasses.replace(found, rows=(better, *found.rows[1:]))
    wrong.save(folder / "policies" / "mine.json")
    assert main(Config(folder, folder / "page.md", points=0)) == 1
    assert "markowitz on RoeFlux_1d: its order costs more" in capsys.readouterr().err


def test_wrong_files_are_refused(folder, capsys):
    order = Order.load(folder / "mine.json")
    wrong = dataclasses.replace(order, counts={**order.counts, "multiplications": 5})
    wrong.save(folder / "mine.json")
    assert main(Config(folder, folder / "page.md", points=1)) in (1, 2)
    (folder / "entries.toml").write_text("")
    assert main(Config(folder, folder / "page.md", points=0)) == 2
    assert "entries.toml names [], the folder has ['mine']" in capsys.readouterr().err
