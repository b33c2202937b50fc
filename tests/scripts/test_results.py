"""Benchmark `agents`: the row of a task holds what its runs have shown."""

from __future__ import annotations

from scripts.benchmarks.agents import STEPS
from scripts.docs.pictures import PICTURES


def test_the_picture_has_a_panel_for_each_task(tmp_path):
    PICTURES["learning-curves"](tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    for title in (*STEPS, "seed 0", "seed 4"):
        assert text.count(f"<!-- {title} -->") == 1
