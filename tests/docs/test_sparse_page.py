"""The recipes for solvers run from top to bottom and print what they say."""

from __future__ import annotations

import re

import jax
import pytest

from tests.docs.pages import blocks_of, run_block

PAGE = "docs/sparse.md"
CLIENTS = ("lineax", "optimistix", "diffrax")


@pytest.fixture
def double():
    """The page asks for float64 for the whole process."""
    usual = jax.config.read("jax_enable_x64")
    yield
    jax.config.update("jax_enable_x64", usual)


def run(blocks, names, capsys):
    for block in blocks:
        run_block(block, names, PAGE, capsys)


def recipes():
    """The blocks that need no client, and those that do."""
    blocks = blocks_of(PAGE)
    first = next(n for n, b in enumerate(blocks) if b.startswith(f"import {CLIENTS[0]}"))
    return blocks[:first], blocks[first:]


@pytest.mark.whole
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
