"""What users call explains itself: summary, arguments, errors, and an example that is run.

Public are the names in the packages' ``__all__``, and the functions and classes of the modules
that the documents name, too.  `pytest --doctest-modules veenv` runs the examples.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from tests.paths import ROOT

PACKAGES = ["veenv", "veenv.env", "veenv.rules", "veenv.search", "veenv.tasks", "veenv.agents"]
"""What they export is public."""

MODULES = [
    "veenv.agents.nn.distributions", "veenv.agents.ppo.gae", "veenv.agents.ppo.losses",
    "veenv.agents.nn.networks", "veenv.agents.policy", "veenv.agents.nn.weights",
    "veenv.orders.cache", "veenv.tasks.best", "veenv.orders.shipped", "veenv.env.adapters.gymnax",
    "veenv.env.task_set", "veenv.env.random_play", "veenv.env.drawing", "veenv.graph.playback",
    "veenv.measure.report.write", "veenv.env.adapters.gymnasium_vector", "veenv.export.c",
    "veenv.engine.interop", "veenv.engine.api", "veenv.orders.order", "veenv.structure.packed",
    "veenv.structure.packed_product", "veenv.engine.second", "veenv.testing.elementals",
    "veenv.testing.environments", "veenv.testing.proofs", "veenv.search.optimization",
    "veenv.search.tuning.jacobian", "veenv.search.tuning.api", "veenv.measure.validation",
]  # fmt: skip
"""What they define under a name without underscore is public."""

OTHERS = [
    "veenv.engine.sparse.pattern.Pattern",
    "veenv.engine.sparse.tensor.SparseTensor",
    "veenv.engine.sparse.entries.Entries",
    "veenv.engine.sparse.summands.Term",
    "veenv.env.adapters.gymnasium.GymVertexEnv",
]


def _is_described(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))


def _public() -> dict[str, Any]:
    """Every public function and class, by the name of where it is defined."""
    found = []
    for name in PACKAGES:
        package = importlib.import_module(name)
        found += [getattr(package, exported) for exported in package.__all__]
    for name in MODULES:
        module = importlib.import_module(name)
        defined = {k: v for k, v in vars(module).items() if not k.startswith("_")}
        found += [v for v in defined.values() if getattr(v, "__module__", None) == name]
    for name in OTHERS:
        module, _, attribute = name.rpartition(".")
        found.append(getattr(importlib.import_module(module), attribute))
    described = [value for value in found if callable(value) and _is_described(value)]
    return {f"{value.__module__}.{value.__qualname__}": value for value in described}


def _methods(value: Any) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class defines itself."""
    for name, member in vars(value).items():
        if name.startswith("_") or dataclasses.is_dataclass(member):
            continue
        member = getattr(member, "__func__", getattr(member, "fget", member))
        if inspect.isfunction(inspect.unwrap(member)):
            yield name, member


def _is_record(value: Any) -> bool:
    """A dataclass without methods: its fields say everything."""
    return dataclasses.is_dataclass(value) and not any(_methods(value))


def _raised(fun: Any) -> set[str]:
    """Exceptions that a function's own statements raise by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fun))))
    calls = (n.exc for n in ast.walk(tree) if isinstance(n, ast.Raise) and n.exc is not None)
    names = (getattr(call, "func", call) for call in calls)
    return {name.id for name in names if isinstance(name, ast.Name) and name.id[0].isupper()}


PUBLIC = _public()
FUNCTIONS = {name: value for name, value in PUBLIC.items() if not inspect.isclass(value)}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
METHODS = {
    f"{name}.{method}": value
    for name, owner in CLASSES.items()
    for method, value in _methods(owner)
}


def test_the_walk_finds_the_interface():
    functions = "veenv.engine.api.jacve veenv.search.api.search veenv.agents.ppo.gae.normalize"
    classes = "veenv.graph.graph.Graph veenv.env.env.VertexEnv veenv.agents.ppo.trainer.Trainer"
    methods = "veenv.graph.graph.Graph.cost veenv.engine.sparse.tensor.SparseTensor.todense"
    assert {*functions.split()} <= FUNCTIONS.keys()
    assert {*classes.split()} <= CLASSES.keys()
    assert {*methods.split()} <= METHODS.keys()


def test_all_have_examples():
    example = re.compile(r"^Examples:\n +>>> ", re.M)
    without = {k for k, v in PUBLIC.items() if not example.search(inspect.getdoc(v) or "")}
    assert {name for name in without if not _is_record(PUBLIC[name])} == set()


def test_no_docstring_has_a_section_that_is_rendered_as_a_quote():
    sources = [p for d in ("veenv", "agents", "scripts") for p in (ROOT / d).rglob("*.py")]
    assert len(sources) > 100
    wrong = re.compile(r"^ *Example:$", re.M)
    assert [p for p in sources if wrong.search(p.read_text(encoding="utf-8"))] == []


def test_all_arguments_are_described():
    missing = []
    for name, fun in FUNCTIONS.items():
        section = (inspect.getdoc(fun) or "").partition("Args:\n")[2]
        wanted = [p.lstrip("*") for p in inspect.signature(fun).parameters]
        missing += [
            (name, p) for p in wanted if not re.search(rf"^ +\*{{0,2}}{p}: ", section, re.M)
        ]
    assert missing == []


def test_all_have_summaries():
    firsts = {k: (inspect.getdoc(v) or "").split("\n\n")[0] for k, v in (PUBLIC | METHODS).items()}
    assert {name for name, first in firsts.items() if not first.endswith((".", ":"))} == set()


def test_all_name_what_they_raise():
    missing = []
    for name, value in (FUNCTIONS | METHODS).items():
        section = (inspect.getdoc(value) or "").partition("Raises:\n")[2]
        missing += [(name, error) for error in _raised(value) if error not in section]
    assert missing == []
