"""A benchmark writes what it prints as JSON, table and plot."""

from __future__ import annotations

import io
import json
import runpy
import sys
from pathlib import Path

import pytest

from scripts.benchmarks import record

SCRIPTS = Path(__file__).parents[2] / "scripts"

PRINTED = """a machine

| task | method | steps/s |
| --- | --- | ---: |
| one | a | **1,200.5** (1 … 2) |
| two | b |  |

| other |
| ---: |
| 3 |
"""


def test_tables_and_plot_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "name", "--quick"])
    record.recorded("name", lambda: print(PRINTED), tmp_path / "new")
    assert capsys.readouterr().out.startswith(PRINTED)
    document = json.loads((tmp_path / "new" / "name.json").read_text(encoding="utf-8"))
    assert document["command"] == "python scripts/benchmark.py name --quick"
    assert "jax" in document["machine"]
    assert document["tables"] == [
        {
            "columns": ["task", "method", "steps/s"],
            "rows": [["one", "a", "**1,200.5** (1 … 2)"], ["two", "b", ""]],
        },
        {"columns": ["other"], "rows": [["3"]]},
    ]
    assert "| one | a |" in (tmp_path / "new" / "name.md").read_text(encoding="utf-8")
    assert "<svg" in (tmp_path / "new" / "name.svg").read_text(encoding="utf-8")


def test_numbers_of_cells():
    cells = "**1,200.5** (1 … 2)", "2e+03", "-4", "best", ""
    assert [record.number(cell) for cell in cells] == [1200.5, 2000.0, -4.0, None, None]


def test_a_benchmark_without_a_table_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="benchmark name printed no table"):
        record.recorded("name", lambda: print("done"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_forgotten_leaves_a_closed_stream_alone():
    stream = io.StringIO()
    tee = record._Tee(stream)
    tee.flush()
    stream.close()
    tee.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--function", "nothing"], "--function nothing: expected one of gru_params"),
        (["--file", "nowhere.py"], "--file nowhere.py: no Python file"),
    ],
)
def test_a_wrong_name_is_one_line(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "realistic", *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(SCRIPTS / "benchmark.py"), run_name="__main__")
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {said}")
    assert error.count("\n") == 1
