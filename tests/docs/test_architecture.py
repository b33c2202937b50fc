"""The architecture page names what exists, and its pictures are those of the code."""

import re

import pytest

from scripts.docs import flows
from scripts.docs.architecture import PICTURE, ROOT, svg


def test_the_picture_is_that_of_the_code():
    assert PICTURE.read_text(encoding="utf-8") == svg(), "run python scripts/docs/pictures.py"


def test_every_word_stands_once_in_the_glossary():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    text = text.partition("## Glossary")[2].partition("## ")[0]
    words = [w for row in re.findall(r"^\| ([^|]+) \|", text, re.M) for w in row.split(", ")]
    assert len(words) > 20
    assert len(words) == len(set(words))


@pytest.mark.parametrize(("page", "name"), flows.FLOWS)
def test_pages_explain_the_files_of_a_flow_in_its_order(page, name):
    picture, steps = flows.FOLDER / f"flow-{name}.svg", flows.FLOWS[page, name]
    assert picture.read_text(encoding="utf-8") == flows.svg(steps), "run scripts/docs/pictures.py"
    files = [file for file, _, _ in steps]
    assert all((ROOT / file).exists() for file in files)
    text = (ROOT / "docs" / "internals" / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(f"](../pictures/{picture.name})")[2].partition("\n#")[0]
    named = re.findall(r"`((?:veenv|agents)/[\w/]+\.\w+)`", section)
    assert [file for file in dict.fromkeys(named) if file in files] == files
