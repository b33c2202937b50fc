"""Each public function and class has its place in the reference."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from tests.paths import ROOT

PAGES = [ROOT / "docs" / "reference.md"]
NAMES = re.findall(r"^::: (\S+)$", "".join(p.read_text("utf-8") for p in PAGES), re.MULTILINE)
PUBLIC = ["veenv", "veenv.env", "veenv.env.adapters", "veenv.export", "veenv.graph", "veenv.orders"]
PUBLIC += [
    "veenv.rules", "veenv.search", "veenv.structure", "veenv.tasks", "veenv.testing",
    "veenv.agents",
]  # fmt: skip


def found(name: str) -> object:
    """The object that a page names."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def described(module: str) -> dict[str, object]:
    """The functions and classes that a module offers, by name."""
    offered = importlib.import_module(module)
    values = {name: getattr(offered, name) for name in offered.__all__}
    return {
        name: value
        for name, value in values.items()
        if inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))
    }


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_in_the_reference(module: str) -> None:
    shown = {id(found(name)) for name in NAMES}
    missing = [name for name, value in described(module).items() if id(value) not in shown]
    assert missing == []


def test_the_names_of_the_package_are_seen() -> None:
    assert {"jacve", "SparseTensor", "make"} <= set(described("veenv"))
