"""Code of pages that says what it prints, and the results that they show."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.paths import ROOT


def blocks_of(page: str) -> list[str]:
    """The blocks of Python of a page, named by its path."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    return blocks


def run_block(
    block: str, names: dict[str, Any], page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs a block, which prints what its comments say."""
    exec(compile(block, page, "exec"), names)
    expected = re.findall(r"^print\(.*?\)  # (.*)$", block, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == expected


def rows_of(result: str) -> list[dict[str, str]]:
    """The rows of the first table of a committed result, as dictionaries by column."""
    file = ROOT / "docs" / "results" / f"{result}.json"
    table = json.loads(file.read_text(encoding="utf-8"))["tables"][0]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def example(name: str) -> ModuleType:
    """A program of docs/examples as a module."""
    spec: Any = importlib.util.spec_from_file_location(name, ROOT / f"docs/examples/{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
