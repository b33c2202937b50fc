"""Every primitive that has a scalar form, at ordinary and extreme points, against XLA."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.oracles.jacobians import assert_same
from tests.sampling import spared, thinned
from veenv.kernel.fusing import fuse

EXTREME = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-30, -3.7, 2.5, 1.5, 1e30]
POINTS = np.array([*EXTREME, *np.random.default_rng(0).normal(size=50)])
INTEGERS = np.array([0, 1, -1, 7, -7, 2**31 - 1, -(2**31), 33, 31, 5])


def assert_as_xla(fun: Callable[..., Any], *columns: np.ndarray, ulps: float = 8) -> None:
    """Equal to XLA at every point; NaN and infinity where XLA has them; to `ulps`."""
    found = (jax.jit(jax.vmap(f))(*columns) for f in (fuse(fun), fun))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if not jnp.issubdtype(b.dtype, jnp.floating):
            np.testing.assert_array_equal(a, b)
            continue
        info = jnp.finfo(b.dtype)
        np.testing.assert_allclose(a, b, rtol=ulps * float(info.eps), atol=4 * float(info.tiny))


def lgamma(x: float) -> float:
    """As C's: infinite at its poles and at both ends."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


def test_slopes_of_the_gamma_function(precision: str):
    """Near the zero of `digamma` errors are those of the terms that cancel."""
    points = np.array([*POINTS, -7.25, 30.0, 1.461632, 1e5, -2.0], precision)
    points = points[points != 0]  # where XLA of jaxlib 0.10 has NaN
    several = lambda x: (lax.digamma(x), jax.grad(lax.lgamma)(x))  # noqa: E731
    wanted = jax.jit(jax.vmap(lax.digamma))(points)
    for got in jax.jit(jax.vmap(fuse(several)))(points):
        np.testing.assert_allclose(got, wanted, rtol=4e-6 if precision == "float32" else 1e-14,
                                   atol=1e-6 if precision == "float32" else 2e-15)  # fmt: skip


UNARY = (
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log1p sqrt "
    "rsqrt cbrt erf erfc logistic abs neg sign floor ceil is_finite square lgamma"
).split()


EXACT = {"lgamma": np.vectorize(lgamma, otypes=[float]), "atanh": np.arctanh}
"""Oracles of functions that not every XLA computes to its last digits."""


ULPS = {"asinh": 40, "acosh": 40, "lgamma": 400, "erfc": 60, "tan": 40, "atanh": 40,
        "sinh": 40, "cosh": 40, "asin": 40, "acos": 40, "log1p": 20}  # fmt: skip
"""XLA's own expansions of some functions are less accurate than libm."""


def test_functions_of_one_number(precision: str):
    """Equal to XLA, or to an oracle in float64; sines of very large numbers are not compared."""
    points, info = POINTS.astype(precision), jnp.finfo(precision)
    several = lambda x: [getattr(lax, name)(x) for name in UNARY]  # noqa: E731
    found = (jax.jit(f)(points) for f in (jax.vmap(fuse(several)), several))
    for name, got, expected in zip(UNARY, *found, strict=True):
        assert got.dtype == expected.dtype
        known = (np.abs(POINTS) != 1e30) | (name not in ("sin", "cos", "tan"))
        if name in EXACT:  # XLA of jaxlib 0.10 is off by more than that
            with np.errstate(all="ignore"):
                expected = EXACT[name](points.astype(np.float64)).astype(precision)
        atol = float(4 * (info.eps if name in EXACT else info.tiny))
        rtol = ULPS.get(name, 12) * float(info.eps)
        np.testing.assert_allclose(got[known], expected[known], rtol, atol, err_msg=name)


def test_numbers_that_are_denormal_tiny_or_huge(precision: str):
    """As right as XLA, or exact to rounding, where what is denormal may count as zero."""
    info = np.finfo(precision)
    least, tiny, most = float(info.smallest_subnormal), float(info.tiny), float(info.max)
    sizes = [0, least, tiny / 4, tiny, 3 * tiny, tiny**0.5, info.eps, 1 + info.eps, 3, 33]
    sizes += [most**0.25, np.log(most) - 0.5, most**0.75, most, np.inf]
    points = np.array([s * v for v in sizes for s in (1, -1)], precision)
    names = [*UNARY, "erf_inv"]
    several = lambda x: [getattr(lax, name)(x) for name in names]  # noqa: E731
    found = (np.float64(f(points)) for f in (jax.jit(jax.vmap(fuse(several))), jax.jit(several)))
    for name, got, xla in zip(names, *found, strict=True):
        oracles = [xla]
        exact = EXACT.get(name) or getattr(np, name.replace("a", "arc", name[0] == "a"), None)
        with np.errstate(all="ignore"):
            if exact:
                right = exact(points.astype(np.longdouble)).astype(np.float64)
                nearer = np.abs(got - right) <= np.abs(xla - right)
                flushed = exact(np.where(np.abs(points) < tiny, 0 * points, points))
                oracles += [right, flushed, np.where(nearer, got, right)]
            near = [np.isclose(got, v, 400 * info.eps, 4 * tiny, equal_nan=True) for v in oracles]
        missed = ~np.any(near, axis=0)
        assert not missed.any(), (name, points[missed], got[missed], xla[missed])


def test_the_gamma_function_of_denormal_numbers(precision: str):
    info = np.finfo(precision)
    tiny = float(info.tiny)
    x = np.array([tiny * 0.85, -tiny / 3, tiny / 2**20, -info.smallest_subnormal], precision)
    got = jax.jit(jax.vmap(fuse(lax.lgamma)))(x)
    np.testing.assert_allclose(got, [lgamma(float(v)) for v in x], rtol=1e-6)


def test_functions_of_two_numbers(precision: str):
    x, y = (v.ravel().astype(precision) for v in np.meshgrid(POINTS[:24], POINTS[:24]))

    def several(x: Any, y: Any) -> list[Any]:
        names = "add sub mul div max min pow atan2 rem nextafter".split()
        return [getattr(lax, name)(x, y) for name in names]

    assert_as_xla(several, x, y, ulps=16)


def test_comparisons_and_choices(precision: str):
    x, y = (v.ravel().astype(precision) for v in np.meshgrid(POINTS[:24], POINTS[:24]))

    def several(x: Any, y: Any) -> list[Any]:
        tests = [x == y, x != y, x < y, x <= y, x > y, x >= y]
        same, less, which = tests[0], tests[2], tests[2].astype(jnp.int32)
        tests += [same ^ less, (same | less) & ~tests[3], same == less, same < less]
        chosen = jnp.where(less, x, y), lax.select_n(which + same.astype(jnp.int32), x, y, x * y)
        return [*tests, *chosen, jnp.clip(x, -1, 1), lax.clamp(jnp.asarray(0.1, x.dtype), x, y)]

    assert_as_xla(several, x, y)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int8", "uint8"])
def test_integers(dtype: str):
    x, y = (v.ravel().astype(dtype) for v in np.meshgrid(INTEGERS, INTEGERS))

    def several(x: Any, y: Any) -> list[Any]:
        signed = [lax.neg(x), lax.abs(x)] if dtype.startswith("i") else []
        return [
            x + y, x - y, x * y, lax.div(x, y), lax.rem(x, y), x & y, x | y, x ^ y, ~x,
            lax.max(x, y), lax.min(x, y), x < y, x >= y, x == y, lax.sign(x), *signed,
            lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y),
            lax.integer_pow(x, 3), x.astype(jnp.float32), x.astype(jnp.int16), x != 0,
        ]  # fmt: skip

    assert_as_xla(several, x, y)


def test_conversions():
    floats = np.array([0, -0.5, 0.5, 1.5, -1.5, 127.9, 128.5, -129, 3e9, -3e9, 1e20, np.nan], "f4")

    def several(x: Any) -> list[Any]:
        kinds = (jnp.int32, jnp.int8, jnp.uint8, jnp.uint32, jnp.bool_, jnp.int16)
        bits = lax.bitcast_convert_type(x, jnp.int32)
        rounded = [lax.round(x, method) for method in lax.RoundingMethod]
        back = lax.bitcast_convert_type(bits + 1, jnp.float32)
        return [*(x.astype(k) for k in kinds), bits, back, *rounded, lax.reduce_precision(x, 8, 23)]

    assert_as_xla(several, floats)


def test_powers(precision: str):
    x = POINTS.astype(precision)

    def several(x: Any) -> list[Any]:
        whole = [lax.integer_pow(x, n) for n in (-3, -2, -1, 0, 1, 2, 3, 4, 7)]
        return [*whole, *(x**p for p in (0.5, 1.5, -2.5, 2.0, -1.0, 0.0))]

    assert_as_xla(several, x, ulps=20)


INCOMPLETE: dict[str, Callable[..., Any]] = {
    "igamma": lambda a, x: jax.value_and_grad(lax.igamma, (0, 1))(a, x),
    "igammac": lax.igammac,
    "betainc": lambda a, x: lax.betainc(a, 1.5, x / (1 + abs(x))),
    "bessel_i0e": lambda a, x: lax.bessel_i0e(a * x),
}
"""Functions that JAX writes out, with loops."""


@pytest.mark.parametrize("name", spared(INCOMPLETE, "igamma", "betainc"))
def test_functions_that_jax_writes_out(name: str, precision: str):
    extreme = np.array([0.0, 1.0, 0.5, 3.0, np.inf, np.nan, -1.0, 1e-8, 40.0], precision)
    a, x = (grid.ravel() for grid in np.meshgrid(extreme, extreme))
    ordinary = np.random.default_rng(0).uniform(0.1, 8.0, (2, 40)).astype(precision)
    columns = [np.concatenate(pair) for pair in zip((a, x), ordinary, strict=True)]
    fun = INCOMPLETE[name]
    got, wanted = (jax.jit(jax.vmap(f))(*columns) for f in (fuse(fun), fun))
    assert_same(got, wanted, 1e-12 if precision == "float64" else 2e-4)  # terms cancel


def test_erf_inv():
    assert_as_xla(lax.erf_inv, np.linspace(-1, 1, 101).astype("f4"), ulps=64)


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum((0, 2))),
    "products": lambda x: (x.prod(1), x.max(2), x.min((0, 1)), (x > 0).all(0), (x > 0).any(1)),
    "indices": lambda x: (x.argmax(1), x.argmin(2)),
    "cumulative": lambda x: (
        jnp.cumsum(x, 1), lax.cumprod(x, 2), lax.cummax(x, 0), lax.cummin(x, 1, reverse=True),
    ),
    "contraction": lambda x: (x[0] @ x[1].T, jnp.einsum("ijk,kj->i", x, x[0].T), jnp.dot(2.0, x)),
    "moves": lambda x: (
        x.T, x.reshape(6, -1), x[::-1, 1:, ::2], jnp.concatenate([x, 2 * x], 1), x[None, :, 1],
        jnp.broadcast_to(x[:, :1], x.shape), jnp.stack([x[0], x[1]]), *jnp.split(x, 2, 2),
    ),
    "pad": lambda x: (jnp.pad(x, 1), lax.pad(x, 0.5, [(1, -1, 1), (-1, 2, 0), (0, 0, 2)])),
    "gather": lambda x: (
        x[jnp.array([1, 0, 1]), :, jnp.array([0, 1, 3])], x[..., jnp.array([3, 3, 0])],
        x.at[5].get(mode="fill", fill_value=7.0), jnp.take(x, jnp.array([-1, 0]), 1),
    ),
    "scatter": lambda x: (
        x.at[0, jnp.array([0, 0, 2])].add(1.5), x.at[1].set(0.0), x.at[:, 1].mul(x[:, 0]),
        x.at[jnp.array([0, 0]), 1].max(x[1, :2]), x.at[7].add(1.0, mode="drop"),
    ),
    "dynamic": lambda x: (
        lax.dynamic_slice(x, (0, (x[0, 0, 0] * 9).astype(int), 1), (1, 2, 2)),
        lax.dynamic_update_slice(x, x[:1, :1, :2], (1, 0, (x[0, 0, 1] * 5).astype(int))),
        x[(x[0, 0, 0] > 0.2).astype(int)],
    ),
    "counting": lambda x: (
        x * jnp.arange(4.0, dtype=x.dtype).reshape(1, 1, 4),
        lax.broadcasted_iota(jnp.int32, (2, 3), 1),
    ),
    "branches": lambda x: (
        lax.cond(x[0, 0, 0] > 0.5, jnp.sin, jnp.cos, x),
        lax.switch((x[0, 0, 0] * 4).astype(int), [lambda v: v, lambda v: v * v, jnp.exp], x[0]),
    ),
    "loops": lambda x: (
        lax.scan(lambda c, row: (c * row + 1, c.sum()), x[0], x),
        lax.scan(lambda c, _: (c * 1.1, c), x[0, 0], None, length=4, reverse=True),
        lax.fori_loop(0, 3, lambda i, v: v + i, x[0, 0]),
    ),
    "calls": lambda x: (jax.jit(jnp.tanh)(x), jax.nn.relu(x), jax.checkpoint(jnp.sin)(x)),
    "empty": lambda x: (
        x[:0].sum(), x[:0], x[:0].prod(), x[:0].sum((1, 2)), x[:0, 0] @ jnp.ones((4, 2), x.dtype),
        lax.batch_matmul(x[:0], jnp.swapaxes(x[:0], 1, 2)),
        x[0, :, :0] @ x[0, 0, :0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(ARRAYS, 2))
def test_arrays(name: str, precision: str):
    x = np.random.default_rng(1).uniform(0, 1, (37, 2, 3, 4)).astype(precision)
    assert_as_xla(ARRAYS[name], x, ulps=30)


def test_constants_and_masks_of_many_entries_are_what_they_were():
    table = np.tile(np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], np.float32), 20)
    found = jax.jit(fuse(lambda x: x * table))(np.float32(1.0))
    np.testing.assert_array_equal(found, table)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(table))

    def lower(x):
        rows, columns = np.indices((12, 12), np.int32)
        shift = jnp.asarray(rows) - jnp.asarray(columns) + jnp.arange(12, dtype=np.int32)[None]
        return jnp.where((shift >= 3) & (shift != 5), x, 0.0), jnp.equal(shift, 4)

    assert_as_xla(lower, POINTS.astype(np.float32))
