"""Elementwise JAX primitives as scalar operations: from the numbers of operands to a result's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from veenv.kernel.builder import Builder
from veenv.kernel.program import FLOATS, CannotFuseError
from veenv.linear.batch_barrier import BARRIERS
from veenv.rules.table import TABLE, named

Rule = Callable[..., int]
"""``rule(builder, in_dtype, out_dtype, params, *operands)``; in_dtype is the first operand's."""


def _polynomial(
    b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, *coefficients: int
) -> int:
    result = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = b.op("add", to, c, b.op("mul", to, result, x))
    return result


def _one_minus_square(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    one = b.number(1, to)
    return b.op("mul", to, b.op("add", to, one, x), b.op("sub", to, one, x))


def _same(name: str) -> Rule:
    """A primitive that is one operation of its own dtype."""

    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], *args: int) -> int:
        return b.op(name, to, *args)

    return rule


def _call(function: str) -> Rule:
    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], *args: int) -> int:
        return b.call(function, to, *args)

    return rule


def _compare(name: str) -> Rule:
    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
        if of == "bool":
            differ = b.op("xor", "bool", x, y)
            if name in ("eq", "ne"):
                return differ if name == "ne" else b.op("not", "bool", differ)
            x, y = (b.op("convert", "uint8", v) for v in (x, y))
        return b.op(name, "bool", x, y)

    return rule


def _extreme(name: str) -> Rule:
    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
        return b.op({"max": "or", "min": "and"}[name] if of == "bool" else name, to, x, y)

    return rule


def _only_floats(name: str) -> Rule:
    """An operation of floats that leaves integers as they are."""

    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
        return b.op(name, to, x) if of in FLOATS else x

    return rule


def _abs(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    return x if of.startswith("u") else b.op("abs", to, x)


def _overflows(b: Builder, dtype: str, x: int, y: int) -> int:
    if dtype.startswith("u"):
        return b.const(np.bool_(False))
    least = b.op("eq", "bool", x, b.number(np.iinfo(dtype).min, dtype))
    return b.op("and", "bool", b.op("eq", "bool", y, b.number(-1, dtype)), least)


def _div(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
    """Integer division by zero gives -1, and the least number by -1 itself, as in XLA."""
    if of in FLOATS:
        return b.op("div", to, x, y)
    zero, over = b.op("eq", "bool", y, b.number(0, of)), _overflows(b, of, x, y)
    safe = b.op("select", of, b.op("or", "bool", zero, over), b.number(1, of), y)
    result = b.op("div", of, x, safe)
    ones = b.number(np.iinfo(of).max if of.startswith("u") else -1, of)
    return b.op("select", of, zero, ones, result)


def _rem(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
    if of in FLOATS:
        return b.op("rem", to, x, y)
    zero, over = b.op("eq", "bool", y, b.number(0, of)), _overflows(b, of, x, y)
    safe = b.op("select", of, b.op("or", "bool", zero, over), b.number(1, of), y)
    return b.op("select", of, zero, x, b.op("rem", of, x, safe))


def _sign(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    zero, one = b.number(0, of), b.number(1, of)
    rest = x
    if not of.startswith("u"):
        rest = b.op("select", of, b.op("lt", "bool", x, zero), b.number(-1, of), x)
    return b.op("select", of, b.op("gt", "bool", x, zero), one, rest)


def _round(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    if int(params["rounding_method"]) == 1:
        return b.op("round", to, x)
    whole = b.op("trunc", to, x)
    rest = b.op("abs", to, b.op("sub", to, x, whole))
    away = b.op("add", to, whole, _sign(b, of, to, {}, x))
    return b.op("select", to, b.op("ge", "bool", rest, b.number(0.5, to)), away, whole)


def _is_finite(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    return b.op("lt", "bool", b.op("abs", of, x), b.number(np.inf, of))


def _shift(name: str) -> Rule:
    def rule(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
        bits = np.iinfo(of).bits
        far = b.op("ge", "bool", y, b.number(bits, of))
        if not of.startswith("u"):
            far = b.op("or", "bool", far, b.op("lt", "bool", y, b.number(0, of)))
        if name == "shr_a":
            return b.op(name, to, x, b.op("select", of, far, b.number(bits - 1, of), y))
        near = b.op("select", of, far, b.number(0, of), y)
        return b.op("select", to, far, b.number(0, of), b.op(name, to, x, near))

    return rule


def _logistic(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    one = b.number(1, to)
    return b.op("div", to, one, b.op("add", to, one, b.call("exp", to, b.op("neg", to, x))))


def _rsqrt(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    return b.op("div", to, b.number(1, to), b.op("sqrt", to, x))


def _square(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    return b.op("mul", to, x, x)


def power(b: Builder, dtype: str, x: int, exponent: int) -> int:
    """x to a whole power, by squaring."""
    if exponent == 0:
        return b.number(1, dtype)
    left, square, result = abs(exponent), x, None
    while left:
        if left & 1:
            result = square if result is None else b.op("mul", dtype, result, square)
        left >>= 1
        if left:
            square = b.op("mul", dtype, square, square)
    assert result is not None
    return result if exponent > 0 else b.op("div", dtype, b.number(1, dtype), result)


def _integer_pow(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    return power(b, to, x, params["y"])


def _pow(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int, y: int) -> int:
    if to not in FLOATS:
        raise CannotFuseError("powers of integers cannot be fused", "pow")
    y = b.op("convert", to, y)
    exponent = b.value(y)
    if exponent is not None and exponent in (-1, 0, 1, 2, 3):
        return power(b, to, x, int(exponent))
    return b.call("pow", to, x, y)


def _select_n(
    b: Builder, of: str, to: str, params: Mapping[str, Any], which: int, *cases: int
) -> int:
    if of == "bool":
        return b.op("select", to, which, cases[-1], cases[0])
    result = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        here = b.op("le", "bool", which, b.number(number, of))
        result = b.op("select", to, here, cases[number], result)
    return result


def convert(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    """To another dtype."""
    if to == "bool" and of != "bool":
        return b.op("ne", "bool", x, b.number(0, of))
    return b.op("convert", to, x)


def _bitcast(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    if np.dtype(of).itemsize != np.dtype(to).itemsize:
        raise CannotFuseError("bits of another width cannot be fused", "bitcast_convert_type")
    return x if of == to else b.op("bitcast", to, x)


def _reduce_precision(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    info = np.finfo(of)
    if (params["exponent_bits"], params["mantissa_bits"]) != (info.iexp, info.nmant):
        raise CannotFuseError("a lower precision cannot be fused", "reduce_precision")
    return x


def _identity(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    return x


_ERF_INV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERF_INV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _erf_inv(b: Builder, of: str, to: str, params: Mapping[str, Any], x: int) -> int:
    """Giles's polynomials for single precision, which XLA takes too (JSC 2010)."""
    if to != "float32":
        raise CannotFuseError("erf_inv can only be fused in float32", "erf_inv")
    w = b.op("neg", to, b.call("log1p", to, b.op("neg", to, b.op("mul", to, x, x))))
    near = b.op("lt", "bool", w, b.number(5, to))
    low = b.op("sub", to, w, b.number(2.5, to))
    high = b.op("sub", to, b.op("sqrt", to, w), b.number(3, to))
    w = b.op("select", to, near, low, high)
    result = b.op("select", to, near, *(b.number(c[0], to) for c in (_ERF_INV_NEAR, _ERF_INV_FAR)))
    for one, other in zip(_ERF_INV_NEAR[1:], _ERF_INV_FAR[1:], strict=True):
        term = b.op("select", to, near, b.number(one, to), b.number(other, to))
        result = b.op("add", to, term, b.op("mul", to, result, w))
    edge = b.op("eq", "bool", b.op("abs", to, x), b.number(1, to))
    infinite = b.op("mul", to, x, b.number(np.inf, to))
    return b.op("select", to, edge, infinite, b.op("mul", to, result, x))


IDENTITIES = frozenset(
    {*named(form="same"), "stop_gradient"} - {"convert_element_type", "device_put", *BARRIERS}
)
"""Primitives whose result is their operand, whatever name, place or layout they give it."""
_SAME = "add sub mul neg sqrt and or xor not"
RULES: Mapping[str, Rule] = {
    **{name: _same(name) for name in _SAME.split()},
    **{name: _call(p.call) for name, p in TABLE.items() if p.call},
    **{name: _compare(name) for name in "eq ne lt le gt ge".split()},
    **dict.fromkeys(IDENTITIES, _identity),
    "abs": _abs,
    "add_any": _same("add"),
    "bitcast_convert_type": _bitcast,
    "ceil": _only_floats("ceil"),
    "convert_element_type": convert,
    "div": _div,
    "erf_inv": _erf_inv,
    "floor": _only_floats("floor"),
    "integer_pow": _integer_pow,
    "is_finite": _is_finite,
    "logistic": _logistic,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "pow": _pow,
    "reduce_precision": _reduce_precision,
    "rem": _rem,
    "round": _round,
    "rsqrt": _rsqrt,
    "select_n": _select_n,
    "shift_left": _shift("shl"),
    "shift_right_arithmetic": _shift("shr_a"),
    "shift_right_logical": _shift("shr_l"),
    "sign": _sign,
    "square": _square,
}
"""For each elementwise primitive how one entry of its result is computed."""
PLAIN: Mapping[str, str] = {"add_any": "add", **{n: n for n in "add sub mul div neg".split()}}
"""The primitives that are one operation of `veenv.kernel.arrays.arithmetic`, of floats."""
