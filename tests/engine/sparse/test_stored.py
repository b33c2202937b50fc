"""Sparse Jacobians of the corpus store what can be nonzero, and hardly more."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.engine.corpus.case import Case
from tests.engine.corpus.everything import FAMILIES
from tests.oracles.jacobians import quick_jit
from tests.sampling import spared

pytestmark = pytest.mark.usefixtures("x64")

CASES = {f"{family}-{case.name}": case for family, cases in FAMILIES.items() for case in cases}
QUICK = {"sort-sort_pairs", "gather-one_hot_lookup", "conv-batch_groups", "vmap-psum"}
QUICK |= {"linalg-cholesky", "loop-scan_outputs", "branch-switch_clamped"}
QUICK |= {"complex-shapes", "complex-where_gather"}

NEAR = {"loop-while_until_converged", "vmap-while"}
"""What may not end far from its point."""

_CANCEL = "zeros by cancellation, which no structure says"
_MASKED = "weights that a mask makes zero are zero by their values"
_PADDED = "products with what was padded, or with a row of the identity"
_OWN = "a solver or a transpose that the user gives is not looked into"
MORE = {
    "custom_vjp-linear_call": _OWN, "fft-fft_parts": _CANCEL, "fft-odd_length_rfft": _CANCEL,
    "fft-rfft_irfft": _CANCEL, "fft-spectral_derivative": _CANCEL,
    "graph-pairwise_distances": _CANCEL, "linalg-custom_root": _OWN, "linalg-eigh_vectors": _CANCEL,
    "nested-jacobian_forward": _PADDED, "nested-jacobian_reverse": _PADDED,
    "nn-dot_product_attention_causal": _MASKED,
    "pool-gradient_of_max_pool": "which element a window takes is computed",
    "shape-pad_negative": _PADDED,
}  # fmt: skip
"""What stores more than 1.05 times as much, and why."""


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


def _points(name: str, case: Case) -> list[tuple]:
    numbers = range(0, 18, 6 if name in NEAR else 1)
    moved = [jax.tree.map(lambda x, n=n: _elsewhere(x, n), case.args) for n in numbers]
    return [case.args, *moved]


def _there(block: np.ndarray) -> np.ndarray:
    """Where a block is not zero; less than a rounding error is."""
    size = np.nan_to_num(np.abs(block))
    return size > 1e-13 * size.max(initial=0)


@pytest.mark.parametrize("name", spared(CASES, *QUICK))
def test_stored_entries(name: str):
    case = CASES[name]
    sparse = quick_jit(veenv.jacve(case.fun, "reverse", case.argnums, sparse_representation=True))
    oracle = quick_jit(case.oracle(case.fun, case.argnums))
    points = _points(name, case)
    expected = [[np.asarray(x) for x in jax.tree.leaves(oracle(*point))] for point in points]
    for point, blocks in list(zip(points, expected, strict=True))[:2]:
        for x, block in zip(_blocks(sparse(*point)), blocks, strict=True):
            scale = np.nan_to_num(np.abs(block)).max(initial=1.0)
            np.testing.assert_allclose(np.asarray(x), block, case.tol, case.tol * scale)
    stored = [x.nse for x in _blocks(sparse(*case.args))]
    true = [reduce(np.logical_or, map(_there, each)) for each in zip(*expected, strict=True)]
    most = [(n, int(t.sum())) for n, t in zip(stored, true, strict=True) if _is_sparse(t)]
    assert name in MORE or all(n <= 1.05 * there for n, there in most), most


def _blocks(jacobian) -> list[veenv.SparseTensor]:
    kind = veenv.SparseTensor
    leaves = jax.tree.leaves(jacobian, is_leaf=lambda x: isinstance(x, kind))
    return [x for x in leaves if isinstance(x, kind)]


def _is_sparse(there: np.ndarray) -> bool:
    return there.size > 8 and 0 < 2 * there.sum() <= there.size
