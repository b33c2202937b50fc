"""What the site makes of pages: names become links, examples and the notebook are shown."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from scripts.docs.site import DOCS, linked, names, on_page_markdown, shown

EXAMPLES = sorted(path.name for path in (DOCS / "examples").glob("*.py"))


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("call `veenv.jacve`, then", "call [`veenv.jacve`][veenv.jacve], then"),
        ("| `veenv.make(f, 1)` |", "| [`veenv.make(f, 1)`][veenv.make] |"),
        ("# `veenv.jacve`", None),  # a heading is a link already
        ("[`veenv.tune`](tune.md)", None),
        ("`veenv.no_name` and `jacve`", None),
        ("```python\n`veenv.jacve`\n```", None),
    ],
)
def test_names_become_links_where_they_are_not_yet(page, made):
    assert linked(page) == (made or page)


def test_names_are_those_of_the_reference():
    assert {"veenv.jacve", "veenv.agents.train", "veenv.search.search"} <= names()


def test_every_example_is_on_the_page():
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"<!-- show: examples/(\S+) -->", page)) == EXAMPLES
    found = SimpleNamespace(file=SimpleNamespace(src_uri="examples.md"))
    made = on_page_markdown(page, found)
    for name in EXAMPLES:
        assert (DOCS / "examples" / name).read_text(encoding="utf-8") in made


def test_the_notebook_shows_its_text_code_results_and_pictures():
    made = shown(DOCS / "start.ipynb")
    assert made.startswith("# From a function to a fast Jacobian")
    assert made.count("![on white](data:image/png;base64,") == 3
    assert "```python\nenv = veenv.make(graph)" in made
    assert re.search(r"```text\n.*found", made, re.DOTALL)
