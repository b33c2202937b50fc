"""Writes docs/internals/results.md, all committed tables, and the excerpts that other pages show.

``python scripts/docs/results_page.py`` writes, ``--check`` says which pages would change. An
excerpt is the table behind a comment of one line:

    <!-- excerpt of realistic: function | auto as ratio; where batch = 256; neuron | lens -->

the columns (those of the result, or `as` another name), rows that are wanted by a column's value,
and by their first cell, in this order; all rows where none is named.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import tyro

sys.path.insert(0, str(Path(__file__).parents[2]))  # a checkout is not installed

from scripts.benchmarks.operations_program import by_target

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "internals" / "results.md"
EXCERPT = re.compile(r"(<!-- excerpt of (.*?) -->\n)\n*(?:\|.*\n)*\n*", re.MULTILINE)
BEGINNING = """\
---
search:
  exclude: true
---

# All results

For readers who want every row. Each table was made by the command above it, on the machine that it
names, and is kept as a file in `docs/results`. The pages show excerpts.
`scripts/docs/results_page.py` writes this page from these files.
"""


def document(name: str) -> dict[str, Any]:
    """A committed result; of `operations` the table in the code."""
    if name == "operations":
        return {"tables": [by_target()]}
    return json.loads((DOCS / "results" / f"{name}.json").read_text(encoding="utf-8"))


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; columns of numbers are right-aligned."""
    number = [
        all(re.fullmatch(r"[-*\d.,e+–… ()]*", row[k]) for row in rows) for k in range(len(columns))
    ]
    lines = [columns, [" ---: "[1:-1] if right else "---" for right in number], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def results() -> str:
    """The page of all results that no other page shows as a whole."""
    parts = [BEGINNING]
    for path in sorted((DOCS / "results").glob("*.json")):
        found = document(path.stem)
        if found["page"] != "docs/internals/results.md":
            continue
        parts.append(f"\n## {path.stem}\n\n`{found['command']}`\n\n{found['machine']}\n")
        for one in found["tables"]:
            size = f"{len(one['rows'])} rows"
            shown = table(one["columns"], one["rows"])
            parts.append(
                f"\n<details markdown>\n<summary>{size}</summary>\n\n{shown}\n</details>\n"
            )
    return "".join(parts)


def excerpt(said: str) -> str:
    """The table that the words of a comment ask for."""
    name, _, rest = said.partition(": ")
    wanted, *more = rest.split("; ")
    pairs = [column.split(" as ") for column in wanted.split(" | ")]
    rows = []
    for one in document(name)["tables"]:
        if all(pair[0] in one["columns"] for pair in pairs):
            rows = [
                dict(zip(reversed(one["columns"]), reversed(row), strict=True))
                for row in one["rows"]
            ]
            break
    names: list[str] = []
    for word in more:
        if word.startswith("where "):
            column, value = word.removeprefix("where ").split(" = ")
            rows = [row for row in rows if row[column] == value]
        else:
            names = word.split(" | ")
    first = pairs[0][0]
    if names:
        rows = [next(row for row in rows if row[first] == name) for name in names]
    if not rows:
        raise ValueError(f"no row of docs/results/{name}.json is as {said!r} says")
    return table([pair[-1] for pair in pairs], [[row[pair[0]] for pair in pairs] for row in rows])


def pages() -> dict[Path, str]:
    """What the pages should be."""
    texts = {PAGE: results()}
    for path in [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]:
        if path != PAGE:
            text = path.read_text(encoding="utf-8")
            filled = EXCERPT.sub(lambda m: f"{m[1]}\n{excerpt(m[2])}\n", text)
            texts[path] = filled.rstrip("\n") + "\n"
    return texts


def main(check: bool = False) -> int:
    """Writes the pages that change, and names them.

    Args:
      check: write nothing; the exit code is 1 if a page would change.
    """
    changed = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in changed:
        print(path.relative_to(DOCS.parent))
        if not check:
            path.write_text(pages()[path], encoding="utf-8")
    return int(bool(changed) and check)


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
