"""Functions that the compiler of kernels for TPUs lacks, made of those that it has.

Errors are of float32, as a TPU has no float64, where additions, products and the functions used are
correctly rounded; an accelerator's own functions may add to them. Polynomials are in Chebyshev's
form: their coefficients are computed from SciPy's functions when they are first needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.polynomial import chebyshev

Function = Callable[..., Any]
SINE = (-0.16666654873461687, 0.008332173542482179, -0.00019516655712700375)
"""Coefficients of ``(sin(r) / r - 1) / r²`` in r², minimax for ``|r| ≤ π/4`` in float32."""
COSINE = (0.04166665451577973, -0.0013887646771959163, 2.44628986297009e-05)
"""Those of ``(cos(r) - 1 + r²/2) / r⁴``."""
QUICK = 1000.0
"""The largest size of an argument of `sine_and_cosine`: multiples of its parts of π/2 are exact."""
_VANISHED = 2.0**13
"""From where on 1 is nothing beside a square."""


@functools.cache
def _coefficients(name: str) -> list[float]:
    """Chebyshev coefficients of a function on [-1, 1]; further ones are below rounding errors."""
    from scipy import special

    functions = {
        # W. Shepherd and J. Laframboise 1981, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x"
        "erfcx": lambda t: (1 + 7.5 * (1 + t) / (1 - t)) * special.erfcx(3.75 * (1 + t) / (1 - t)),
        "lgamma": lambda t: special.gammaln(2 + t) / ((1 + t) * t),
    }
    return chebyshev.chebinterpolate(functions[name], 15).tolist()


def _chebyshev(name: str, t: Any) -> Any:
    """A function of `_coefficients` by Clenshaw's recurrence."""
    first, *others = _coefficients(name)
    one = two = jnp.zeros_like(t)
    for c in reversed(others):
        one, two = 2 * t * one - two + np.float32(c), one
    return t * one - two + np.float32(first)


def sine_and_cosine(x: Any) -> tuple[Any, Any]:
    """Of float32 up to `QUICK`, where both are below 3 units in the last place."""
    size = jnp.abs(x)
    whole = jnp.floor(size * np.float32(2 / np.pi) + np.float32(0.5))
    rest = size
    for part in (1.5706787109375, 1.1761486530303955e-4, 9.920313459588215e-10, 6.22337197e-14):
        rest = rest - whole * np.float32(part)
    square = rest * rest
    sine = rest + rest * square * _horner(square, SINE)
    cosine = 1 - square / 2 + square * square * _horner(square, COSINE)
    quarter = whole.astype(jnp.int32)
    odd, first = (quarter & 1) != 0, np.int32(-(2**31))
    turned = lax.bitcast_convert_type(x, jnp.int32) ^ (quarter << 30)
    return (
        _with_sign(jnp.where(odd, cosine, sine), turned & first),
        _with_sign(jnp.where(odd, sine, cosine), ((quarter + 1) << 30) & first),
    )


def _horner(x: Any, coefficients: Sequence[float]) -> Any:
    value = np.float32(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * x + np.float32(c)
    return value


def _with_sign(x: Any, sign: Any) -> Any:
    bits = lax.bitcast_convert_type(x, jnp.int32)
    return lax.bitcast_convert_type(bits ^ sign, jnp.float32)


def expm1(x: Any) -> Any:
    """Below 4 units in the last place."""
    series = jnp.zeros_like(x)
    for k in range(10, 0, -1):
        series = (series * x + 1) * np.float32(1 / k)
    return jnp.where(jnp.abs(x) < 0.5, series * x, jnp.exp(x) - 1)


def sinh(x: Any) -> Any:
    """Below 8 units in the last place; finite wherever the result is."""
    a = jnp.abs(x)
    e, h = expm1(jnp.minimum(a, 1)), jnp.exp(a / 2)
    return _signed(x, jnp.where(a < 1, (e + e / (e + 1)) / 2, h / 2 * h - 1 / (2 * h) / h))


def cosh(x: Any) -> Any:
    """Below 8 units in the last place; finite wherever the result is."""
    h = jnp.exp(jnp.abs(x) / 2)
    return h / 2 * h + 1 / (2 * h) / h


def asin(x: Any) -> Any:
    """Below 4 units in the last place."""
    return lax.atan2(x, jnp.sqrt((1 - x) * (1 + x)))


def acos(x: Any) -> Any:
    """Below 4 units in the last place."""
    return lax.atan2(jnp.sqrt((1 - x) * (1 + x)), x)


def atan(x: Any) -> Any:
    """As `lax.atan2`."""
    return lax.atan2(x, jnp.ones_like(x))


def asinh(x: Any) -> Any:
    """Below 6 units in the last place."""
    a = jnp.abs(x)
    large = a > _VANISHED
    b = jnp.where(large, 0, a)
    near = jnp.log1p(b + b * b / (1 + jnp.sqrt(1 + b * b)))
    return _signed(x, jnp.where(large, jnp.log(a) + np.float32(math.log(2)), near))


def acosh(x: Any) -> Any:
    """Below 6 units in the last place; NaN below 1."""
    large = x > _VANISHED
    t = jnp.where(large, 0, x - 1)
    near = jnp.log1p(t + jnp.sqrt(t * (t + 2)))
    found = jnp.where(large, jnp.log(x) + np.float32(math.log(2)), near)
    return jnp.where(x < 1, jnp.nan, found)


def atanh(x: Any) -> Any:
    """Below 6 units in the last place."""
    a = jnp.abs(x)
    return _signed(x, jnp.log1p(2 * a / (1 - a)) / 2)


def cbrt(x: Any) -> Any:
    """Below 4 units in the last place."""
    a = jnp.abs(x)
    y = jnp.exp(jnp.log(a) / 3)
    found = y - (y - a / (y * y)) / 3
    return _signed(x, jnp.where((a == 0) | (a == jnp.inf), a, found))


def erfc(x: Any) -> Any:
    """Below 4 units in the last place, where the result is a normal number."""
    size = jnp.abs(x)
    small = jnp.minimum(size, 40)
    t = (small - 3.75) / (small + 3.75)
    # exp(-x²) of a square that is rounded would lose what the square is large by
    high = jnp.floor(small * 256) / 256
    scaled = jnp.exp(-high * high) * _chebyshev("erfcx", t) / (1 + 2 * small)
    far = jnp.where(x != x, x, scaled * jnp.exp((high - small) * (high + small)))
    return jnp.where(size < 0.5, 1 - lax.erf(x), jnp.where(x < 0, 2 - far, far))


def lgamma(x: Any) -> Any:
    """Below 2e-6 of the larger of 1 and the result."""
    reflected = x < 0.5
    z = jnp.where(reflected, 1 - x, x)
    found = jnp.where(z < 8, _lgamma_to_eight(jnp.minimum(z, 8)), _stirling(jnp.maximum(z, 8)))
    part = jnp.abs(x) - jnp.floor(jnp.abs(x))
    sine = jnp.sin(np.float32(math.pi) * jnp.minimum(part, 1 - part))
    other = np.float32(math.log(math.pi)) - jnp.log(sine) - found
    return jnp.where(jnp.isinf(x), jnp.inf, jnp.where(reflected, other, found))


def _lgamma_to_eight(z: Any) -> Any:
    """From 0.5 to 8: down to at most 3, or up to at least 1, by Γ(z + 1) = z Γ(z)."""
    factor = jnp.ones_like(z)
    for _ in range(5):
        above = z > 3
        z = jnp.where(above, z - 1, z)
        factor = jnp.where(above, factor * z, factor)
    below = z < 1
    factor, z = jnp.where(below, 1 / z, factor), jnp.where(below, z + 1, z)
    return jnp.log(factor) + (z - 1) * (z - 2) * _chebyshev("lgamma", z - 2)


def _stirling(z: Any) -> Any:
    """At least 8."""
    r = 1 / (z * z)
    series = jnp.zeros_like(z)
    for c in (-1 / 360360 * 691, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        series = series * r + np.float32(c)
    return (z - 0.5) * jnp.log(z) - z + np.float32(math.log(2 * math.pi) / 2) + series / z


def _signed(x: Any, magnitude: Any) -> Any:
    return jnp.where(x < 0, -magnitude, jnp.where(x == 0, x, magnitude))


_ALL = (expm1, sinh, cosh, asin, acos, atan, asinh, acosh, atanh, cbrt, erfc, lgamma)
TPU: dict[str, Function] = {f.__name__: f for f in _ALL}
"""What Mosaic lacks; it has erf."""
