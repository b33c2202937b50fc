"""Data flows one way: a package imports only from packages listed before it; no circles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PACKAGES = {
    "veenv": "structure linear rules graph orders engine export tasks env measure search".split(),
    "agents": "files devices config nn ppo alphazero evaluation policy train run cli".split(),
}
"""The data flow; the lines of a top-level module are those of a package of one file."""

ANYWHERE = {"veenv": {"_compat"}, "agents": set[str]()}
"""What every package may import."""

ABOVE = {"veenv": {"__init__", "testing"}, "agents": {"__init__"}}
"""What may import every package."""


def modules() -> dict[str, Path]:
    """Every module of both packages by its dotted name."""
    paths = [*(ROOT / "veenv").rglob("*.py"), *(ROOT / "agents").rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


MODULES = modules()


def imported(path: Path) -> set[str]:
    """The modules of this project that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found & MODULES.keys()


IMPORTS = {name: imported(path) for name, path in MODULES.items()}


def part(name: str) -> str:
    """The package, or top-level module, that a module belongs to."""
    return name.split(".")[1] if "." in name else "__init__"


def test_veenv_never_imports_agents():
    for name, targets in IMPORTS.items():
        if name.startswith("veenv"):
            assert not any(target.startswith("agents") for target in targets), name


@pytest.mark.parametrize("root", PACKAGES)
def test_every_part_has_its_place(root: str):
    known = {*PACKAGES[root], *ANYWHERE[root], *ABOVE[root]}
    assert {part(name) for name in MODULES if name.split(".")[0] == root} == known


@pytest.mark.parametrize("root", PACKAGES)
def test_imports_go_left(root: str):
    place = {name: i for i, name in enumerate(PACKAGES[root])}
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
