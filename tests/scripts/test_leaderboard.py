"""The leaderboard lists what its order files say, and nothing that is not proved."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path

import jax
import pytest

import veenv
from scripts.leaderboard import (
    Config,
    by_task,
    counted,
    learner_table,
    main,
    paired_table,
    policy_table,
    read_entries,
    read_learners,
    read_policies,
    shipped_entries,
    table,
)
from veenv import Order, tasks
from veenv.env import random_action
from veenv.orders.order import fingerprint
from veenv.tasks.user import trace_task

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    f"<!-- {name}: begin -->\n\n<!-- {name}: end -->\n"
    for name in ("policies", "learners", "pairs", "hard", "leaderboard")
)
WORDS = '[mine]\nby = "A"\nseconds = 3\nmachine = "B"\n'


@pytest.fixture
def folder(tmp_path):
    graph = trace_task(tasks.get("Robertson"))
    order = Order.from_graph(graph, graph.reverse(), "Robertson", "by hand")
    order.save(tmp_path / "mine.json")
    (tmp_path / "entries.toml").write_text(WORDS)
    return tmp_path


@pytest.mark.whole
def test_the_page_has_the_orders_of_the_files():
    entries = [*shipped_entries(), *read_entries(ROOT / "docs" / "leaderboard", points=0)]
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    assert table(entries) in page
    policies = read_policies(ROOT / "docs" / "leaderboard" / "policies")
    learners = read_learners(ROOT / "docs" / "leaderboard" / "learners")
    assert any(one.rows for one in policies)
    assert any(one.rows for one in learners)
    for made in (policy_table(policies), learner_table(learners), paired_table(learners)):
        for line in made.splitlines():  # another JAX counts fewer of them
            assert line in page or "| not counted |" in line
    hard = [one for one in learners if one.tasks == "hard"]
    if all(one.rows for one in hard):
        assert by_task(hard) in page


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


TASK = "HumanHeartDipole"  # Markowitz' rule 194, reverse 172, known 148


@pytest.fixture(scope="module")
def at_random():
    def play(key, seen, mask):
        return random_action(key, mask)

    return veenv.evaluate(play, TASK, samples=4, seed=(3, 4), name="random play")


@pytest.fixture
def handed_in(folder):
    """Hands in evaluations next to that of Markowitz' rule, and makes the table of policies."""

    def hand_in(changed):
        (folder / "policies").mkdir()
        veenv.evaluate("markowitz", TASK).save(folder / "policies" / "markowitz.json")
        changed.save(folder / "policies" / "mine.json")
        (folder / "page.md").write_text(PAGE)
        code = main(Config(folder, folder / "page.md", points=0))
        lines = (folder / "page.md").read_text().splitlines()
        names = "| markowitz |", "| random play |"
        found = [line for line in lines if any(name in line for name in names)]
        return code, [line for line in found if line.startswith(f"| {TASK} |")]

    return hand_in


def row_of(one, **changes):
    return dataclasses.replace(one, rows=(dataclasses.replace(one.rows[0], **changes),))


def test_evaluations_are_counted_again(handed_in, at_random):
    code, [first, second] = handed_in(at_random)
    assert code == 0
    classical, found = at_random.rows[0].classical, at_random.rows[0].costs
    middle = sum(cost / classical for cost in found) / 2
    assert "markowitz" in first
    assert f"| {middle:.3f} (" in second
    assert "2 seeds" in second


FORGED = {
    "one seed's cost": lambda one: row_of(one, costs=(one.rows[0].costs[0], 1)),
    "an order for two seeds": lambda one: row_of(one, orders=one.rows[0].orders[:1] * 2),
    "no seeds": lambda one: dataclasses.replace(row_of(one, costs=(), orders=()), seeds=()),
    "a seed twice": lambda one: dataclasses.replace(one, seeds=(3, 3)),
    "half an order": lambda one: row_of(one, orders=tuple(o[:9] for o in one.rows[0].orders)),
    "no such vertex": lambda one: row_of(one, orders=((999,), (999,))),
    "another graph": lambda one: row_of(one, fingerprint="0" * 64),
    "no row": lambda one: dataclasses.replace(one, rows=()),
    "an unknown task": lambda one: dataclasses.replace(one, tasks="TravellingSalesman"),
    "other costs": lambda one: dataclasses.replace(one, cost="operations"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_files_are_refused(kind, handed_in, at_random, capsys):
    code, lines = handed_in(FORGED[kind](at_random))
    assert code in (1, 2)
    assert lines == []
    assert capsys.readouterr().err.count("\n") == 1


BELIEVED = {
    "more expensive classical orders": {"classical": 10**6},
    "a more expensive reference": {"reference": 10**6},
    "no reference": {"reference": None},
    "a low mean": {"mean": 1.0},
}


@pytest.mark.parametrize("kind", BELIEVED)
def test_what_the_package_knows_is_not_read_from_files(kind, handed_in, at_random):
    code, lines = handed_in(row_of(at_random, **BELIEVED[kind]))
    assert code == 0
    assert lines[1:] == policy_table(counted([at_random])).splitlines()[2:]


UNCOUNTED = {
    "another JAX": {"jax": "0.9.9", "fingerprint": "0" * 64, "costs": (1, 1)},
    "another JAX, no orders": {"jax": "0.9.9", "orders": ((), ()), "costs": (1, 1)},
    "no orders": {"orders": ((), ()), "costs": (1, 1)},
}


@pytest.mark.parametrize("kind", UNCOUNTED)
def test_what_cannot_be_counted_has_no_figures_and_is_last(kind, handed_in, at_random):
    changes = dict(UNCOUNTED[kind])
    version = changes.pop("jax", at_random.jax)
    code, lines = handed_in(dataclasses.replace(row_of(at_random, **changes), jax=version))
    assert code == 0
    assert lines[1:] == [f"| {TASK} | not counted | random play |  |  |  |"]


@pytest.mark.parametrize("forged", ["cost", "classical", "order", "jax"])
def test_rows_of_learners_are_counted_again(forged, folder, capsys):
    graph = trace_task(tasks.get(TASK))
    orders = {0: graph.forward(), 1: graph.reverse()}
    run = {"task": TASK, "mean": 1.0, "steps": 1, "seconds": 1.0}
    row = {
        "learner": "ppo", "on": TASK, "budget": "1m", "jax": jax.__version__,
        "tasks": [{"task": TASK, "fingerprint": fingerprint(graph), "classical": 172,
                   "reference": 148}],
        "runs": [run | {"seed": seed, "cost": graph.cost(order), "order": list(order)}
                 for seed, order in orders.items()],
    }  # fmt: skip
    (folder / "learners").mkdir()
    (folder / "page.md").write_text(PAGE)

    def shown():
        (folder / "learners" / "mine.json").write_text(json.dumps(row))
        code = main(Config(folder, folder / "page.md", points=0))
        return code, re.findall(rf"\| {TASK} \| nothing \| ppo.*", (folder / "page.md").read_text())

    code, honest = shown()
    assert code == 0
    assert honest[0].startswith(f"| {TASK} | nothing | ppo | 206.0 |")
    if forged == "cost":
        row["runs"][0]["cost"] = 148
        assert shown() == (1, honest)
        assert "ppo on HumanHeartDipole: its orders cost" in capsys.readouterr().err
    elif forged == "classical":
        row["tasks"][0] |= {"classical": 900, "reference": 880}
        assert shown() == (0, honest)
    elif forged == "order":
        del row["runs"][0]["order"]
        code, [line] = shown()
        assert line.startswith(f"| {TASK} | nothing | ppo, best of 2, others not counted | 172.0 |")
    else:
        row["jax"] = "0.9.9"
        row["tasks"][0]["fingerprint"] = "0" * 64
        assert shown()[1][0].startswith(f"| {TASK} | nothing | ppo | not counted |")


def test_wrong_files_are_refused(folder, capsys):
    order = Order.load(folder / "mine.json")
    wrong = dataclasses.replace(order, counts={**order.counts, "multiplications": 5})
    wrong.save(folder / "mine.json")
    assert main(Config(folder, folder / "page.md", points=1)) in (1, 2)
    (folder / "entries.toml").write_text("")
    assert main(Config(folder, folder / "page.md", points=0)) == 2
    assert "entries.toml names [], the folder has ['mine']" in capsys.readouterr().err
