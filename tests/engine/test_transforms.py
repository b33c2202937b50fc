"""`jacve` under JAX's transformations and under itself, against JAX and against known values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veenv
from tests.oracles.jacobians import assert_compiled_same, assert_same, quick_jit, together
from tests.sampling import spared
from veenv import jacve

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([0.3, -0.7, 1.1])
XS = np.array([[0.3, -0.7, 1.1], [0.9, 0.4, -1.2]])
ORDERS = ["forward", "reverse", "markowitz"]


def field(x):
    """ℝ³ → ℝ²."""
    return jnp.stack([jnp.sin(x[0]) * x[1] * x[2], jnp.exp(x[1]) / (2 + x[0] ** 2)])


def energy(x):
    """ℝ³ → ℝ."""
    return jnp.sum(jnp.sin(x) * x[::-1] ** 2) + jnp.prod(x)


def network(params, x):
    return jnp.tanh(params["w"] @ x["data"] + params["b"]) * x["gain"]


PARAMS = {"w": XS, "b": np.array([0.1, -0.2])}
POINT = {"data": X, "gain": np.asarray(1.5)}


def assert_all_same(through, expected, *args):
    """In one program: `through` with `jacve` in every order against `expected`, a function."""
    every = [through(lambda f, order=order: jacve(f, order)) for order in ORDERS]
    right, *found = together([expected, *every], *args)
    for order, got in zip(ORDERS, found, strict=True):
        assert_same(got, right, named=f"order {order}")


def test_jit():
    """A function that is compiled itself, in every order, and one Jacobian outside of jit."""
    ours = [jacve(jax.jit(field), order) for order in ORDERS]
    assert_compiled_same([(jacobian, jax.jacrev(field)) for jacobian in ours], X)
    assert_same(ours[0](X), quick_jit(jax.jacrev(field))(X))


AXES = [(0, 0), (1, 0), (0, 1), (1, -1)]


@pytest.mark.parametrize(("in_axes", "out_axes"), spared(AXES, (0, 0), (1, -1)))
def test_vmap_of_jacve_and_jacve_of_vmap(in_axes, out_axes):
    mapped = lambda fun: jax.vmap(fun, in_axes, out_axes)  # noqa: E731
    for through in (lambda jac: mapped(jac(field)), lambda jac: jac(mapped(field))):
        assert_all_same(through, through(jax.jacrev), XS if in_axes == 0 else XS.T)


def test_vmap_with_a_collective_inside_jacve():
    """A function in which `jax.jacfwd` and `jax.jacrev` agree about what a collective means.

    Inside the mapped axis a Jacobian is one row's; jacrev sums the collective's part over the
    rows of the output, jacfwd over those of the input, so only equal weights give one answer.
    """

    def fun(x):
        mean = jax.lax.pmean(jnp.sum(3 * x), "rows")
        return field(x) / jax.lax.psum(1, "rows") + mean + jax.lax.psum(x[:2] * 0.5, "rows")

    through = lambda jacobian: jax.vmap(jacobian(fun), axis_name="rows")  # noqa: E731
    assert_same(*(quick_jit(through(jacobian))(XS) for jacobian in (jax.jacfwd, jax.jacrev)))
    assert_all_same(through, through(jax.jacrev), XS)


@pytest.mark.parametrize("outer", ORDERS)
def test_hessian(outer):
    assert_all_same(lambda inner: jacve(inner(energy), outer), jax.hessian(energy), X)
    got = quick_jit(jacve(jacve(energy, "markowitz"), outer))(X)
    np.testing.assert_allclose(got, got.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_hessian_through_strided_slices(sparse):
    """The transpose of a strided slice pads by NumPy integers; here it meets the slice again."""

    def every_other(x):
        return jnp.sum(jnp.sin(x[::2] * x[::2]))

    got = veenv.hessian(every_other, sparse_representation=sparse)(X)
    assert_same(got.todense() if sparse else got, jax.hessian(every_other)(X))


@pytest.mark.parametrize(
    "nest",
    [lambda f: jax.jacfwd(jacve(jax.grad(f), "forward")),
        lambda f: jacve(jax.jacrev(jacve(f, "reverse")), "markowitz"),
        lambda f: jax.jacrev(jacve(jacve(f, "forward"), "reverse"))],
    ids=["jacfwd-jacve-grad", "jacve-jacrev-jacve", "jacrev-jacve-jacve"],
)  # fmt: skip
def test_third_order_mixed_with_jax(nest):
    assert_compiled_same([(nest(energy), jax.jacfwd(jax.hessian(energy)))], X)


def test_second_order_over_pytrees():
    ours = jacve(jacve(network, "reverse", (0, 1)), "forward", (0, 1))
    oracle = jax.jacfwd(jax.jacrev(network, (0, 1)), (0, 1))
    assert_compiled_same([(ours, oracle)], PARAMS, POINT)


def test_jacve_inside_scan_and_cond():
    def newton(x, jacobian):
        def step(x, _):
            value = jnp.append(field(x), energy(x) - 1)
            matrix = jacobian(lambda u: jnp.append(field(u), energy(u) - 1))(x)
            guarded = jax.lax.cond(
                jnp.abs(jnp.linalg.det(matrix)) > 1e-6, lambda m: m, lambda m: jnp.eye(3), matrix
            )
            return x - 0.1 * jnp.linalg.solve(guarded, value), matrix

        return jax.lax.scan(step, x, None, length=3)

    ours = lambda x: newton(x, lambda f: jacve(f, "forward"))  # noqa: E731
    assert_compiled_same([(ours, lambda x: newton(x, jax.jacrev))], X)


def _powers_of_x_sin_x(x):
    s, c = np.sin(x), np.cos(x)
    return [s + x * c, 2 * c - x * s, -3 * s - x * c, -4 * c + x * s]


def _powers_of_tanh(x):
    t = np.tanh(x)
    d = 1 - t * t
    return [d, -2 * t * d, d * (6 * t * t - 2), d * t * (16 - 24 * t * t)]


@pytest.mark.parametrize(
    ("fun", "derivatives"),
    [(lambda x: x * jnp.sin(x), _powers_of_x_sin_x), (jnp.tanh, _powers_of_tanh)],
    ids=["x sin x", "tanh"],
)
def test_first_four_derivatives_on_a_grid(fun, derivatives):
    grid = np.linspace(-2.0, 2.0, 9)
    nested = []
    for order in ("forward", "reverse"):
        one = fun
        for _ in range(4):
            one = jacve(one, order)
            nested.append(one)
    found = together(map(jax.vmap, nested), grid)
    for got, expected in zip(found, 2 * derivatives(grid), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
