"""A benchmark writes what it prints as JSON and in Markdown."""

from __future__ import annotations

import json
import runpy
import sys

import pytest

from scripts.benchmarks.tables import Table, recorded
from tests.paths import ROOT


def filled():
    table = Table("task", "method", "steps/s", key=2)
    yield table
    table.add("one", "a", "**1,200.5** (1 … 2)")
    table.add("two", "b", None)
    yield (other := Table("other"))
    other.add(3)


def test_tables_are_written(tmp_path, capsys):
    file = tmp_path / "new" / "name.json"
    recorded("name", filled(), file, "python scripts/benchmark.py name --quick", whole=True)
    printed = capsys.readouterr().out
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["command"] == "python scripts/benchmark.py name --quick"
    assert "jax" in document["machine"]
    assert document["machine"] in printed
    assert document["tables"] == [
        {
            "columns": ["task", "method", "steps/s"],
            "rows": [["one", "a", "**1,200.5** (1 … 2)"], ["two", "b", ""]],
        },
        {"columns": ["other"], "rows": [["3"]]},
    ]
    for text in (printed, file.with_suffix(".md").read_text(encoding="utf-8")):
        assert "| task | method | steps/s |\n| --- | --- | --- |\n| one | a |" in text


def test_rows_of_the_file_are_kept_and_replaced_by_name(tmp_path):
    file = tmp_path / "name.json"
    recorded("name", filled(), file, "command", whole=False)
    assert [path.name for path in tmp_path.iterdir()] == ["name.json"]

    def again():
        table = Table("task", "method", "steps/s", key=2)
        yield table
        assert [row[:2] for row in table.known] == [("one", "a"), ("two", "b")]
        table.add("one", "a", 7)
        table.add("one", "c", 1234.5)

    recorded("name", again(), file, "command", whole=False)
    [table] = json.loads(file.read_text(encoding="utf-8"))["tables"]
    assert table["rows"] == [["one", "a", "7"], ["two", "b", ""], ["one", "c", "1,234"]]


def test_tables_that_an_interrupted_benchmark_did_not_reach_stay(tmp_path):
    def pair(end):
        for name in ("one", "two"):
            yield (table := Table(name, key=1))
            table.add(name)
            if name == end:
                raise KeyboardInterrupt

    file = tmp_path / "name.json"
    recorded("name", pair(None), file, "command", whole=False)
    with pytest.raises(KeyboardInterrupt):
        recorded("name", pair("one"), file, "command", whole=False)
    document = json.loads(file.read_text(encoding="utf-8"))
    assert [table["columns"] for table in document["tables"]] == [["one"], ["two"]]


def test_a_benchmark_without_a_row_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="benchmark name has no result"):
        recorded("name", iter([Table("a")]), tmp_path / "name.json", "command", whole=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--function", "nothing"], "--function nothing: expected one of gru_params"),
        (["--file", "nowhere.py"], "--file nowhere.py: no Python file"),
    ],
)
def test_a_wrong_name_is_one_line(arguments, said, monkeypatch, refused):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "realistic", *arguments])
    script = str(ROOT / "scripts" / "benchmark.py")
    complaint = refused(lambda: runpy.run_path(script, run_name="__main__"))
    assert complaint.startswith(f"error: {said}")
