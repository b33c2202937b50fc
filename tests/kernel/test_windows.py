"""Convolutions and reductions of windows in kernels: values and derivatives as JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, quick_jit, together
from veenv.kernel.scalar_program import CannotFuseError

pytestmark = pytest.mark.usefixtures("x64")


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape))


def window(combine: Any, start: float, *args: Any) -> Callable[[Any], Any]:
    return lambda x: lax.reduce_window(x, start, combine, *args)


SPREAD = ((1, 0), (0, 2)), (2, 1), (1, 2)
"""Padding, and the dilations of an array and of a window."""
conv = lax.conv_general_dilated
LAYOUT = ("NHWC", "HWIO", "NHWC")
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "polynomials": (lambda a: jnp.polyval(jnp.polymul(a, jnp.array([1.0, 2, 3])), a[0]), (4,)),
    "convolve": (lambda a: jnp.convolve(a, a[:3] ** 2, mode="same"), (5,)),
    "groups": (lambda x: conv(x, normal(4, 1, 3, 2), (1, 2), ((1, 0), (2, 1)), (2, 1), (1, 2),
                              feature_group_count=2), (2, 2, 3, 5)),
    "groups of the batch": (
        lambda x: conv(x, normal(4, 2, 3), (1,), ((-1, 2),), batch_group_count=2), (4, 2, 5)),
    "by a kernel": (lambda w: conv(normal(1, 4, 4, 2), w, (1, 2), "SAME",
                                   dimension_numbers=LAYOUT), (3, 2, 2, 3)),
    "maxima": (window(lax.max, -jnp.inf, (2, 2), (1, 2), "SAME"), (4, 5)),
    "minima": (window(lax.min, jnp.inf, (2, 3), (2, 1), "VALID"), (4, 5)),
    "means": (lambda x: window(lax.add, 0.0, (2, 2), (1, 2), *SPREAD)(x) / 4, (4, 5)),
    "a Hessian": (
        jax.grad(lambda x: window(lax.max, -jnp.inf, (2,), (1,), "SAME")(x**3).sum()), (4,)),
    "nothing": (window(lax.add, 0.0, (6,), (1,), "VALID"), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_are_jax_s(name):
    fun, shape = FUNCTIONS[name]
    x = normal(*shape)

    def every(x: Any) -> Any:
        kernel = veenv.fuse(fun)
        orders = [veenv.jacve(fun, o, kernel="fused")(x) for o in ("forward", "reverse")]
        return kernel(x), [jax.jacfwd(kernel)(x), *orders, veenv.fuse(jax.jacrev(fun))(x)]

    (value, slopes), wanted = quick_jit(lambda x: (every(x), (fun(x), jax.jacrev(fun)(x))))(x)
    assert_same([value, *slopes], [wanted[0], *4 * [wanted[1]]], 1e-12)


def test_windows_of_other_numbers_and_functions():
    """JAX has no derivative of these, or other ones by its modes."""
    x = jnp.array([1.0, jnp.nan, 2, -jnp.inf, -jnp.inf, 3])
    maxima = window(lax.max, -jnp.inf, (2,), (1,), "SAME")
    pairs = lambda a, b: (a[0] + b[0], a[1] * b[1])  # noqa: E731
    functions = (
        maxima, jax.jacfwd(maxima), jax.jacrev(maxima),
        window(lax.mul, 1.0, (2,), (2,), "SAME"), window(lax.add, 3.0, (2,), (1,), "VALID"),
        lambda x: window(lax.max, -jnp.inf, (2, 2), (1, 2), *SPREAD)(x[None]),
        window(jnp.logaddexp, -jnp.inf, (3,), (1,), "VALID"),
        lambda x: lax.reduce_window((x, x), (0.0, 1.0), pairs, (2,), (1,), "SAME"),
        lambda x: window(lax.max, np.iinfo(np.int64).min, (2,), (1,), "SAME")(jnp.arange(4)),
        lambda x: window(lax.bitwise_or, False, (2,), (1,), "SAME")(x > 2),
        lambda x: jnp.convolve(jnp.arange(4), jnp.arange(3)),
        lambda x: jnp.convolve(lax.complex(x[:1], x[2:3]), jnp.array([1j, 2, 3])),
    )  # fmt: skip
    got, wanted = (together(map(of, functions), x) for of in (veenv.fuse, jax.jit))
    assert_same(got, wanted, 1e-12, atol=0)


def test_what_is_too_large_or_has_no_form_is_named():
    with pytest.raises(CannotFuseError, match=r"'conv_general_dilated' of .* products"):
        veenv.fuse(lambda x: lax.conv(x, jnp.ones((8, 8, 3, 3)), (1, 1), "SAME"))(
            jnp.ones((1, 8, 20, 20))
        )
    with pytest.raises(CannotFuseError, match=r"'eig' cannot be fused: take jnp\.linalg\.eigh"):
        veenv.fuse(lambda a: jnp.linalg.eig(a)[0].real)(jnp.eye(2))
