"""Data flows one way: a package imports only from packages listed before it; no circles.

And what is read is short: files, functions, folders.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter

import pytest

from scripts.docs.architecture import ROOT, imports, modules

PACKAGES = {
    "veenv": "structure linear rules graph orders kernel engine export tasks env measure search",
    "agents": "files devices config nn ppo alphazero policy training run api cli",
}
"""The data flow; the lines of a top-level module are those of a package of one file."""

ANYWHERE = {"veenv": {"_compat", "_extras", "_gymnasium"}, "agents": set[str]()}
"""What every package may import."""

ABOVE = {"veenv": {"__init__", "testing"}, "agents": {"__init__"}}
"""What may import every package."""


IMPORTS = imports()


def part(name: str) -> str:
    """The package, or top-level module, that a module belongs to."""
    return name.split(".")[1] if "." in name else "__init__"


def test_veenv_never_imports_agents():
    for name, targets in IMPORTS.items():
        if name.startswith("veenv"):
            assert not any(target.startswith("agents") for target in targets), name


@pytest.mark.parametrize("root", PACKAGES)
def test_every_part_has_its_place(root: str):
    known = {*PACKAGES[root].split(), *ANYWHERE[root], *ABOVE[root]}
    assert {part(name) for name in IMPORTS if name.split(".")[0] == root} == known


@pytest.mark.parametrize("root", PACKAGES)
def test_imports_go_left(root: str):
    place = {name: i for i, name in enumerate(PACKAGES[root].split())}
    for name, targets in IMPORTS.items():
        own = part(name)
        if name.split(".")[0] != root or own in ABOVE[root]:
            continue
        for target in targets:
            other = part(target)
            if target.split(".")[0] != root or other in {own, *ANYWHERE[root]}:
                continue
            assert other in place, f"{name} imports {target}"
            assert place[other] < place.get(own, -1), f"{name} imports {target}"


def test_no_circle_of_imports():
    TopologicalSorter(IMPORTS).prepare()  # raises CycleError, which names the circle


SOURCES = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}


def lines_of(root: str) -> dict[str, int]:
    """Number of lines of every module of a package."""
    return {n: len(t.splitlines()) for n, t in SOURCES.items() if n.split(".")[0] == root}


@pytest.mark.parametrize("root", PACKAGES)
def test_files_are_short(root: str):
    lines = lines_of(root)
    assert {name: n for name, n in lines.items() if n > 600} == {}


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Name and number of lines, docstring excluded, of every function of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = ast.get_docstring(node) is not None
            docstring = first.end_lineno - first.lineno + 1 if documented else 0
            yield node.name, node.end_lineno - node.lineno + 1 - docstring


def test_functions_are_short():
    found = {f"{name}.{f}": n for name, t in SOURCES.items() for f, n in functions(t) if n > 50}
    assert found == {}


def test_no_module_has_a_function_of_its_name():
    for name, text in SOURCES.items():
        own = name.split(".")[-1]
        defined = {getattr(node, "name", None) for node in ast.parse(text).body}
        assert own not in defined, name


def test_a_reader_sees_few_folders():
    apart = {"__init__", "__pycache__", "_compat", "_extras", "_gymnasium", "testing", "py"}
    entries = {path.name.split(".")[0] for path in (ROOT / "veenv").iterdir()} - apart
    assert len(entries) <= 12, entries
