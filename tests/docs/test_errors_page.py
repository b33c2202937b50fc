"""Each error class has its place in docs/errors.md, and messages name places that exist."""

from __future__ import annotations

import ast
import re

from tests.paths import ROOT
from veenv.kernel.scalar_program import CannotFuseError

PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
SOURCES = [p for package in ("veenv", "agents") for p in sorted((ROOT / package).rglob("*.py"))]


def test_every_error_class_is_on_the_page():
    classes = {
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and node.name[0] != "_"
    }
    assert "CannotFuseError" in classes
    assert classes <= set(HEADINGS)


def test_messages_name_places_of_the_page():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    named = set(re.findall(r"errors\.html#([\w-]+)", text))
    assert len(named) > 5
    assert named <= {re.sub(r"\s", "-", heading.lower()) for heading in HEADINGS}


def test_a_message_names_its_place():
    error = CannotFuseError("no", "svd", "here.py:3")
    assert str(error) == "no (here.py:3); see errors.html#cannotfuseerror"
