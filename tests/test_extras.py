"""What is missing without an extra is named with it; no message names a path of a checkout."""

from __future__ import annotations

import ast
import re
import sys

import jax
import jax.numpy as jnp
import pytest

import veenv
from tests.paths import ROOT
from veenv.agents.cli import entry

PATHS = re.compile("scripts/|docs/")
FUNCTION, POINT = lambda x: jnp.sin(x) * x, jnp.ones(3)


def graph():
    return veenv.make_graph(FUNCTION)(POINT)


def without(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    for name in [n for n in sys.modules if n.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("matplotlib", lambda: veenv.draw(graph())),
        ("networkx", lambda: graph().to_networkx()),
        ("lineax", veenv.sparse_solver),
        ("lineax", lambda: veenv.linear_operator(FUNCTION, POINT)),
    ],
)
def test_what_is_missing(monkeypatch, package, use):
    without(monkeypatch, package)
    monkeypatch.delitem(sys.modules, "veenv.engine.lineax_operator", raising=False)
    extra = "ecosystem" if package == "lineax" else "plots"
    match = f"needs {package}.*pip install 'veenv.{extra}.'"
    with pytest.raises(ModuleNotFoundError, match=match):
        use()


def test_a_command_says_its_version(monkeypatch, capsys):
    monkeypatch.setattr(entry, "exit_on_interrupt", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["veenv-train", "--version"])
    with pytest.raises(SystemExit, match="0"):
        entry.train()
    assert capsys.readouterr().out == f"veenv {veenv.__version__}\n"


def test_no_message_names_a_path_of_a_checkout():
    for path in [p for package in ("veenv", "agents") for p in (ROOT / package).rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in texts:
                assert not PATHS.search(str(node.value)), path


def test_a_policy_of_floats_is_told_so():
    with pytest.raises(TypeError, match=r"a policy returns integers.*float"):
        veenv.evaluate(
            lambda key, seen, mask: mask.argmax(-1).astype(float), "Robertson", samples=1, seed=0
        )


def test_an_attribute_that_is_not_there_has_the_users_line(tmp_path):
    from veenv.tasks import user

    def wrong(x: jax.Array) -> jax.Array:
        y = jnp.sin(x)
        return y.nonsense  # type: ignore[attr-defined]

    line = wrong.__code__.co_firstlineno + 2
    with pytest.raises(ValueError, match=rf"nonsense.*test_extras\.py:{line}\)"):
        user.trace_task(user.from_function(wrong, (1.0,)))
