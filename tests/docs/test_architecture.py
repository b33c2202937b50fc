"""The architecture page names what exists, and its picture is that of the code."""

import re

from scripts.docs.architecture import PICTURE, ROOT, svg


def test_the_picture_is_that_of_the_code():
    assert PICTURE.read_text(encoding="utf-8") == svg(), "run python scripts/docs/pictures.py"


def test_every_word_stands_once_in_the_glossary():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    text = text.partition("## Words")[2].partition("## ")[0]
    words = [w for row in re.findall(r"^\| ([^|]+) \|", text, re.M) for w in row.split(", ")]
    assert len(words) > 20
    assert len(words) == len(set(words))
