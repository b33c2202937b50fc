"""What the page of versions calls public is what the packages offer."""

from __future__ import annotations

import importlib
import re
import types
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
PUBLIC = {
    package: set(re.findall(r"`(\w+)`", names))
    for package, names in re.findall(r"^\| `(veenv[\w.]*)` \| (.*) \|$", PAGE, re.MULTILINE)
}


@pytest.mark.parametrize("package", PUBLIC)
def test_names_are_those_that_the_package_offers(package: str) -> None:
    module = importlib.import_module(package)
    offered = {name: getattr(module, name) for name in module.__all__}
    values = {k for k, v in offered.items() if not isinstance(v, types.ModuleType)}
    assert PUBLIC[package] == values


def test_the_page_has_the_packages() -> None:
    assert {"jacve", "fuse", "make"} <= PUBLIC["veenv"]
    assert "train" in PUBLIC["veenv.agents"]
