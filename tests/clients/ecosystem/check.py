"""The one check of the ecosystem: a function's Jacobian in three orders against JAX's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import pytest

from tests.engine.corpus.case import Case, normal


def library(name: str) -> Any:
    """Imports a library, or skips the module.

    What it warns of when imported, and how it promotes there, is its own affair.
    """
    with warnings.catch_warnings(), usual_promotion():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


@contextmanager
def usual_promotion() -> Iterator[None]:
    """Promotion is JAX's default: few libraries work under strict rules."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def filled(shapes: Any) -> Any:
    """Values for a tree of shapes (of `jax.eval_shape`), which no initialiser has to compute."""
    leaves, tree = jax.tree.flatten(shapes)
    values = [0.5 * normal(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, values)


def jacobian_test(cases: Iterable[Case]) -> Callable[[Case], None]:
    """Makes a test: every case in three orders, all of them compiled, against the case's oracle."""

    @pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases])
    def test(case: Case) -> None:
        with usual_promotion():
            case.check()

    return test
