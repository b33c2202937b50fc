"""The recipes for solvers run from top to bottom and print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sparse.md"
CLIENTS = ("lineax", "optimistix", "diffrax")


@pytest.fixture
def double():
    """The page asks for float64 for the whole process."""
    usual = jax.config.read("jax_enable_x64")
    yield
    jax.config.update("jax_enable_x64", usual)


def run(blocks, names, capsys):
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
        expected = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == expected


def recipes():
    """The blocks that need no client, and those that do."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    first = next(n for n, b in enumerate(blocks) if b.startswith(f"import {CLIENTS[0]}"))
    return blocks[:first], blocks[first:]


# SciPy's BDF subtracts rows of an array that it has not filled yet, and does not read the result.
@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract:RuntimeWarning")
def test_recipes_print_what_their_comments_say(capsys, double):
    blocks, _ = recipes()
    assert len(blocks) >= 7
    run(blocks, {}, capsys)


@pytest.mark.clients
def test_recipes_for_clients_print_what_their_comments_say(capsys, double):
    for module in CLIENTS:
        pytest.importorskip(module)
    blocks, for_clients = recipes()
    assert [b.split("\n")[0] for b in for_clients] == [f"import {c}" for c in CLIENTS]
    names = {}
    before = [
        b for b in blocks if re.search(r"^import jax$|def residual|def slope", b, re.MULTILINE)
    ]
    run([*before, *for_clients], names, capsys)
