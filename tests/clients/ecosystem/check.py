"""The one check of the ecosystem: a function's Jacobian in three orders against JAX's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest

from tests.engine.corpus.case import Case, normal
from tests.oracles.jacobians import assert_same, jitted_jacobians


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


def parameters(cases: Iterable[Case]) -> list:
    """The cases as parameters of a test, named as they are."""
    return [pytest.param(case, id=case.name) for case in cases]


def check(case: Case) -> None:
    """Forward, reverse and Markowitz order, all of them compiled, against the case's oracle.

    Raises:
      AssertionError: naming the order and the block that differs; or if a block of JAX's own
        Jacobian is not finite or vanishes, because then the point is badly chosen.
    """
    with usual_promotion():
        results = jitted_jacobians(case.fun, case.args, case.argnums, case.oracle, num_random=0)
        for order, got, expected in results:
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(expected)]
            assert all(np.isfinite(leaf).all() for leaf in leaves), "the point is badly chosen"
            assert case.zero or all(leaf.any() for leaf in leaves if leaf.size), "a block vanishes"
            try:
                assert_same(got, expected, case.tol)
            except AssertionError as error:
                raise AssertionError(f"order {order}: {error}") from error
