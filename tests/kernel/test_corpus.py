"""Every function of the engine's corpus that qualifies, as one kernel, against JAX's Jacobian."""

from __future__ import annotations

import jax
import pytest

import veenv
from tests.engine.corpus.case import Case
from tests.engine.corpus.everything import FAMILIES, parameters
from tests.oracles.jacobians import assert_same, orders, quick_jit
from veenv.kernel.scalar_program import CannotFuseError

pytestmark = pytest.mark.usefixtures("x64")
TOLERANCE = 1e-10
SINGLE = 2e-6
"""Of what is computed in float32 on the way, or all along: sixteen of its rounding errors.

Cases with a tolerance of their own are those; `jax.nn.dot_product_attention` takes its softmax in
float32 whatever it is given.
"""
HALF = 2e-2
"""Of what has sixteen bits on the way, where JAX rounds each result."""
NEVER = {"fft", "sort", "linalg"}
"""Families of which nothing need qualify."""


def assert_as_oracle(case: Case, order: object) -> None:
    try:
        got = veenv.jacve(case.fun, order, case.argnums, kernel="fused")(*case.args)
    except CannotFuseError as error:
        pytest.skip(str(error))
    expected = quick_jit(case.oracle(case.fun, case.argnums))(*case.args)

    of_single = case.tol if case.tol >= HALF else min(case.tol, SINGLE)
    tol = TOLERANCE if case.tol <= 1e-9 else of_single
    assert_same(jax.tree.leaves(got), jax.tree.leaves(expected), tol)


@pytest.mark.parametrize("case", parameters(20))
def test_reverse(case: Case):
    assert_as_oracle(case, "reverse")


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters(1))
def test_random_order(case: Case):
    graph = veenv.make_graph(case.fun, case.argnums)(*case.args)
    assert_as_oracle(case, next(iter(orders(graph, 1, seed=3))))


def qualifies(case: Case) -> bool:
    jac = veenv.jacve(case.fun, "reverse", case.argnums, kernel="fused")
    try:
        jax.eval_shape(jac, *case.args)
    except (CannotFuseError, TypeError):
        return False
    return True


def test_most_families_qualify():
    """Of each family some case is a kernel, so that the tests above are not all skipped."""
    for family, cases in FAMILIES.items():
        assert family in NEVER or any(map(qualifies, cases[:8])), family
