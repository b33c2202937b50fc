"""Elementwise primitives of complex numbers as scalar operations of their parts.

Products and sums go by their definitions, quotients by Smith's method, functions by real ones, to a
few units in the last place of the larger part. Zeros and infinities are XLA's, but for what an
infinite number is multiplied by, which may be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from veenv.kernel.builder import Builder
from veenv.kernel.complex_parts import Reals, pair, parts, reals
from veenv.kernel.program import COMPLEX, CannotFuseError
from veenv.kernel.rules_scalar import IDENTITIES

Rule = Callable[..., int]
"""As `veenv.kernel.rules_scalar.Rule`, an operand or the result complex."""
_LARGE = 20.0
"""Real part from which on a hyperbolic tangent is one to the last place, in any precision."""


def _one(function: Callable[..., tuple[int, int]]) -> Rule:
    """A function of one complex number, from its parts to those of its value."""

    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
        return pair(b, *function(reals(b, of), *parts(b, x)))

    return rule


def _real(function: Callable[..., int]) -> Rule:
    """A function of one complex number whose value is real."""

    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
        return function(reals(b, of), *parts(b, x))

    return rule


def _exp(r: Reals, x: int, y: int) -> tuple[int, int]:
    """In two factors, of which none is infinite while the product is not."""
    half = r.call("exp", r.mul(r.number(0.5), x))
    re, im = (r.mul(r.mul(half, r.call(f, y)), half) for f in ("cos", "sin"))
    return re, r.select(r.is_("eq", y, r.number(0)), r.number(0), im)


def _expm1(r: Reals, x: int, y: int) -> tuple[int, int]:
    half = r.call("sin", r.mul(r.number(0.5), y))
    less = r.mul(r.number(2), r.square(half))
    re = r.sub(r.mul(r.call("expm1", x), r.call("cos", y)), less)
    return re, _exp(r, x, y)[1]


def _log(r: Reals, x: int, y: int) -> tuple[int, int]:
    return r.log_modulus(x, y), r.call("atan2", y, x)


def _log1p(r: Reals, x: int, y: int) -> tuple[int, int]:
    """Of small numbers without their loss beside one."""
    one = r.number(1)
    over = r.add(r.mul(x, r.add(x, r.number(2))), r.square(y))
    near = r.mul(r.number(0.5), r.call("log1p", over))
    more = r.add(x, one)
    small = r.is_("lt", r.max(r.abs(x), r.abs(y)), r.number(0.5))
    return r.select(small, near, r.log_modulus(more, y)), r.call("atan2", y, more)


def _sqrt(r: Reals, x: int, y: int) -> tuple[int, int]:
    """The larger part by a root, the other one by a quotient."""
    half, zero = r.number(0.5), r.number(0)
    sum_ = r.add(r.mul(half, r.abs(x)), r.mul(half, r.modulus(x, y)))
    large = r.sqrt(sum_)
    quotient = r.div(r.mul(half, y), large)
    alone = r.either(r.is_("eq", large, zero), r.is_("eq", r.abs(y), r.number(np.inf)))
    small = r.select(alone, y, quotient)
    right = r.is_("ge", x, zero)
    below = r.select(r.is_("lt", y, zero), r.neg(large), large)
    return r.select(right, large, r.abs(small)), r.select(right, small, below)


def _sin(r: Reals, x: int, y: int) -> tuple[int, int]:
    return (
        r.times(r.call("sin", x), r.call("cosh", y)),
        r.times(r.call("sinh", y), r.call("cos", x)),
    )


def _cos(r: Reals, x: int, y: int) -> tuple[int, int]:
    return (
        r.mul(r.call("cos", x), r.call("cosh", y)),
        r.neg(r.times(r.call("sin", x), r.call("sinh", y))),
    )


def _sinh(r: Reals, x: int, y: int) -> tuple[int, int]:
    im, re = _sin(r, y, x)
    return re, im


def _cosh(r: Reals, x: int, y: int) -> tuple[int, int]:
    re, im = _cos(r, y, x)
    return re, r.neg(im)


def _tanh(r: Reals, x: int, y: int) -> tuple[int, int]:
    """By sinh and cosh of the real part where they are no larger than they need to be."""
    limit = r.number(_LARGE)
    near = r.max(r.neg(limit), r.min(limit, x))
    sinh, cosh = r.call("sinh", near), r.call("cosh", near)
    sin, cos = r.call("sin", y), r.call("cos", y)
    below = r.add(r.square(sinh), r.square(cos))
    return r.div(r.mul(sinh, cosh), below), r.div(r.mul(sin, cos), below)


def _tan(r: Reals, x: int, y: int) -> tuple[int, int]:
    im, re = _tanh(r, r.neg(y), x)
    return re, r.neg(im)


def _sign(r: Reals, x: int, y: int) -> tuple[int, int]:
    size = r.modulus(x, y)
    none = r.is_("eq", size, r.number(0))
    re, im = (r.select(none, r.number(0), r.div(v, size)) for v in (x, y))
    return re, im


def _compare(name: str) -> Rule:
    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
        same = [b.op(name, "bool", *of) for of in zip(parts(b, x), parts(b, y), strict=True)]
        return b.op("and" if name == "eq" else "or", "bool", *same)

    return rule


def _complex(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
    return pair(b, x, y)


def _part(number: int) -> Rule:
    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
        return parts(b, x)[number]

    return rule


def _conj(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    if of not in COMPLEX:
        return b.op("convert", to, x)
    re, im = parts(b, x)
    return pair(b, re, b.op("neg", COMPLEX[of], im))


def _converted(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    """To or from complex numbers; the real part where the result is real."""
    if to in COMPLEX:
        return b.op("convert", to, x)
    re, im = parts(b, x)
    if to == "bool":
        zero = b.number(0, COMPLEX[of])
        return b.op("or", "bool", *(b.op("ne", "bool", v, zero) for v in (re, im)))
    return b.op("convert", to, re)


def _quotient(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
    return b.op("div", to, x, y)


def _one_over(b: Builder, dtype: str, x: int) -> int:
    return b.op("div", dtype, b.number(1, dtype), x)


def _rsqrt(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    return _one_over(b, to, RULES["sqrt"](b, of, to, params, x))


def _logistic(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    grown = RULES["exp"](b, of, to, params, b.op("neg", to, x))
    return _one_over(b, to, b.op("add", to, b.number(1, to), grown))


def _pow(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
    """Zero to a power with a positive real part is zero, and to the power of zero one."""
    y = b.op("convert", to, y)
    r, (re, im) = reals(b, to), parts(b, y)
    log = RULES["log"](b, to, to, params, x)
    power = parts(b, RULES["exp"](b, to, to, params, b.op("mul", to, log, y)))
    zero, one = r.number(0), r.number(1)
    flat = r.both(r.is_("eq", re, zero), r.is_("eq", im, zero))
    none = r.both(*(r.is_("eq", v, zero) for v in parts(b, x)))
    gone = r.both(none, r.is_("gt", re, zero))
    found = (r.select(gone, zero, v) for v in power)
    return pair(b, *(r.select(flat, v, w) for v, w in zip((one, zero), found, strict=True)))


RULES: Mapping[str, Rule] = {
    "abs": _real(Reals.modulus),
    "complex": _complex,
    "conj": _conj,
    "convert_element_type": _converted,
    "cos": _one(_cos),
    "cosh": _one(_cosh),
    "div": _quotient,
    "eq": _compare("eq"),
    "exp": _one(_exp),
    "expm1": _one(_expm1),
    "imag": _part(1),
    "log": _one(_log),
    "log1p": _one(_log1p),
    "logistic": _logistic,
    "ne": _compare("ne"),
    "pow": _pow,
    "real": _part(0),
    "rsqrt": _rsqrt,
    "sign": _one(_sign),
    "sin": _one(_sin),
    "sinh": _one(_sinh),
    "sqrt": _one(_sqrt),
    "tan": _one(_tan),
    "tanh": _one(_tanh),
}
"""For elementwise primitives of or to complex numbers how one entry of the result is computed."""
SHARED = IDENTITIES.union(
    "add add_any integer_pow mul neg one_minus_square select_n square sub".split()
)
"""Primitives whose rule for real numbers holds, as it goes by `OPERATIONS`."""


def rule_of(primitive: str, rules: Mapping[str, Rule]) -> Rule:
    """How an elementwise primitive of or to complex numbers is computed.

    Args:
      primitive: its name.
      rules: those for real numbers.

    Raises:
      CannotFuseError: it is not known here.
    """
    if primitive in SHARED:
        return rules[primitive]
    if primitive in RULES:
        return RULES[primitive]
    raise CannotFuseError(f"primitive {primitive!r} cannot be fused for complex numbers", primitive)
