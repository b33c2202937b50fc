"""The operations of sparse tensors against those of dense arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse as scipy_sparse

import veenv
from tests.oracles.jacobians import quick_jit, sparse_beside_dense, together
from tests.sampling import spared

N = 6
PERM = np.array([3, 0, 2, 5, 1, 4])


def banded(x):
    return jnp.concatenate([x[:1] ** 2, x[:-2] * x[1:-1] + jnp.sin(x[2:]), x[-1:] * x[-2:-1]])


def gathered(x):
    return jnp.sin(x)[PERM] * x


def grid(x):
    u = x.reshape(2, 3)
    return u * u[:, ::-1]


FUNCTIONS = {"banded": banded, "gathered": gathered, "grid": grid}
X = np.random.default_rng(0).uniform(0.5, 1.5, size=N)
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(params=spared(FUNCTIONS, "banded", "grid"))
def both(request, x64):
    """A Jacobian, sparse and dense."""
    return sparse_beside_dense(FUNCTIONS[request.param], X)


def test_formats(both):
    jacobian, dense = both
    matrix = np.asarray(dense).reshape(N, N)
    for format in ("csr", "csc", "coo"):
        found = jacobian.to_scipy(format)
        assert found.format == format
        assert found.nnz == (matrix != 0).sum()
        np.testing.assert_allclose(found.toarray(), matrix, **CLOSE)
    assert isinstance(jacobian.to_scipy(), scipy_sparse.csr_array)
    bcoo, bcsr = jacobian.to_bcoo(), jacobian.to_bcsr()
    assert bcoo.nse == bcsr.nse == jacobian.nse
    assert bcoo.unique_indices
    assert bcoo.indices_sorted
    np.testing.assert_allclose(bcoo.todense(), dense, **CLOSE)
    np.testing.assert_allclose(bcsr.todense(), matrix, **CLOSE)
    np.testing.assert_allclose(np.asarray(jacobian), dense, **CLOSE)


def test_arithmetic(both):
    jacobian, dense = both
    transposed = jacobian.T
    rank = len(jacobian.out_shape)
    cases = {
        "sum": (jacobian + jacobian, 2 * dense),
        "difference": (jacobian - 3 * jacobian, -2 * dense),
        "scaled": (jacobian * 2.5 / 2, 1.25 * dense),
        "negative": (-jacobian, -dense),
        "gram": (transposed @ jacobian, np.tensordot(np.moveaxis(dense, -1, 0), dense, rank)),
    }
    for name, (found, expected) in cases.items():
        np.testing.assert_allclose(np.asarray(found), expected, err_msg=name, **CLOSE)
    v = np.random.default_rng(1).normal(size=(2, *jacobian.out_shape))
    np.testing.assert_allclose(v @ jacobian, np.tensordot(v, dense, rank), **CLOSE)
    for columns in (X, np.stack([X, X**2], 1)):
        np.testing.assert_allclose(jacobian @ columns, dense @ columns, **CLOSE)


def test_parts(both):
    jacobian, dense = both
    matrix = np.asarray(dense).reshape(N, N)
    diagonal = jacobian.diagonal()
    assert diagonal.shape == jacobian.out_shape
    np.testing.assert_allclose(diagonal.reshape(-1), matrix.diagonal(), **CLOSE)
    np.testing.assert_allclose(jacobian.trace(), matrix.trace(), **CLOSE)
    for index in (np.s_[1], np.s_[..., 2:5], np.s_[:2, ..., ::-1], np.s_[..., np.array([4, 0, 4])]):
        np.testing.assert_allclose(np.asarray(jacobian[index]), np.asarray(dense)[index], **CLOSE)
    rows, cols = np.nonzero(matrix)
    assert jacobian.bandwidth == (max(0, (rows - cols).max()), max(0, (cols - rows).max()))


def test_a_pattern_serves_all_values(x64):
    fun = veenv.jacve(gathered, sparse_representation=True)
    pattern = quick_jit(fun)(X).pattern
    values = quick_jit(lambda x: fun(x).values(pattern))(X)
    dense = np.asarray(quick_jit(jax.jacrev(gathered))(X))
    np.testing.assert_allclose(values, dense[pattern.rows, pattern.cols], **CLOSE)
    own = quick_jit(fun)(X)
    other = quick_jit(veenv.jacve(banded, sparse_representation=True))(X)
    both = (own + other).pattern
    np.testing.assert_allclose(own.values(both), dense[both.rows, both.cols], **CLOSE)
    with pytest.raises(ValueError, match="no entry at"):
        other.values(pattern)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_pattern_is_worked_out_once(name, x64):
    """For all results of a compiled function, and SciPy's columns with it."""
    compiled = jax.jit(veenv.jacve(FUNCTIONS[name], sparse_representation=True))
    first, second = compiled(X), compiled(2 * X)
    assert first.pattern is second.pattern
    assert first.pattern.by_column is second.pattern.by_column
    columns = second.to_scipy("csc")
    assert columns.has_canonical_format
    columns.data[:] = 0  # it is the caller's own
    columns.indices[:] = 0
    assert (second.to_scipy("csc") != first.to_scipy("csc")).nnz


def test_equal_patterns_are_one_for_jit(x64):
    fun = jax.jit(veenv.jacve(gathered, sparse_representation=True))
    other = jax.jit(veenv.jacve(lambda x: gathered(x), sparse_representation=True))
    traced = []

    @jax.jit
    def dense(jacobian):
        traced.append(1)
        return jacobian.todense()

    dense(fun(X))
    dense(other(X))
    assert len(traced) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch(name, x64):
    fun = FUNCTIONS[name]
    xs = np.stack([X, X[::-1]])
    jacobians = veenv.jacve(fun, sparse_representation=True), jax.jacrev(fun)
    batch, dense = together(map(jax.vmap, jacobians), xs)
    assert batch.shape == dense.shape
    np.testing.assert_allclose(batch.todense(), dense, **CLOSE)
    products = np.einsum("b...j,bj->b...", dense, xs)
    np.testing.assert_allclose(batch @ xs, products, **CLOSE)
    diagonal = np.asarray(dense).reshape(2, N, N).diagonal(axis1=1, axis2=2)
    np.testing.assert_allclose(batch.diagonal().reshape(2, N), diagonal, **CLOSE)
    assert batch.to_bcoo().shape == dense.shape


def test_scan_carries_a_jacobian(x64):
    fun = veenv.jacve(banded, sparse_representation=True)

    def step(jacobian, _):
        return jacobian * 2.0, None

    start = quick_jit(fun)(X) * 1.0
    twice, _ = jax.lax.scan(step, start, length=2)
    np.testing.assert_allclose(np.asarray(twice), 4 * np.asarray(start), **CLOSE)
    given = jax.jit(lambda j: j * 2.0, donate_argnums=0)(jax.tree.map(jnp.copy, start))
    np.testing.assert_allclose(np.asarray(given), 2 * np.asarray(start), **CLOSE)


def test_what_cannot_be_done_is_said():
    jacobian = veenv.jacve(lambda x: x[1:] * x[0], sparse_representation=True)(jnp.ones(3))
    with pytest.raises(ValueError, match="as many rows as columns"):
        jacobian.diagonal()
    with pytest.raises(ValueError, match="only square systems"):
        jacobian.solve(jnp.ones(2))
    with pytest.raises(ValueError, match="one shape"):
        jacobian + jacobian.T
    with pytest.raises(IndexError, match="2 axes"):
        jacobian[0, 0, 0]
    with pytest.raises(ValueError, match=r"last axes must be \(2,\)"):
        jnp.ones(3) @ jacobian
    with pytest.raises(ValueError, match=r"first axes must be \(3,\)"):
        jacobian @ jnp.ones(4)
    cut = veenv.jacve(lambda x, i: jax.lax.dynamic_slice(x, (i,), (4,)), sparse_representation=True)
    with pytest.raises(ValueError, match="computed"):
        jax.jit(lambda x, i: cut(x, i).values())(jnp.ones(64), 2)


def test_representation_is_one_line():
    short = lambda fun, x: repr(veenv.jacve(fun, sparse_representation=True)(x))  # noqa: E731
    many = jnp.ones(500, jnp.float32)
    assert short(lambda x: jnp.roll(x, 1) * x, many) == "SparseTensor(float32[500, 500], nse=1000)"
    assert short(lambda x: x[::-1] * x[0], many) == "SparseTensor(float32[500, 500], nse=999)"
    assert short(jnp.zeros_like, jnp.ones(3, jnp.float16)) == "SparseTensor(float16[3, 3], nse=0)"
    tensor = veenv.jacve(grid, sparse_representation=True)
    shapes = "out_shape=(2, 3), in_shape=(6,), nse=10"
    assert repr(tensor(many[:6])) == f"SparseTensor(float32[2, 3, 6], {shapes})"
    batch = jax.vmap(tensor)(jnp.ones((4, 6), jnp.float32))
    assert repr(batch) == f"SparseTensor(float32[4, 2, 3, 6], {shapes})"
    assert repr(jax.eval_shape(tensor, many[:6])) == repr(tensor(many[:6]))
    assert repr(tensor(many[:6]).pattern) == f"Pattern({shapes})"
    seen = []
    jax.jit(lambda x: seen.append(repr(tensor(x))) or x)(many[:6])
    assert seen == [repr(tensor(many[:6]))]
    assert "object" in repr(jax.tree.map(lambda _: object(), batch))
