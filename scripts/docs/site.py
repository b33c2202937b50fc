"""What the site does to pages: names lead to the reference, files are shown.

A name of the reference in prose, such as `veenv.jacve`, becomes a link to it. A comment of one
line,

    <!-- show: examples/flax_ppo.py -->

is replaced by a file of docs/: code as a block, a page as it is, a notebook with its text, code,
results, pictures.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
SHOW = re.compile(r"^<!-- show: (\S+) -->$", re.MULTILINE)
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"(?<!\[)`(veenv(?:\.\w+)+)(?:\([^`]*\))?`")


@lru_cache
def names() -> frozenset[str]:
    """The names that the reference describes."""
    pages = (DOCS / "reference").glob("*.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    return frozenset(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def linked(markdown: str) -> str:
    """A page whose names, outside of code, headings and other links, lead to the reference."""

    def link(found: re.Match[str]) -> str:
        return f"[{found[0]}][{found[1]}]" if found[1] in names() else found[0]

    parts = FENCED.split(markdown)
    for k, part in enumerate(parts):
        if not part.startswith("```"):
            lines = part.split("\n")
            parts[k] = "\n".join(x if x.startswith("#") else NAME.sub(link, x) for x in lines)
    return "".join(parts)


def shown(path: Path) -> str:
    """A file as Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":  # of the repository's top level
        return text.replace("](docs/", "](")
    if path.suffix != ".ipynb":
        return f"```python\n{text}```"
    return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"])


def _cell(cell: dict[str, Any]) -> str:
    """A cell of a notebook: text as it is, code with what it printed and drew."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for out in cell["outputs"]:
        if "text" in out:
            parts.append(f"```text\n{''.join(out['text'])}```")
        if "image/png" in out.get("data", {}):
            picture = "".join(out["data"]["image/png"]).replace("\n", "")
            parts.append(f"![on white](data:image/png;base64,{picture})")
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    markdown = SHOW.sub(lambda found: shown(DOCS / found[1]), markdown)
    return markdown if page.file.src_uri.startswith("reference/") else linked(markdown)
