"""The tutorial runs from top to bottom and prints what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.docs.pages import blocks_of, run_block

TUTORIAL = "docs/examples.md"
FOUND = (4, 8, 13, 2, 6, 7, 9, 3, 5, 12, 1, 0, 10, 11)
"""Slots of an order as cheap as that of the trained agent."""


def run(capsys: pytest.CaptureFixture[str], train: Callable[[str, dict[str, Any]], bool]) -> None:
    """Runs the blocks one after the other; `train` may run that which trains by itself."""
    names: dict[str, Any] = {}
    blocks = blocks_of(TUTORIAL)
    assert len(blocks) > 8
    for block in blocks:
        if "agents.train(" in block and train(block, names):
            continue
        run_block(block, names, TUTORIAL, capsys)


def test_code_prints_what_its_comments_say(capsys):
    """But for the training, of which only the imports are run; its order is taken as found."""
    seen = []

    def take_as_found(block: str, names: dict[str, Any]) -> bool:
        imports, _, rest = block.partition("\n\n")
        exec(compile(imports, TUTORIAL, "exec"), names)
        ids = tuple(names["graph"].eliminable[slot] for slot in FOUND)
        assert names["graph"].cost(ids) == int(re.search(r"# (\d+)\n$", rest)[1])
        names["best"] = SimpleNamespace(ids=ids)
        seen.append(block)
        return True

    run(capsys, take_as_found)
    assert len(seen) == 1


@pytest.mark.slow
def test_all_of_the_code_prints_what_its_comments_say(capsys):
    run(capsys, lambda block, names: False)
