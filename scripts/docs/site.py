"""Hooks of the site: names on pages lead to the reference, files are shown.

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

REDIRECTS = {
    "clients": "gymnasium.html#other-rl-libraries",
    "cluster": "accelerators.html#clusters",
    "edge_cases": "internals/edge_cases.html",
    "engine": "jacobians.html",
    "faq": "choose.html#questions",
    "internals/accelerators": "accelerators.html#details-and-figures",
    "internals/audit": "internals/proofs.html#functions-of-the-test-sets",
    "internals/benchmarks": "benchmarks.html#how-it-is-measured",
    "internals/choice": "internals/engine.html#choice-of-a-form",
    "internals/costs": "internals/engine.html#costs",
    "internals/environment": "internals/learning.html",
    "internals/libraries": "libraries.html#how-a-solve-becomes-a-kernel",
    "internals/limits": "internals/edge_cases.html#limits",
    "internals/results": "results/all.txt",
    "internals/searches": "internals/learning.html#searches",
    "internals/training": "internals/learning.html#training",
    "kernel": "jacobians.html#one-kernel",
    "policy": "networks.html#the-shipped-policy",
    "reference/agents": "reference.html#agents",
    "reference/environment": "reference.html#environment",
    "reference/extend": "reference.html#extending",
    "reference/jacobians": "reference.html",
    "reference/orders": "reference.html#graphs-and-orders",
    "report": "training.html#the-report",
    "security": "install.html#security",
    "slow": "tune.html#my-jacobian-is-slow",
    "start": "examples.html#notebook",
    "tutorial": "examples.html",
}
"""Pages of earlier versions, with the place that has their text now."""


@lru_cache
def names() -> frozenset[str]:
    """The names that the reference describes."""
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def linked(markdown: str) -> str:
    """A page whose names, outside of code, headings and other links, lead to the reference."""

    def link(name: re.Match[str]) -> str:
        return f"[{name[0]}][{name[1]}]" if name[1] in names() else name[0]

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
    markdown = SHOW.sub(lambda comment: shown(DOCS / comment[1]), markdown)
    return markdown if page.file.src_uri == "reference.md" else linked(markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs at the end: addresses of earlier versions lead to where their text is."""
    for page, place in REDIRECTS.items():
        file = Path(config["site_dir"], f"{page}.html")
        place = "../" * page.count("/") + place
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={place}">'
            f'<link rel="canonical" href="{place}"><a href="{place}">Moved</a>\n',
            encoding="utf-8",
        )
