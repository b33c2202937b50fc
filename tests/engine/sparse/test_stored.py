"""Sparse Jacobians of the corpus store what can be nonzero, and hardly more."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.engine.corpus.case import Case
from tests.engine.corpus.everything import FAMILIES
from tests.oracles.jacobians import quick_jit

pytestmark = pytest.mark.usefixtures("x64")

QUICK = {"sort-sort_pairs", "gather-one_hot_lookup", "conv-batch_groups", "vmap-psum"}
QUICK |= {"linalg-solve", "linalg-triangular_lower", "linalg-cholesky", "dot-matrix_vector"}

NEAR = {"loop-while_until_converged", "vmap-while_loop"}
"""What may not end far from its point."""

MORE: dict[str, str] = {}
"""What stores more than 1.05 times as much, and why."""


def _parameters() -> list:
    names = {f"{family}-{case.name}": case for family, cases in FAMILIES.items() for case in cases}
    return [
        pytest.param(name, case, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name, case in names.items()
    ]


def _elsewhere(x, number: int):
    """An argument at another point: near, mirrored, with its elements exchanged, far off."""
    if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.inexact):
        return x
    rng, x = np.random.default_rng(number), np.asarray(x)
    noise = rng.standard_normal(x.shape)
    ways = [
        lambda: x * (1 + 0.03 * noise) + 0.01 * noise,
        lambda: 0.1 * noise - x,
        lambda: rng.permutation(x.reshape(-1)).reshape(x.shape),
        lambda: 0.3 * noise,
        lambda: noise + np.abs(x).mean(),
        lambda: 3 * noise,
    ]
    return ways[number % len(ways)]().astype(x.dtype)


def _nonzero(case: Case, *, far: bool = True) -> list[np.ndarray]:
    """For each block of the Jacobian, where it is not zero at one of several points."""
    jacobian = quick_jit(case.oracle(case.fun, case.argnums))
    points = [case.args]
    numbers = range(0, 18, 1 if far else 6)
    points += [jax.tree.map(lambda x, n=n: _elsewhere(x, n), case.args) for n in numbers]
    found: list[np.ndarray] = []
    for point in points:
        blocks = [np.asarray(x) for x in jax.tree.leaves(jacobian(*point))]
        there = [~np.isnan(x) & (x != 0) for x in blocks]
        found = [a | b for a, b in zip(found, there, strict=True)] if found else there
    return found


@pytest.mark.parametrize(("name", "case"), _parameters())
def test_stored_entries(name: str, case: Case):
    jacobian = quick_jit(veenv.jacve(case.fun, "reverse", case.argnums, sparse_representation=True))
    kind = veenv.SparseTensor
    blocks = jax.tree.leaves(jacobian(*case.args), is_leaf=lambda x: isinstance(x, kind))
    blocks = [x for x in blocks if isinstance(x, kind)]
    true = _nonzero(case, far=name not in NEAR)
    assert len(blocks) == len(true)
    most = [(x.nse, int(t.sum())) for x, t in zip(blocks, true, strict=True) if _is_sparse(t)]
    more = any(stored > 1.05 * there for stored, there in most)
    assert more == (name in MORE), most


def _is_sparse(there: np.ndarray) -> bool:
    return there.size > 8 and 0 < 2 * there.sum() <= there.size
