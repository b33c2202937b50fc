"""Pages are written in short sentences and in the field's words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MEAN, LONGEST = 18, 27
"""Words of a sentence: in the mean of a page, and at most."""
BUDGETS = {
    "benchmarks.md": 2700,
    "environment.md": 1800,
    "fuse.md": 1200,
    "index.md": 400,
    "jacobians.md": 2700,
    "orders.md": 1500,
    "sparse.md": 1200,
    "training.md": 2200,
}
"""Words of a page at most, tables included, code left out: as many as are read at one sitting."""
WORDS = {
    r"\bdear(er|est)?\b": "expensive",
    r"\btold of\b": "reported",
    r"\btaken for\b": "treated as",
    r"\bby turns\b": "interleaved, or iteration by iteration",
    r"\bwhat is (?!new\b|installed\b)\w+": "a noun",
    r"\bthose that\b": "which ones",
    r"\bof which\b": "a sentence of its own",
    r"\bso that it is\b": "a sentence of its own",
    r"\bbut for\b": "except for",
    r"\bhardly ever\b": "rarely",
    r"\bkin\b": "variants",
    r"\bspar(e|es|ed)\b": "save",
    r"\bwoven|weav": "interleaved",
    r"\bheeds?\b": "respects",
    r"\bwho (is|has|wants)\b": "the subject's name",
}
"""Words that make a reader stop, with what to write instead."""


def prose(page: Path) -> str:
    """A page without code, tables, headings and pictures; an item of a list is a paragraph."""
    text = re.sub(
        r"```.*?```|<!--.*?-->", "\n\n", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    text = re.sub(r"^\s*(\||#|!\[|:::|<|\?\?\?|!!!).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "\n\n", text, flags=re.MULTILINE)


def sentences(page: Path) -> Iterator[str]:
    """The sentences of a page; a piece of code counts as a word, a link as its text."""
    for paragraph in re.split(r"\n\s*\n", prose(page)):
        plain = re.sub(r"`[^`]*`", "x", " ".join(paragraph.split()))
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        yield from (s for s in re.split(r"(?<=[.!?])\s+(?=\S)", plain) if s)


def length(sentence: str) -> int:
    """How many words a sentence has."""
    return len(re.findall(r"\w[\w'’.,/×%-]*", sentence))


@pytest.mark.parametrize("name", BUDGETS)
def test_pages_keep_their_budget(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()) <= BUDGETS[name]


def test_sentences_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\nTwo `a b` three. Four\nfive: six\n\n- seven [eight nine](ten.md)\n")
    assert [length(s) for s in sentences(page)] == [3, 3, 3]


def test_sentences_are_short() -> None:
    for page in PAGES:
        lengths = {s: length(s) for s in sentences(page)}
        assert {(page.name, s) for s, n in lengths.items() if n > LONGEST} == set()
        assert sum(lengths.values()) <= MEAN * len(lengths), page


def test_words_are_the_fields() -> None:
    found = [
        (page.name, m[0], instead)
        for page in PAGES
        for word, instead in WORDS.items()
        for m in re.finditer(word, "\n".join(sentences(page)), re.I)
    ]
    assert found == []
