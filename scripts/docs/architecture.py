"""Draws docs/architecture.svg: the packages of veenv, and who imports whom.

Everything in the picture is read off the code: a row for each package, in the order of the data
flow, with the first line of its docstring, and an arc for each import that no chain of others
implies.  A test compares the picture with the code; `scripts/docs/pictures.py` draws it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
APART = {"veenv", "veenv._compat", "veenv._support", "veenv._gymnasium"}
"""What every package may import, and what imports them."""
PICTURE = ROOT / "docs" / "architecture.svg"

ROW, LEFT, WIDTH = 34, 100, 880
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#1f2933}.name{font-weight:600}"
    ".out{text-anchor:end;fill:#0b6e99}path{fill:none;stroke:#52606d;stroke-width:1.4}"
    "circle{fill:#0b6e99}@media(prefers-color-scheme:dark){text{fill:#e4e7eb}"
    ".out{fill:#5cc0e8}path{stroke:#9aa5b1}circle{fill:#5cc0e8}}</style>"
)
"""Of all pictures of the code, on light and on dark pages."""


def modules() -> dict[str, Path]:
    """The paths of all modules of both packages by dotted name."""
    paths = {}
    for folder, above in (("veenv", ()), ("agents", ("veenv",))):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = *above, *path.relative_to(ROOT).with_suffix("").parts
            paths[".".join(parts).removesuffix(".__init__")] = path
    return paths


def imports() -> dict[str, set[str]]:
    """For every module the modules of this project that it imports, wherever in the file."""
    known = modules()
    imported: dict[str, set[str]] = {}
    for module, path in known.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= {name if name in known else node.module for name in full}
        imported[module] = names & known.keys()
    return imported


def part(module: str) -> str:
    """The package of a module as the picture names it: ``veenv.graph``."""
    root, *rest = module.split(".")
    return f"{root}.{rest[0]}" if root == "veenv" and rest else root


def edges() -> dict[str, set[str]]:
    """For every package the packages that it imports."""
    packages: dict[str, set[str]] = {}
    for module, targets in imports().items():
        package = part(module)
        imported = {part(target) for target in targets} - {package, *APART}
        if package not in (*APART, "veenv.testing"):
            packages.setdefault(package, set()).update(imported)
    return packages


def reduced(graph: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """The edges of an acyclic graph that no longer path implies."""
    below: dict[str, set[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        direct = set(graph.get(name, ()))
        below[name] = direct.union(*(below[other] for other in direct))
    return {
        name: {a for a in targets if not any(a in below[b] for b in targets)}
        for name, targets in graph.items()
    }


def rows(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Packages in the order of the data flow, each after all that it imports."""
    sorter, order = TopologicalSorter(graph), []
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda name: (len(graph.get(name, ())), name))
        order += ready
        sorter.done(*ready)
    return order


def sentence(package: str) -> str:
    """The first line of a package's docstring."""
    text = ast.get_docstring(ast.parse(modules()[package].read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0]


def document(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Returns an SVG with a title in the style of all pictures of the code."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="title">'
    )
    return "\n".join([head, f'<title id="title">{title}</title>', STYLE, *parts, "</svg>\n"])


def svg() -> str:
    """Returns the picture of the packages."""
    graph = edges()
    order = rows(graph)
    place = {name: ROW * i + ROW for i, name in enumerate(order)}
    title = "The packages in the order of the data flow; arcs join a package with its imports"
    parts = []
    for name, targets in sorted(reduced(graph).items()):
        for target in sorted(targets):
            a, b = place[target], place[name]
            bend = LEFT - 24 - 0.62 * (b - a)
            parts.append(f'<path d="M{LEFT},{a} C{bend:.0f},{a} {bend:.0f},{b} {LEFT},{b}"/>')
    for name, y in place.items():
        parts += [
            f'<circle cx="{LEFT}" cy="{y}" r="5"/>',
            f'<text class="name" x="{LEFT + 16}" y="{y + 5}">{escape(name)}</text>',
            f'<text x="{LEFT + 150}" y="{y + 5}">{escape(sentence(name).replace("`", ""))}</text>',
        ]
    return document(WIDTH, ROW * (len(order) + 1), title, parts)
