"""Batch axes of primitives that are left as operators, against dense Jacobians of JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy.sparse.linalg import cg

import veenv
from tests.oracles.jacobians import quick_jit
from tests.sampling import spared, thinned

EYE = 2 * np.eye(3)


def loop(x):
    return lax.scan(lambda c, _: (c * jnp.sin(c[::-1]), c.sum()), x, None, length=4)


def fed(x, y):
    return lax.scan(lambda c, t: (jnp.sin(c) * x[0] + t, c.sum() + t), x[1], y)


def until(x):
    return lax.while_loop(lambda c: jnp.abs(c).sum() < 30, lambda c: c * (2 + c[::-1] ** 2), x)


def fork(x):
    return lax.cond(x.sum() > 0, jnp.sin, lambda v: v * v[::-1], x) * x


def halves(a):
    return lax.scan(lambda c, _: (jnp.linalg.cholesky(c @ c.T + EYE), c[0]), a, None, length=2)


def newton(x):
    stop = lambda c: jnp.abs(c * c - jnp.abs(x)).max() > 1e-8  # noqa: E731
    return lax.while_loop(stop, lambda c: 0.5 * (c + jnp.abs(x) / c), jnp.abs(x) + 1)


def two_carries(x, y):
    step = lambda c, _: ((jnp.sin(c[0]) * c[0][::-1], c[1] * c[0].sum()), None)  # noqa: E731
    return lax.scan(step, (x, y), None, length=3)[0]


def conjugate_gradients(x):
    return cg(lambda v: jnp.array([1.0, 4.0, 9.0]) * v, jnp.sin(x), maxiter=2)[0]


def solved_with_aux(x):
    scale = jnp.array([2.0, 3.0, 4.0])
    solver = lambda mv, r: (r / scale, jnp.float64(7.0))  # noqa: E731
    product = lambda v: scale * v  # noqa: E731
    y, _ = lax.custom_linear_solve(product, x, solver, transpose_solve=solver, has_aux=True)
    return y * y


def filtered(x):
    kernel = jnp.array([[[0.5]], [[-1.0]], [[2.0]]])
    signal = jnp.sin(x)[None, :, None]
    spec = ("NHC", "HIO", "NHC")
    return lax.conv_general_dilated(signal, kernel, (1,), "SAME", dimension_numbers=spec)[0, :, 0]


def pooled(x):
    return lax.reduce_window(jnp.sin(x), -jnp.inf, lax.max, (2,), (1,), "VALID")


CASES = {
    "scan": (loop, [(3,)]), "scan of inputs": (fed, [(3,), (4,)]),
    "two carries": (two_carries, [(3,), (2,)]), "while": (until, [(3,)]),
    "while, then a sine": (lambda x: jnp.sin(until(x)), [(3,)]),
    "while, then a sum": (lambda x: (until(x) ** 2).sum(), [(3,)]),
    "while that tests against an input": (newton, [(3,)]),
    "map": (lambda x: lax.map(lambda r: jnp.sin(r) * jnp.cos(r), x), [(3,)]),
    "loop of known length": (lambda x: lax.fori_loop(0, 3, lambda i, c: c * jnp.sin(c), x), [(3,)]),
    "cond": (fork, [(3,)]),
    "solve": (lambda a, x: jnp.linalg.solve(a + 4 * EYE, x), [(3, 3), (3,)]),
    "inexact solve": (conjugate_gradients, [(3,)]),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + EYE), [(3, 3)]),
    "eigenvalues": (lambda a: jnp.linalg.eigvalsh(a + a.T), [(3, 3)]),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), [(3, 3)]),
    "inverse": (lambda a: jnp.linalg.inv(a + 4 * EYE), [(3, 3)]),
    "loop over a decomposition": (halves, [(3, 3)]),
    "gather": (lambda x: x[jnp.array([2, 0, 2])] * x, [(3,)]),
    "gather by data": (lambda x: x[jnp.argsort(x)[:2]] ** 2, [(3,)]),
    "scatter": (lambda x: jnp.sin(x).at[jnp.array([1, 1])].add(x[:2]), [(3,)]),
    "sort": (lambda x: jnp.sort(jnp.sin(x)), [(3,)]),
    "top_k": (lambda x: lax.top_k(x * x, 2)[0], [(3,)]),
    "cumulative product": (lambda x: jnp.cumprod(x) * x, [(3,)]),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)) ** 2, [(4,)]),
    "fft of real arrays": (lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, [(4,)]),
    "complex": (lambda x: jnp.exp(lax.complex(0 * x, x))[::-1].real * x, [(3,)]),
    "convolution": (filtered, [(4,)]), "pooling": (pooled, [(4,)]),
    "gradient of pooling": (jax.grad(lambda x: (pooled(x) ** 2).sum()), [(4,)]),
}  # fmt: skip


def points(shapes, batch):
    rng = np.random.default_rng(batch)
    return [rng.normal(size=(batch, *shape)) for shape in shapes]


def sparse_and_dense(fun, args, order):
    argnums = tuple(range(len(args)))
    is_sparse = lambda leaf: isinstance(leaf, veenv.SparseTensor)  # noqa: E731

    @quick_jit
    def all_three(*args):
        sparse = veenv.jacve(fun, order, argnums, sparse_representation=True)(*args)
        dense = jax.tree.map(lambda j: j.todense(), sparse, is_leaf=is_sparse)
        # A loop of unknown length has no reverse mode in JAX.
        expected = jax.jacfwd(fun, argnums)(*args)
        return sparse, expected, dense, veenv.jacve(fun, order, argnums)(*args)

    sparse, expected, *dense = all_three(*args)
    for got in dense:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), got, expected
        )
    leaves = jax.tree.leaves(sparse, is_leaf=is_sparse)
    return sum(leaf.nse for leaf in leaves)


# One of each mechanism: bodies of every kind, solves, decompositions, selections, transforms.
DEFAULT = (
    *("scan", "while that tests against an input", "cond", "solve", "gather by data", "sort"),
    *("complex", "convolution"),
)


@pytest.mark.parametrize("order", [pytest.param("forward", marks=pytest.mark.slow), "reverse"])
@pytest.mark.parametrize("name", spared(CASES, *DEFAULT))
def test_a_batch_takes_its_own_memory(name, order, x64):
    fun, shapes = CASES[name]
    entries = [sparse_and_dense(jax.vmap(fun), points(shapes, batch), order) for batch in (3, 6)]
    assert entries[1] == 2 * entries[0]


def test_steps_of_a_map_are_apart(x64):
    x = jnp.linspace(-1.0, 1.0, 12).reshape(4, 3)
    weights = jnp.arange(1.0, 10.0).reshape(3, 3)
    fun = lambda x: lax.map(lambda r: jnp.sin(weights @ r), x)  # noqa: E731
    got = veenv.jacve(fun, "reverse", sparse_representation=True)(x)
    np.testing.assert_allclose(got.todense(), jax.jacrev(fun)(x), rtol=1e-12)
    assert got.nse == 4 * 3 * 3


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_solve_with_an_auxiliary_result(order, x64):
    sparse_and_dense(solved_with_aux, [jnp.arange(1.0, 4.0)], order)


def test_a_solver_that_keeps_its_start_is_as_in_jax(x64):
    """No unknown is free of a right side, whatever an inexact solver makes of it."""
    start, scales = jnp.array([1.0, 2.0, 3.0]), jnp.array([2.0, 4.0, 5.0])
    solver = lambda _, b: start  # noqa: E731
    fun = lambda b: lax.custom_linear_solve(  # noqa: E731
        lambda v: scales * v, jnp.sin(b), solver, solver
    )
    b = np.array([0.3, -0.7, 1.1])
    found = veenv.jacve(fun, "forward", kernel="xla")(b)
    np.testing.assert_allclose(found, jax.jacfwd(fun)(b), rtol=1e-12)


MIXING = {
    "loop": lambda x: lax.scan(lambda c, _: (jnp.sin(c) + c.mean(0)[None], c), x, None, length=3),
    "turned": lambda x: lax.scan(lambda c, _: (jnp.sin(c).T + c, c), x, None, length=3),
    "fed back": lambda x: lax.scan(lambda c, _: ((c[1], c[0].T), c[0]), (x, x), None, length=3),
    "one branch": lambda x: lax.cond(x.sum() > 9, jnp.sin, lambda v: v * v.mean(0)[None], x),
    "rows": lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x),
    "sort": lambda x: jnp.sort(x * x, axis=0),
    "gather": lambda x: x[jnp.array([2, 0, 2])] * x,
    "solve": lambda x: jnp.linalg.solve(x @ x.T + EYE, x),
}


@pytest.mark.parametrize("order", [pytest.param("reverse", marks=pytest.mark.slow), "forward"])
@pytest.mark.parametrize("name", thinned(MIXING, 2))
def test_axes_that_mix(name, order, x64):
    sparse_and_dense(MIXING[name], points([(3,)], 3), order)


def test_a_call_in_a_loop_with_a_constant_that_has_no_derivative(x64):
    def turn(c, a):
        call = jax.custom_derivatives.linear_call
        return call(lambda r, v: r * v, lambda r, v: r * v, a, c)

    a = jnp.arange(1.0, 4.0)
    step = lambda c, _: (turn(c, a) + c, None)  # noqa: E731
    got = veenv.jacve(lambda x: lax.scan(step, x, None, length=2)[0].sum(), "reverse")(jnp.ones(3))
    np.testing.assert_allclose(got, (1 + a) ** 2, rtol=1e-12)


def test_a_linear_call_by_values_of_its_input(x64):
    """Its columns are taken one by one: the call has no rule for a batch."""
    scale = lambda r, v: r * v  # noqa: E731
    call = jax.custom_derivatives.linear_call
    fun = lambda x: call(scale, scale, lax.stop_gradient(x), jnp.sin(x))  # noqa: E731
    x = np.array([0.3, -0.7, 1.1])
    found = veenv.jacve(fun, "reverse", kernel="xla")(x)
    np.testing.assert_allclose(found, np.diag(x * np.cos(x)), rtol=1e-12)
