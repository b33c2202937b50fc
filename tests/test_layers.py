"""Data flows one way: a module imports only from stages before its own."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent

STAGES = [
    {"_compat", "affine", "structure", "elimination", "counts", "masks"},
    {"product", "pin"},
    {"linear"},
    {"joint"},
    {"packed"},
    {"equations"},
    {"refs"},
    {"trace"},
    {"rules"},
    {"graph"},
    {"nested", "edge", "parallel"},
    {"linearise", "edge_product"},
    {"terms"},
    {"sums"},
    {"engine", "sparse"},
]
"""Stages of `veenv` that come before everything else, in order."""

ALLOWED = {
    "env": {"tasks", "graph", "linearise", "structure", "product", "packed"},
    "search": {"graph", "linearise", "structure", "product", "packed", "elimination", "orders"},
    "tasks": {"jacve"},  # BlackScholes_Jacobian differentiates a Jacobian of the engine
}
"""What the packages beside the stages may import (besides themselves)."""


def imported(path: Path) -> set[str]:
    """Modules of this project that a file imports, as dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("veenv", "agents")}


def parts_of_veenv(path: Path) -> set[str]:
    """Top-level parts of veenv that a file imports."""
    names = (name.split(".") for name in imported(path))
    parts = {name[1] for name in names if name[0] == "veenv" and len(name) > 1}
    return {p for p in parts if (ROOT / "veenv" / p).is_dir() or (ROOT / f"veenv/{p}.py").is_file()}


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_veenv_never_imports_agents():
    for path in files("veenv"):
        assert not any(name.split(".")[0] == "agents" for name in imported(path)), path


def test_nothing_but_optimize_knows_the_searches():
    for path in files("veenv"):
        own = path.relative_to(ROOT / "veenv").parts[0].removesuffix(".py")
        if own not in ("search", "tuning", "__init__"):
            assert "search" not in parts_of_veenv(path), path


def test_stages_import_only_from_earlier_ones():
    stage_of = {name: number for number, names in enumerate(STAGES) for name in names}
    for path in files("veenv"):
        own = path.relative_to(ROOT / "veenv").parts[0].removesuffix(".py")
        if own not in stage_of:
            continue
        for part in parts_of_veenv(path) - {own}:
            assert part in stage_of, f"{path} imports {part}"
            assert stage_of[part] < stage_of[own], f"{path} imports {part}"


def test_packages_beside_the_stages_import_only_what_they_may():
    for package, allowed in ALLOWED.items():
        for path in files(f"veenv/{package}"):
            assert parts_of_veenv(path) <= allowed | {package}, path


def test_the_engine_knows_neither_environment_nor_agents():
    for path in (ROOT / "veenv" / f"{n}.py" for n in ("jacve", "engine", "sparse", "interop")):
        assert "env" not in parts_of_veenv(path), path
