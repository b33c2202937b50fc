"""Complex numbers in kernels: values and derivatives as XLA's, at zeros and infinities, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from veenv.kernel.program import CannotFuseError

Function = Callable[[Any], Any]
FUNCTIONS: dict[str, Function] = {
    name: getattr(lax, name)
    for name in (
        "acos acosh asin asinh atan atanh conj cos cosh exp expm1 log log1p logistic neg rsqrt "
        "sign sin sinh sqrt square tan tanh"
    ).split()
}
FUNCTIONS |= {
    "difference": lambda z: z * (z - 1) + (2 - 1j),
    "quotient": lambda z: (z + 2) / (z - 1j),
    "inverse": lambda z: 1 / z,
    "cube": lambda z: lax.integer_pow(z, 3),
    "inverse square": lambda z: lax.integer_pow(z, -2),
    "power": lambda z: z ** (0.5 * z + 1),
    "root": lambda z: z**0.25,
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-25, 1e15, np.inf, -np.inf, np.nan]

OF_INFINITY = set("conj cos cosh exp log neg sin sinh sqrt inverse".split())
"""Functions that are XLA's at points with one infinite part, too."""

ORACLES: dict[str, Function] = {"log1p": np.log1p, "sinh": np.sinh}
"""Functions of which XLA's values are wrong at some of the points."""


def parts(function: Function) -> Callable[[Any, Any], Any]:
    """The function from and to real and imaginary part."""

    def real(x: Any, y: Any) -> Any:
        value = function(lax.complex(x, y))
        return jnp.stack([value.real, value.imag])

    return real


def fused(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Value and Jacobian by both arguments of a whole batch in one kernel."""
    return jax.vmap(veenv.value_and_jacve(fun, argnums=(0, 1), kernel="fused"))


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Of the real and of the imaginary part."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_are_xla_s(name, dtype):
    generator = np.random.default_rng(0)
    radius = np.exp(generator.normal(size=64))
    x, y = (radius * generator.normal(size=64) for _ in range(2))
    x, y = jnp.asarray(x, dtype), jnp.asarray(y, dtype)
    fun = parts(FUNCTIONS[name])
    value, (by_x, by_y) = fused(fun)(x, y)
    wanted = jax.vmap(fun)(x, y), *jax.vmap(jax.jacfwd(fun, (0, 1)))(x, y)
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    for got, true in zip((value, by_x, by_y), wanted, strict=True):
        size = np.linalg.norm(true, axis=1, keepdims=True)
        np.testing.assert_array_less(np.abs(got - true), tolerance * (size + 0.1) + 0 * true)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zeros_infinities_and_nan(name):
    fun = parts(FUNCTIONS[name])
    x, y = (jnp.asarray(v.ravel(), jnp.float32) for v in np.meshgrid(SPECIAL, SPECIAL))
    value, _ = fused(fun)(x, y)
    wanted = jax.vmap(fun)(x, y)
    known = np.isfinite(x) & np.isfinite(y)
    if name in OF_INFINITY:
        known |= (np.isinf(x) ^ np.isinf(y)) & ~np.isnan(x + y)
    if name == "rsqrt":
        known &= ~((x < 0) & (y == 0))  # the branch cut, of which XLA's sqrt knows one side
    known &= ~np.isnan(wanted).any(axis=1)
    assert known.sum() >= 35
    with np.errstate(all="ignore"):
        right = ORACLES.get(name, lambda z: np.full(z.shape, np.nan))(
            np.array(x) + 1j * np.array(y)
        )
    exact = np.stack([right.real, right.imag], axis=1)
    for got, *oracles in zip(value[known], wanted[known], exact[known], strict=True):
        assert any(is_near(got, oracle) for oracle in oracles), (got, oracles)


def is_near(got: Any, wanted: Any) -> bool:
    """Equal up to rounding of the larger part."""
    finite = np.abs(wanted)[np.isfinite(wanted)]
    most = 1e-5 * np.max(finite, initial=0) + 1e-37
    return np.allclose(got, wanted, rtol=1e-5, atol=most, equal_nan=True)


def test_whatever_moves_or_sums_complex_numbers(dtype):
    """Products of matrices, sums, selects, loops, indices: a network of impedances."""
    generator = np.random.default_rng(1)
    load = jnp.asarray(generator.normal(size=(4, 4)), dtype)
    loads, turn = lax.complex(load, 0 * load), lax.complex(0 * load[0, 0], 1 + 0 * load[0, 0])

    def network(x: Any, flag: Any) -> Any:
        z = lax.complex(x, x[::-1] * load[0])
        table = z[:, None] * loads + turn * loads.T
        table = jnp.where(load > 0, table, table.conj())
        through = lax.scan(lambda a, row: (a @ table + row, a.sum()), z, table)
        chosen = lax.cond(flag > 0, lambda v: v * turn, lambda v: v + turn, through[1])
        padded = jnp.pad(chosen, (1, 2))[jnp.array([0, 3, 2, 5])]
        found = jnp.cumsum(padded) * jnp.prod(z) + z.at[jnp.array([1, 1])].add(table[0, :2])
        return jnp.concatenate([found.real, jnp.abs(found), jnp.angle(found + turn)])

    x, flags = jnp.asarray(generator.normal(size=(9, 4)), dtype), np.arange(9) - 4.0
    got = jax.vmap(veenv.jacve(network, kernel="fused"))(x, flags)
    wanted = jax.vmap(jax.jacfwd(network))(x, flags)
    rtol = 1e-3 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


def test_what_no_rule_is_known_for_is_named():
    def arc(x: Any) -> Any:
        return jnp.exp2(x + 1j).real

    with pytest.raises(CannotFuseError, match="exp2"):
        veenv.jacve(arc, kernel="fused")(0.3)
    np.testing.assert_allclose(veenv.jacve(arc)(0.3), jax.jacfwd(arc)(0.3), rtol=1e-5)


def test_complex_arguments_and_results_are_refused_by_name():
    with pytest.raises(CannotFuseError, match="complex64"):
        veenv.jacve(lambda z: z * z, holomorphic=True, kernel="fused")(1 + 1j)


def test_numbers_of_eight_bits_are_refused_in_branches_too():
    def halved(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: x.astype(jnp.float8_e4m3fn).astype(x.dtype), jnp.sin, x)

    with pytest.raises(CannotFuseError, match="float8"):
        veenv.jacve(halved, kernel="fused")(0.5)
    assert veenv.jacve(halved)(0.5) == 1
