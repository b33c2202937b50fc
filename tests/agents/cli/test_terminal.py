"""Text of files is text on a terminal: no colours, no lines that overwrite others."""

from __future__ import annotations

import contextlib
import sys
import tomllib

import pytest

import veenv
from veenv.agents.cli.commands import report, train, validate
from veenv.agents.config.args import printable
from veenv.env.factory import task_graph

NASTY = "\x1b[31mred\x07\x9b2J a\rb \u202eback\x00"
"""Colour, bell, clearing, a line that overwrites another, a text that runs backwards."""


def is_text(said: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in said)


def test_lines_stay_and_controls_are_shown():
    assert printable("Größe … 3\n×") == "Größe … 3\n×"
    assert printable(NASTY) == r"\x1b[31mred\x07\x9b2J a\rb \u202eback\x00"


@pytest.fixture
def hostile(tmp_path):
    """An order file of Robertson whose texts are nasty."""
    graph = task_graph("Robertson")
    path = tmp_path / f"order-{NASTY[:8]}.json"
    veenv.Order.from_graph(graph, graph.reverse(), NASTY, NASTY).save(path)
    return path


@pytest.mark.parametrize(
    ("main", "options"),
    [
        (validate.main, ["--task", "Robertson", "--rounds", "0", "--points", "1", "--order"]),
        (validate.main, ["--rounds", "0", "--order"]),  # no such task
        (report.main, []),
    ],
)
def test_names_in_order_files(main, options, hostile, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["command", *options, str(hostile)])
    with contextlib.suppress(SystemExit):
        main()
    said = capsys.readouterr()
    assert "[31mred" in said.out + said.err
    assert is_text(said.out)
    assert is_text(said.err)


@pytest.mark.parametrize("name", ["task", "cost", "init_from", "function", "network", NASTY])
def test_names_in_run_folders(name, tmp_path, monkeypatch, refused):
    text = printable(NASTY).replace("\\x", "\\u00")
    key = f'"{text}"' if name == NASTY else name
    lines = [f'{key} = "{text}"'] + ['task = "Robertson"'] * (name != "task")
    (tmp_path / "config.toml").write_text("\n".join(lines))
    assert NASTY in (loads := tomllib.loads("\n".join(lines))) or NASTY in loads.values()
    monkeypatch.setattr(sys, "argv", ["train", "--resume", str(tmp_path)])
    said = refused(train.main)
    assert said.startswith("error: ")
    assert is_text(said)
