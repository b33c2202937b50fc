"""Data flows one way: a package imports only from packages listed before it; no circles."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest

from scripts.architecture import imports

PACKAGES = {
    "veenv": "structure linear rules graph orders kernel engine export tasks env measure search",
    "agents": "files devices config nn ppo alphazero evaluation policy training run api cli "
    "commands",
}
"""The data flow; the lines of a top-level module are those of a package of one file."""

ANYWHERE = {"veenv": {"_compat"}, "agents": set[str]()}
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
