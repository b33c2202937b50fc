"""The notebook runs from top to bottom and prints what it shows, but for times."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "start.ipynb"


def shown(cell: dict) -> str:
    """What a cell has printed."""
    return "".join(text for out in cell["outputs"] for text in out.get("text", []))


@pytest.mark.whole
def test_the_notebook_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 10
    names: dict = {}
    for cell in code:
        lines = "".join(line for line in cell["source"] if not line.startswith("%"))
        exec(compile(ast.parse(lines), str(NOTEBOOK), "exec"), names)
        printed = capsys.readouterr().out
        if not shown(cell).startswith("about"):  # a time
            assert printed == shown(cell)
    pictures = [
        out for cell in code for out in cell["outputs"] if "image/png" in out.get("data", {})
    ]
    assert len(pictures) == 3
