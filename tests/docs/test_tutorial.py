"""The tutorial runs from top to bottom and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_code_prints_what_its_comments_say(capsys):
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 8
    for block in blocks:
        exec(compile(block, str(TUTORIAL), "exec"), names)
        expected = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == expected
