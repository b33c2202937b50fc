"""The recipes of fused steps run, print what they say, and are the steps that are measured."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from scripts.benchmarks.functions.steps import STEPS, valued
from tests.docs.pages import blocks_of, rows_of, run_block
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "fuse.md").read_text(encoding="utf-8")
RECIPES = {
    "euler": "implicit Euler, kinetics", "fit": "Levenberg-Marquardt",
    "track": "extended Kalman filter", "reach": "inverse kinematics", "greeks": "Monte Carlo price",
}  # fmt: skip
"""The measured step that each recipe's function is."""


@pytest.mark.whole
def test_recipes_print_what_their_comments_say_and_are_the_measured_steps(capsys):
    names: dict = {}
    for block in blocks_of("docs/fuse.md"):
        run_block(block, names, "docs/fuse.md", capsys)
    for function, step in RECIPES.items():
        make, args = STEPS[step]
        measured = jax.jit(make(valued(jax.jacfwd)))(*args)
        for a, b in zip(*map(jax.tree.leaves, (names[function](*args), measured)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", RECIPES)
def test_recipes_say_what_was_measured(function: str):
    [ratio] = [
        row["ratio"].strip("*")
        for row in rows_of("fuse")
        if (row["step"], row["batch"]) == (RECIPES[function], "4,096")
    ]
    recipe = next(s for s in PAGE.split("\n### ") if f"\ndef {function}(" in s)
    assert f"Ratio: {ratio}." in recipe
