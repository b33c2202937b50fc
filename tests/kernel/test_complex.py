"""Complex numbers in kernels: values and derivatives as XLA's, at zeros and infinities, too."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import veenv
from tests.oracles.jacobians import assert_same, quick_jit
from veenv import limits
from veenv.kernel.fusing import fuse
from veenv.kernel.scalar_program import CannotFuseError

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
    "own power": lambda z: z ** (0.5 * z + 1),
    "root": lambda z: z**0.25,
    "abs": lambda z: lax.complex(lax.abs(z), jnp.zeros_like(z.real)),
}
LARGE = {"float32": (90.0, 1e30), "float64": (710.0, 1e200)}
"""Numbers whose exponential, and whose square, is no longer finite."""
WIDER = {"float32": "float64", "float64": "longdouble"}
OF_MODERATE = {"cube", "own power"}
"""Functions with products of infinities, or digits that are lost, at large numbers."""
WRONG_SLOPES = {"cosh", "expm1", "quotient"}
"""Of which XLA's derivatives have lost all digits at small, or at large, numbers."""
OVERFLOWING = {"square"}
"""With products beyond all numbers: in which parts are NaN, versions of XLA differ."""

ORACLES: dict[str, Function] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "cube": lambda z: z * (z * z),
    "inverse square": lambda z: 1 / (z * z), "logistic": lambda z: 1 / (1 + np.exp(-z)),
    "neg": np.negative, "rsqrt": lambda z: 1 / np.sqrt(z),
    "sign": lambda z: np.where(z == 0, z, z / np.abs(z)),
}  # fmt: skip
"""The functions of NumPy that have another name there, or none."""


def special(dtype: str) -> np.ndarray:
    """Real and imaginary parts of 17 x 17 numbers, by the last axis."""
    info, (exponential, square) = np.finfo(dtype), LARGE[dtype]
    some = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, exponential, -exponential, np.inf, -np.inf]
    some += [0.5, 1 + 3 * info.eps, 4 * info.tiny, -1e-20, square, 0.9 * float(info.max), np.nan]
    return np.stack([v.ravel() for v in np.meshgrid(*2 * [np.array(some, dtype)])], axis=1)


def every(x: Any, y: Any) -> dict[str, Any]:
    """The parts of the values of all functions."""
    values = {name: function(lax.complex(x, y)) for name, function in FUNCTIONS.items()}
    return {name: jnp.stack([v.real, v.imag]) for name, v in values.items()}


@functools.cache
def table(dtype: str) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """64 random points and the special ones, and there all functions in one kernel, and XLA's.

    Of each function the value and the derivatives by both parts, their parts by the last axis.
    """
    generator = np.random.default_rng(0)
    random = np.exp(generator.normal(size=(64, 1))) * generator.normal(size=(64, 2))
    points = np.concatenate([random.astype(dtype), special(dtype)])

    def kernel(x: Any, y: Any) -> Any:
        value, slopes = veenv.value_and_jacve(every, argnums=(0, 1), kernel="fused")(x, y)
        return {name: jnp.stack([v, *slopes[name]]) for name, v in value.items()}

    def xla(x: Any, y: Any) -> Any:
        one, none = jnp.ones_like(x), jnp.zeros_like(x)
        value, by_x = jax.jvp(every, (x, y), (one, none))
        _, by_y = jax.jvp(every, (x, y), (none, one))
        return {name: jnp.stack([v, by_x[name], by_y[name]]) for name, v in value.items()}

    found = (jax.jit(jax.vmap(f))(*points.T) for f in (kernel, xla))
    got, wanted = ({k: np.asarray(v, np.float64) for k, v in f.items()} for f in found)
    return points, got, wanted


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_are_xla_s(name, precision):
    _, got, wanted = (x if isinstance(x, np.ndarray) else x[name][:64] for x in table(precision))
    tolerance = 1e-4 if precision == "float32" else 1e-11
    size = np.linalg.norm(wanted, axis=-1, keepdims=True)
    np.testing.assert_array_less(np.abs(got - wanted), tolerance * (size + 0.1) + 0 * wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zeros_infinities_nan_and_all_that_is_tiny_or_large(name, precision):
    """Values are XLA's, NumPy's or those of more digits, derivatives XLA's where it has them.

    XLA takes roots of numbers below the cut for those above it, and overflows early, for example.
    """
    points, got, wanted = (
        x[64:] if isinstance(x, np.ndarray) else x[name][64:] for x in table(precision)
    )
    info, function = np.finfo(precision), ORACLES.get(name) or getattr(np, name, FUNCTIONS[name])
    exact = [of_numpy(function, points, to) for to in (precision, WIDER[precision])]
    good = np.any([near(got[:, 0], v, info) for v in (wanted[:, 0], *exact)], axis=0)
    largest = (np.isfinite(points) & (np.abs(points) > LARGE[precision][1])).any(1)
    known = (np.abs(points) < 1e20).all(1) | (name not in OF_MODERATE)
    known &= ~largest | (name not in OVERFLOWING)
    assert not [(*points[i], *got[i, 0]) for i in np.flatnonzero(known & ~good)]
    known = np.isfinite(wanted).all((1, 2)) & (name not in WRONG_SLOPES)
    good = np.all([near(got[:, k], wanted[:, k], info) for k in (1, 2)], axis=0)
    assert not [(*points[i], *got[i, 1:]) for i in np.flatnonzero(known & ~good)]


def of_numpy(function: Function, points: np.ndarray, dtype: str) -> np.ndarray:
    """The parts of NumPy's values, computed in a dtype."""
    z = np.empty(len(points), np.result_type(dtype, np.complex64))
    z.real, z.imag = points.T
    with np.errstate(all="ignore"):
        value = np.asarray(function(z))
        return np.stack([value.real, value.imag], axis=1).astype(points.dtype).astype(np.float64)


def near(found: np.ndarray, wanted: np.ndarray, info: Any) -> np.ndarray:
    """Whether numbers are equal up to rounding of the larger part: a few units, more of powers."""
    with np.errstate(all="ignore"):
        size = np.abs(np.where(np.isfinite(wanted), wanted, 0)).max(1, keepdims=True)
        units = 64 * info.eps * (1 + np.abs(np.log(size + info.tiny)))
        apart = np.abs(found - wanted) <= units * size + info.tiny
    return (apart | (found == wanted) | (np.isnan(found) & np.isnan(wanted))).all(1)


@pytest.mark.parametrize("name", ["log", "log1p"])
def test_logarithms_around_the_unit_circle_have_all_digits(name, precision):
    """Exactly, (1 + a)² + b² - 1 is sums and products of integers."""
    generator = np.random.default_rng(0)
    angles, off = generator.uniform(-3, 3, 400), 10.0 ** generator.uniform(-17, -2, 400)
    center = float(name == "log1p")
    x = ((1 + off) * np.cos(angles) - center).astype(precision)
    y = ((1 + off) * np.sin(angles)).astype(precision)
    kernel = fuse(lambda x, y: getattr(lax, name)(lax.complex(x, y)).real)
    found = jax.jit(jax.vmap(kernel))(x, y)
    square = [
        (Fraction(float(v)) + int(center)) ** 2 + Fraction(float(w)) ** 2
        for v, w in zip(x, y, strict=True)
    ]
    exact = np.array([math.log1p(s - 1) / 2 for s in square])
    np.testing.assert_allclose(found, exact, rtol=1e-5 if precision == "float32" else 1e-11)


@pytest.mark.parametrize("x", [15.0, 30.0, -40.0])
def test_the_slope_of_a_hyperbolic_tangent_is_small_far_out(x, precision):
    slope = jax.jit(jax.vmap(fuse(lambda x, y: lax.tanh(lax.complex(x, y)).imag)))
    y = np.linspace(-3, 3, 7).astype(precision)
    wanted = 2 * np.sin(2 * y.astype(np.float64)) * np.exp(-2 * abs(x))
    np.testing.assert_allclose(slope(np.full_like(y, x), y), wanted, rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_whatever_moves_or_sums_complex_numbers():
    """Products of matrices, sums, selects, loops, indices: a network of impedances."""
    generator = np.random.default_rng(1)
    load = jnp.asarray(generator.normal(size=(4, 4)))
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

    x, flags = generator.normal(size=(9, 4)), np.arange(9) - 4.0
    got = jax.vmap(veenv.jacve(network, kernel="fused"))(x, flags)
    wanted = quick_jit(jax.vmap(jax.jacfwd(network)))(x, flags)
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10 * np.abs(wanted).max())


def test_what_no_rule_is_known_for_is_named():
    def arc(x: Any) -> Any:
        return jnp.exp2(x + 1j).real

    with pytest.raises(CannotFuseError, match="exp2"):
        veenv.jacve(arc, kernel="fused")(0.3)
    np.testing.assert_allclose(veenv.jacve(arc)(0.3), jax.jacfwd(arc)(0.3), rtol=1e-5)


LARGE_CONSTANT = np.exp(1j * np.arange(2.0 * limits.SMALL))
"""More numbers than are part of a program."""


def own_step(z: Any, w: Any) -> Any:
    return z * jnp.cos(w) + 0.1j * w, (z * w).sum()


ARGUMENTS: dict[str, Callable[..., Any]] = {
    "copies and constants": lambda z, w: (w, z[1], 2 * z, jnp.full(2, 1 + 2j, z.dtype)),
    "large constants": lambda z, w: z * (w[:1] * jnp.asarray(LARGE_CONSTANT, z.dtype)).sum(),
    "a loop": lambda z, w: lax.scan(own_step, z, jnp.stack([w, z, w])),
    "holomorphic": lambda z, w: jax.jacfwd(lambda z: jnp.exp(z) * w, holomorphic=True)(z),
    "a real part": lambda z, w: jax.grad(lambda z: jnp.abs(z * w).sum())(z),
}


def assert_same_as(got: Any, wanted: Any, rtol: float) -> None:
    for a, b in zip(*map(jax.tree.leaves, (got, wanted)), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        np.testing.assert_allclose(a, b, rtol=rtol)


def test_complex_arguments_and_results(precision):
    """Of one point in float32, of a batch in float64; a trace around has values that they take."""
    rows, wide = np.random.default_rng(0).normal(size=(4, 2, 2)), precision == "float64"
    z, w = (
        jnp.asarray(a + 1j * b, f"complex{2 * int(precision[5:])}") for a, b in (rows[:2], rows[2:])
    )

    def every(fuse: Callable[..., Any], z: Any, w: Any) -> Any:
        def point(z: Any, w: Any) -> Any:
            return {name: fuse(fun)(z, w) for name, fun in ARGUMENTS.items()}

        if not wide:
            return point(z[0], w[0])
        captured = jax.vmap(lambda w: fuse(lambda z: z * w)(z[0]))(w)
        slopes = jax.jacfwd(lambda w: fuse(lambda z: jnp.exp(z * w))(z[0]), holomorphic=True)
        points = jax.vmap(point, (0, None))(z, w[0])
        return points, captured, slopes(w[0]), lax.scan(fuse(own_step), z[0], w)

    got, wanted = (jax.jit(functools.partial(every, f))(z, w) for f in (fuse, lambda f: f))
    assert_same_as(got, wanted, 1e-12 if wide else 2e-5)


def test_weak_types_of_complex_numbers_stay():
    def fun(z: Any, x: Any) -> Any:
        return z, z * x, z + 1

    args = 1 + 2j, jnp.ones(2, np.complex64)
    assert_same_as(fuse(fun)(*args), jax.jit(fun)(*args), 1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("order", ["forward", "reverse", "auto"])
def test_jacobians_of_functions_with_complex_arguments(order):
    def real(x: Any, z: Any) -> Any:
        x = lax.complex(x, jnp.zeros_like(x))
        return jnp.abs(z * x + jnp.exp(1j * x)) ** 2

    def holomorphic(z: Any) -> Any:
        return jnp.sin(z) * z[::-1]

    z = jnp.array([1 + 2j, 0.3 - 0.4j, -1.5j])
    got = veenv.jacve(real, order, kernel="fused")(z.real, z)
    assert_same(got, jax.jacrev(real)(z.real, z), 1e-12)
    got = veenv.jacve(holomorphic, order, holomorphic=True, kernel="fused")(z)
    assert_same(got, jax.jacfwd(holomorphic, holomorphic=True)(z), 1e-12)
