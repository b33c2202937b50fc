"""Data flows one way: a package imports only from packages listed before it; no circles.

And what is read is short: files, functions, folders.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator
from graphlib import TopologicalSorter

import pytest

from scripts.docs import architecture
from scripts.docs.architecture import ROOT, modules

PACKAGES = {
    "veenv": "structure linear rules graph orders kernel engine export tasks env measure search",
    "veenv.agents": "files devices config nn ppo alphazero policy training run api cli",
}
"""The data flow; the lines of a top-level module are those of a package of one file."""

ANYWHERE = {"veenv": {"_compat", "_support", "_gymnasium", "limits"}, "veenv.agents": set[str]()}
"""What every package may import."""

ABOVE = {"veenv": {"__init__", "testing"}, "veenv.agents": {"__init__"}}
"""What may import every package."""


imports = functools.cache(architecture.imports)


def root_of(name: str) -> str:
    """The package of packages that a module belongs to."""
    return "veenv.agents" if f"{name}.".startswith("veenv.agents.") else "veenv"


def part(name: str) -> str:
    """The package, or top-level module, that a module belongs to."""
    rest = name.removeprefix(root_of(name)).split(".")
    return rest[1] if rest[1:] else "__init__"


def test_veenv_never_imports_agents():
    for name, targets in imports().items():
        if root_of(name) == "veenv":
            assert not any(root_of(target) == "veenv.agents" for target in targets), name


@pytest.mark.parametrize("root", PACKAGES)
def test_every_part_has_its_place(root: str):
    known = {*PACKAGES[root].split(), *ANYWHERE[root], *ABOVE[root]}
    assert {part(name) for name in imports() if root_of(name) == root} == known


@pytest.mark.parametrize("root", PACKAGES)
def test_imports_go_left(root: str):
    place = {name: i for i, name in enumerate(PACKAGES[root].split())}
    for name, targets in imports().items():
        own = part(name)
        if root_of(name) != root or own in ABOVE[root]:
            continue
        for target in targets:
            other = part(target)
            if root_of(target) != root or other in {own, *ANYWHERE[root]}:
                continue
            assert other in place, f"{name} imports {target}"
            assert place[other] < place.get(own, -1), f"{name} imports {target}"


def test_no_circle_of_imports():
    TopologicalSorter(imports()).prepare()  # raises CycleError, which names the circle


SOURCES = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}


DOOR = {
    "fusing": "KernelMode Traced as_kernel run_at_batch run_kernel trace_leaves trace_point",
    "scalar_program": "CannotFuseError ScalarProgram",
    "building.unrolling": "called_by",
    "price": "MICROSECONDS SMALL_PRODUCT counts_of equations_of in_kernel kernel_seconds "
    "kernel_size LEAST least_seconds of_entries operations_of seconds unrolled",
}
"""What the engine may know of kernels: a function traced at a point, its scalar program or a
refusal, what runs it; of primitives what a kernel makes of them; and prices."""


def test_the_engine_sees_kernels_through_a_door():
    seen: dict[str, set[str]] = {}
    for name, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)) if f"{name}.".startswith("veenv.engine.") else ():
            module = getattr(node, "module", None) or ""
            if isinstance(node, ast.ImportFrom) and f"{module}.".startswith("veenv.kernel."):
                known = seen.setdefault(module.removeprefix("veenv.kernel."), set())
                known.update(alias.name for alias in node.names)
    assert seen == {module: {*names.split()} for module, names in DOOR.items()}


def test_files_are_short():
    lines = {name: len(text.splitlines()) for name, text in SOURCES.items()}
    assert {name: n for name, n in lines.items() if n > 600} == {}


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Name and number of lines, docstring excluded, of every function of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = ast.get_docstring(node) is not None
            docstring = first.end_lineno - first.lineno + 1 if documented else 0
            yield node.name, node.end_lineno - node.lineno + 1 - docstring


def test_functions_are_short():
    found = {f"{name}.{f}": n for name, t in SOURCES.items() for f, n in functions(t) if n > 50}
    assert found == {}


def test_no_module_has_a_function_of_its_name():
    for name, text in SOURCES.items():
        own = name.split(".")[-1]
        defined = {getattr(node, "name", None) for node in ast.parse(text).body}
        assert own not in defined, name


def test_every_limit_has_a_reason_and_is_used():
    body = ast.parse(SOURCES["veenv.limits"]).body
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            assert isinstance(after, ast.Expr), name
            assert any(f"limits.{name}" in text for text in SOURCES.values()), name


def test_a_reader_sees_few_folders():
    apart = {"__init__", "__pycache__", "agents", "testing", "py", *ANYWHERE["veenv"]}
    entries = {path.name.split(".")[0] for path in (ROOT / "veenv").iterdir()} - apart
    assert len(entries) <= 12, entries
