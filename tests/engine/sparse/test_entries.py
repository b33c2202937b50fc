"""Jacobians through gathers, scatters and reshapes store the true pattern and no more."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import check_sparse, quick_jit, together
from tests.sampling import thinned
from veenv.measure.arithmetic import multiplications_in

PERM = np.array([3, 0, 2, 5, 1, 4, 7, 11, 10, 9, 8, 6])
SEGMENTS = np.array([0, 4, 2, 2, 1, 0, 3, 3, 3, 1, 4, 0])
ENDS = np.array([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])


def flat_blocks(z):
    return jax.vmap(lambda r: jnp.stack([r[0] * r[1], jnp.sin(r[2])]))(z.reshape(-1, 3)).reshape(-1)


def springs(z):
    p = z.reshape(6, 2)
    d = p[ENDS[0]] - p[ENDS[1]]
    force = d * jnp.exp(-jnp.sum(d * d, axis=-1, keepdims=True))
    return jnp.zeros((6, 2)).at[ENDS[0]].add(force).at[ENDS[1]].add(-force).ravel()


def brusselator(z):
    u, v = z.reshape(2, 4, 4)

    def spread(w):
        across = jnp.roll(w, 1, 1) - 2 * w + 0.5 * jnp.roll(w, -1, 1)
        return across + jnp.roll(w, 1, 0) - 3 * w + 0.25 * jnp.roll(w, -1, 0)

    return jnp.stack([1 + u * u * v - 4 * u + spread(u), 3 * u - u * u * v + spread(v)]).ravel()


def padded_grid(z):
    u = jnp.pad(z.reshape(3, 4), 1)
    inner = u[1:-1, 1:-1]
    return (inner * (u[2:, 1:-1] + u[1:-1, :-2] - 4 * inner)).ravel()


def cameras(z):
    """Bundle adjustment in small: poses and points, gathered for each observation."""
    poses, points = z[:4].reshape(2, 2), z[4:].reshape(4, 2)
    seen = jax.vmap(lambda c, p: c * jnp.sin(p) / (p[0] + 4))
    return seen(poses[np.array([0, 1, 0, 1, 1])], points[np.array([0, 1, 2, 3, 0])]).reshape(-1)


def rows(x, indices):
    return jax.vmap(lambda r, i: r[i])(x.reshape(4, 3) ** 2, indices)


CASES = {
    "permutation": lambda x: jnp.sin(x)[PERM], "flat_blocks": flat_blocks, "springs": springs,
    "cameras": cameras, "padded_grid": padded_grid,
    "set": lambda x: x.at[3:7].set(x[:4] ** 2),
    "set_indices": lambda x: jnp.sin(x).at[np.array([1, 5, 30])].set(x[:3] ** 2),
    "add_twice": lambda x: jnp.sin(x).at[np.array([1, 1, 30])].add(x[:3] ** 2),
    "segment_sum": lambda x: jax.ops.segment_sum(x * x, SEGMENTS, 5),
    "take_along_axis": lambda x: jnp.take_along_axis(x.reshape(3, 4) ** 2,
        np.array([[0], [3], [1]]), 1),
    "windows": lambda x: (x.reshape(4, 3) ** 2)[np.array([1, 3, -1]), 1:],
    "batched_gather": lambda x: rows(x, np.array([[0, 2], [1, 1], [2, 0], [0, 0]])),
    "batched_set": lambda x: jax.vmap(lambda r, i: r.at[i].set(r[:2] ** 2))(x.reshape(4, 3),
        np.array([[0, 2], [1, 2], [2, 0], [0, 1]])),
    "convolution": lambda x: jnp.convolve(jnp.sin(x), np.array([1.0, -2, 1]), "same"),
    "strided_convolution": lambda x: jax.lax.conv_general_dilated(x.reshape(1, 2, 6) ** 2,
        np.arange(1.0, 13).reshape(3, 2, 2), (2,), [(1, 2)], rhs_dilation=(2,)),
    "dynamic_slices": lambda x: jax.lax.dynamic_update_slice(x,
        jnp.sin(jax.lax.dynamic_slice(x, (7,), (4,))), (2,)),
    "diagonal_beside": lambda x: jnp.exp(x)[PERM] * x,
    "dilated_pad": lambda x: jax.lax.pad(x.reshape(3, 4) ** 2, 0.0, [(1, -1, 1), (-1, 2, 2)]),
    "brusselator": lambda x: jnp.concatenate([brusselator(x)]),
    "sum_of_many_bands": lambda x: brusselator(jnp.concatenate([x, x[:4], x, x[-4:]])),
    "diagonal": lambda x: jnp.diagonal(x[:9].reshape(3, 3)) ** 2,
    "diagonal_matrix": lambda x: jnp.diag(x[:4] ** 2) * 3,
    "triangle": lambda x: jnp.tril(x[:9].reshape(3, 3)) ** 2,
    "known_select": lambda x: jnp.where(PERM > 5, x * x, jnp.where(PERM > 3, x[::-1], 0)),
    "one_branch_known": lambda x: jnp.where(PERM > 5, jnp.log(x), 1.0) * x,
    "set_a_number": lambda x: (x * 2).at[1].set(x[0] * x[2]) * x,
    "multiplied": lambda x: x.at[PERM[:3]].multiply(x[3:6], unique_indices=True),
    "running": lambda x: jnp.cumsum(x.reshape(3, 4) ** 2, 1) * jnp.cumprod(x.reshape(3, 4), 0),
    "pooled": lambda x: jax.lax.reduce_window(x.reshape(3, 4) ** 2, 0.0, jax.lax.add, (2, 2),
        (1, 2), "SAME"),
    "product": lambda x: jnp.sin(x.reshape(3, 4)) @ x.reshape(3, 4).T,
    "sum": lambda x: x.sum() * x,
    "scan": lambda x: jax.lax.scan(lambda c, a: (c * a, c + a), 1.0, x)[1],
    "grouped_convolution": lambda x: jax.lax.conv_general_dilated(x.reshape(1, 2, 6),
        np.arange(1.0, 7).reshape(2, 1, 3), (1,), "SAME", feature_group_count=2),
}  # fmt: skip

SIZES = {"brusselator": 32}


@pytest.mark.parametrize("name", thinned(CASES, 3))
def test_only_true_entries_are_stored(name, x64):
    fun = CASES[name]
    x = np.random.default_rng(3).uniform(0.5, 1.5, size=SIZES.get(name, 12))
    jacobian, dense = check_sparse(fun, x)
    p, true = jacobian.pattern, dense.reshape(-1, x.size) != 0
    np.testing.assert_array_equal(np.argwhere(true), np.stack([p.rows, p.cols], axis=1))


def test_what_a_known_select_shuts_out_may_be_infinite(x64):
    x = np.array([0.0, 1.0, 2.0])

    def fun(x):
        return jnp.where(np.array([False, True, True]), jnp.log(x), 0.0) ** 2

    jacobian = quick_jit(veenv.jacve(fun, sparse_representation=True))(x)
    np.testing.assert_allclose(np.asarray(jacobian), np.diag([0, 0, np.log(2.0)]))


def test_what_a_select_shuts_out_stays_shut_out(x64):
    def guarded(x):
        return jnp.where(x > 0, jnp.log(jnp.abs(x)), 0.0)[np.array([2, 0, 1])] * x

    x = jnp.array([1.0, 0.0, 2.0])
    jacobian = quick_jit(veenv.jacve(guarded, sparse_representation=True))(x)
    expected = np.diag([np.log(2.0), 0, 0])
    expected[0, 2], expected[1, 0] = 0.5, 0.0
    np.testing.assert_allclose(np.asarray(jacobian), expected, atol=1e-15)


AT_RUN_TIME = {
    "gather": (lambda x, i: jnp.sin(x)[i] * x[:4], 8),
    "longer_gather": (lambda x, i: jnp.sin(x[:3])[jnp.tile(i, 6) % 3] * 2, 24),
    "rows": (lambda x, i: (x.reshape(6, 2) ** 2)[i % 6], 8),
    "along": (lambda x, i: jnp.take_along_axis(x.reshape(4, 3) ** 2, (i % 3)[:, None], 1), 4),
    "add": (lambda x, i: x.at[i].add(jnp.sin(x[:4])), 16),
    "set": (lambda x, i: x.at[i].set(jnp.sin(x[:4])), 24),
    "set_a_number": (lambda x, i: x.at[i[0]].set(jnp.sin(x[3]) * x[1]), 14),
    "springs": (lambda x, i: jnp.zeros(12).at[i].add(jnp.sin(x[i] - x[(i + 1) % 12])), 8),
    "filled": (lambda x, i: x.at[i * 3].get(mode="fill", fill_value=0.0) ** 2, 4),
    "dynamic": (lambda x, i: jax.lax.dynamic_update_slice(x,
        jax.lax.dynamic_slice(x**2, (i[0],), (3,)), (i[3],)), 24),
}  # fmt: skip
"""Functions of a vector and four indices, and the entries of their Jacobians inside of jit."""


@pytest.mark.parametrize("name", thinned(AT_RUN_TIME, 2))
def test_indices_that_are_arguments_give_entries(name, x64):
    fun, entries = AT_RUN_TIME[name]
    x, i = np.random.default_rng(0).uniform(0.5, 1.5, size=12), np.array([4, 0, 4, 7])
    sizes = []

    @jax.jit
    def both(x, i):
        jacobian = veenv.jacve(fun, sparse_representation=True)(x, i)
        sizes.append(jacobian.nse)
        return jacobian, jax.jacrev(fun)(x, i)

    jacobian, dense = both(x, i)
    assert sizes == [entries]
    np.testing.assert_allclose(np.asarray(jacobian), dense, rtol=1e-12, atol=1e-12)
    matrix = np.asarray(dense).reshape(-1, 12)
    assert jacobian.nse == (matrix != 0).sum()
    np.testing.assert_allclose(jacobian.to_scipy().toarray(), matrix, rtol=1e-12, atol=1e-12)


def test_tensors_with_computed_places_add_and_multiply(x64):
    fun, _ = AT_RUN_TIME["springs"]
    x, i = np.random.default_rng(0).uniform(0.5, 1.5, size=(2, 12)), np.array([[4, 0, 4, 7]] * 2)
    i[1] = i[1, ::-1] + 1
    jacobians = veenv.jacve(fun, sparse_representation=True), jax.jacrev(fun)
    tensors, dense = together(map(jax.vmap, jacobians), x, i)
    np.testing.assert_allclose(tensors.todense(), dense, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tensors @ x, jnp.einsum("bij,bj->bi", dense, x), rtol=1e-12)
    one = jax.tree.map(lambda leaf: leaf[0], tensors)
    np.testing.assert_allclose(np.asarray(one + 2 * one), 3 * dense[0], rtol=1e-12)
    np.testing.assert_allclose(x[0] @ one, x[0] @ dense[0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(np.asarray(one.T @ one), dense[0].T @ dense[0], atol=1e-12)


def test_sums_of_entries_are_eliminated_where_the_order_has_them(x64):
    """Copies come first, whatever the order, as they take no operation: sums are none."""

    def fun(x):
        every = jnp.concatenate([jnp.sin(x), jnp.cos(x), jnp.exp(x)])
        sums = jax.ops.segment_sum(every, np.arange(24) % 8, 8)
        return jnp.concatenate([jnp.sin(sums), jnp.cos(sums), sums**3])

    x, graph = np.linspace(0.1, 1.0, 8), veenv.make_graph(fun)(np.ones(8))
    options = {"sparse_representation": True, "kernel": "xla"}
    forward, reverse = (
        multiplications_in(jax.make_jaxpr(veenv.jacve(fun, ids, **options))(x))
        for ids in (graph.forward(), graph.reverse())
    )
    assert 2 * forward < reverse
