"""What is said of others' work: references, licences, and which counts compare."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.paths import ROOT


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_references_can_be_cited():
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load(text_of("CITATION.cff"))["references"]
    for one in found:
        assert {"type", "title", "authors", "year"} <= one.keys()
        assert all(author["family-names"] for author in one["authors"])
        assert one.get("doi") or one["identifiers"][0]["value"].startswith("arXiv:")
    named = {(one["authors"][0]["family-names"], one["year"]) for one in found}
    assert named >= {
        ("Lohoff", 2024), ("Naumann", 2004), ("Naumann", 2008), ("Griewank", 2003),
        ("Chen", 2012), ("Novak", 2022), ("Bentert", 2025), ("Märtens", 2025),
    }  # fmt: skip
    given = re.findall(r"arXiv:(\d{4}\.\d{5})", text_of("CITATION.cff"))
    assert {"2406.05027", "2506.17521", "2505.06056", "2206.08720"} <= set(given)


def test_the_licence_of_data_of_others_comes_along():
    notice = text_of("NOTICE")
    for part in (
        "tests/data", "graphax", "alphagrad", "Jamie Lohoff", "Permission is hereby granted",
    ):  # fmt: skip
        assert part in notice
    assert "NOTICE" in tomllib.loads(text_of("pyproject.toml"))["project"]["license-files"]


def test_it_is_said_which_published_counts_compare():
    said = " ".join(text_of("docs/tasks.md").split())
    assert "For the first four the graphs are the published ones" in said
    assert "| BlackScholes_Jacobian | published | 545 | 572 | 350 | 311 | 308 | |" in said
    assert "the joint run of all tasks has 307 there" in said
    for page in ("README.md", "docs/tasks.md"):
        assert "`f` and `g`" in text_of(page)
