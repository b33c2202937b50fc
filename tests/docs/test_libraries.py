"""The page of other libraries has the tables that were measured, of every solve."""

from __future__ import annotations

import json

from scripts.docs.libraries_page import FIGURES, PAGE, filled


def test_the_tables_are_those_that_were_measured():
    tables = json.loads(FIGURES.read_text(encoding="utf-8"))["tables"]
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, tables) == page
    rows = [line for line in page.splitlines() if line.startswith("| ") and "**" in line]
    solves, derivatives, made = (table["rows"] for table in tables)
    usual = [row for row in (*solves, *derivatives) if row[1:3] == ["float32", "2,048"]]
    scaled = {row[0] for row in solves if row[2] != "2,048"}
    assert len(rows) == len(usual) + len(scaled) + len(made)
    changed = json.loads(json.dumps(tables))
    changed[0]["rows"][0][5] = "**7**"
    assert filled(page, changed) != page
