"""Sparse Jacobians of what does the same at each element: blocks of one point, put to places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import check_sparse, quick_jit
from tests.sampling import spared
from veenv.engine.repeated import batched_region
from veenv.engine.repeated.outlining import outline_regions
from veenv.graph.program import trace

pytestmark = pytest.mark.usefixtures("x64")

NODES, ELEMENTS, CORNERS = 10, 7, 4
CELLS = np.random.default_rng(0).permuted(np.tile(np.arange(NODES), (ELEMENTS, 1)), axis=1)
CELLS = CELLS[:, :CORNERS]
DATA = np.random.default_rng(1).normal(size=(ELEMENTS, CORNERS))
ORDER = np.random.default_rng(2).integers(0, CORNERS, (ELEMENTS, 3))
X = np.random.default_rng(3).uniform(0.5, 1.5, NODES)


def chain(u, data):
    """Enough for a part of its own."""
    v = jnp.sin(u) * data + jnp.cos(u * u)
    for _ in range(4):
        v = jnp.tanh(v) * u + v
    return v


def definite(u, data):
    a = jnp.outer(u, data) + jnp.diag(3 + u * u)
    return a @ a.T + jnp.eye(CORNERS)


def of_quadrature(u, data, order):
    def energy(u):
        at = lambda q: jnp.linalg.slogdet(definite(q * u, data))[1]  # noqa: E731
        return jnp.sum(jax.vmap(at)(jnp.array([0.8, 1.2])))

    return jax.grad(energy)(u)


def of_parts(u, data, order):
    """Some results depend on some numbers."""
    return jnp.stack([chain(u, data)[0] * u[1], u[2] ** 3 * data[1], chain(u, data)[2]])


def of_indices(u, data, order):
    return chain(u, data)[order] + jnp.zeros(CORNERS).at[order].add(u[:3])[:3]


def of_cases(u, data, order):
    return jnp.where(data > 0, chain(u, data), u * jnp.sum(u))


def of_solves(u, data, order):
    return chain(jnp.linalg.solve(definite(u, data), u), data)


def of_triangles(u, data, order):
    lower = jnp.linalg.cholesky(definite(u, data))
    return jax.scipy.linalg.solve_triangular(lower, chain(u, data), lower=True)


def of_sorted(u, data, order):
    return jnp.sort(chain(u, data))


def assembled(point, added: bool = True):
    def fun(x):
        each = jax.vmap(point)(x[CELLS], jnp.asarray(DATA), jnp.asarray(ORDER))
        if not added:
            return each.ravel()
        return jnp.zeros(NODES).at[CELLS[:, : each.shape[1]]].add(each)

    return fun


def check(fun):
    check_sparse(fun, X, oracle=jax.jacfwd, rtol=1e-11, atol=1e-11)


def equations_of(fun, x):
    """The names of a function's equations, with what is the same at each point as one."""
    program = trace(fun, (jnp.asarray(x),))
    return [e.primitive.name for e in outline_regions(program, lambda fun, argnums: fun).equations]


@pytest.mark.parametrize(
    "point", spared([of_quadrature, of_parts, of_indices], of_parts, of_indices)
)
def test_blocks_of_elements(point):
    check(assembled(point))
    assert batched_region.NAME in equations_of(assembled(point), X)


@pytest.mark.kernels
@pytest.mark.parametrize("options", [{"kernel": "xla"}, {"pin": True}, {"pin": False}], ids=str)
def test_blocks_are_no_kernels_where_xla_is_asked_for(options):
    def text(**options):
        jacobian = veenv.jacve(assembled(of_parts), sparse_representation=True, **options)
        return jax.jit(lambda x: jacobian(x).values()).lower(X).as_text()

    assert "veenv_fused_kernel" in text()
    assert "veenv_fused_kernel" not in text(**options)


@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True], ids=["one by one", "added"])
@pytest.mark.parametrize("point", [of_cases, of_solves, of_triangles, of_sorted])
def test_blocks_of_many_kinds(point, added):
    check(assembled(point, added))


def test_a_part_before_and_behind_a_sum_of_neighbours():
    def fun(x):
        force = assembled(lambda u, data, order: chain(u, data))
        return force(jnp.tanh(force(x)))

    check(fun)


def test_empty_arrays_have_no_parts():
    """A roll by none has a slice without elements."""
    check(lambda x: jnp.roll(jnp.sin(x), 0) * jnp.concatenate([x[:0], x[1:], x[:1]]))


def test_what_a_case_shuts_out_meets_no_infinity():
    """As in a reverse sweep of the same function: a root of zero is behind the case."""

    def fun(x):
        each = jax.vmap(lambda u: jnp.where(u > 1, chain(u, u) ** 2, 0 * u))(x[CELLS])
        return jnp.sqrt(each).ravel()

    found, expected = (
        quick_jit(veenv.jacve(fun, order, sparse_representation=True))(X).todense()
        for order in ("auto", "reverse")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_auxiliary_results_and_values_of_a_part():
    def fun(x):
        each = jax.vmap(chain)(x[CELLS], jnp.asarray(DATA))
        return each.ravel(), (each > 1, each)

    value, _ = fun(X)
    sparse = quick_jit(veenv.jacve(fun, has_aux=True, sparse_representation=True))
    jacobian, (flags, each) = sparse(X)
    np.testing.assert_allclose(each.ravel(), value, rtol=1e-14)
    np.testing.assert_array_equal(flags, each > 1)
    expected = quick_jit(jax.jacfwd(lambda x: fun(x)[0]))(X)
    np.testing.assert_allclose(np.asarray(jacobian), expected, rtol=1e-12, atol=1e-12)


def test_a_result_cut_from_the_inputs_needs_no_derivative():
    """A callback reads a sum of a part, which has other uses, without its derivatives."""

    def doubled(u):
        total = jax.ShapeDtypeStruct((), u.dtype)
        cut = jax.lax.stop_gradient(jnp.sum(u))
        return jax.pure_callback(lambda t: 2 * np.asarray(t), total, cut, vmap_method="sequential")

    check(assembled(lambda u, data, order: chain(u, data) * jnp.sum(u) * doubled(u)))
