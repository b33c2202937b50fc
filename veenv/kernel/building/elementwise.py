"""Elementwise primitives as scalar operations: one rule an entry, equal entries once.

A primitive whose name is an operation's is that operation; the others, and those that mean
something else for bools, integers or complex numbers, have a rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veenv import limits
from veenv.kernel.building.builder import (
    Builder,
    Ids,
    arithmetic,
    constant,
    constants,
    different,
    evaluate,
    once,
)
from veenv.kernel.building.complex_numbers import KNOWN, Reals, is_far, pair, parts
from veenv.kernel.building.nests import entrywise
from veenv.kernel.scalar_program import (
    COMPLEX,
    DTYPES,
    FLOATS,
    NARROW,
    CannotFuseError,
    Op,
    Scalars,
    dtype_name,
)
from veenv.rules.operations import OPERATIONS
from veenv.rules.table import TABLE, facts, named

Rule = Callable[..., int]
"""From the operations of the result's dtype and the operands of one entry to its number."""
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def compute(b: Builder, eqn: Any, ins: Sequence[Ids]) -> Ids:
    """The result of an elementwise equation, from operands of its shape or of none."""
    name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
    of, to = dtype_name(eqn.invars[0].aval.dtype), dtype_name(eqn.outvars[0].aval.dtype)
    if name in _COMPARISONS and of != "bool" and of not in COMPLEX:
        values = [constant(b, x) for x in ins]
        if all(v is not None for v in values):  # as masks are made of indices
            return constants(b, np.broadcast_to(evaluate(Op(name, to), values), shape))
    columns = once(*(x if x.shape == shape else np.broadcast_to(x, shape) for x in ins))
    if (entries := _stored(b, eqn, columns)) is not None:
        return np.broadcast_to(entries, shape)
    params, (source, target) = eqn.params, (v.aval.dtype for v in (eqn.invars[0], eqn.outvars[0]))
    if name == "convert_element_type" and source != target and target.name in NARROW:
        params = {**params, "rounded": NARROW[target.name]}
    return np.broadcast_to(_entries(b, name, of, to, params, columns), shape)


def _stored(b: Builder, eqn: Any, columns: Sequence[Ids]) -> Ids | None:
    """The same of large arrays in memory, as loops over their entries; None of others."""
    dtypes = [dtype_name(v.aval.dtype) for v in (*eqn.invars, eqn.outvars[0])]
    if not b.stored or columns[0].size < limits.TAPS or not DTYPES.issuperset(dtypes):
        return None
    for axis in range(columns[0].ndim):  # one entry along a loop around
        cut = [x.take([0], axis) for x in columns]
        if all((x == first).all() for x, first in zip(columns, cut, strict=True)):
            columns = cut
    if not limits.TAPS <= columns[0].size <= limits.POINT**2:  # of more, memory takes the time
        return None

    def one(inner: Builder, *ids: int) -> int:
        return int(compute(inner, eqn, [np.array(i) for i in ids]).flat[0])

    cheap = facts(eqn.primitive.name).cost in ("free", "simple")
    return entrywise(b, columns, dtypes[-1], one, cheap)


def _entries(
    b: Builder, name: str, of: str, to: str, params: Mapping[str, Any], columns: Sequence[Ids]
) -> Ids:
    """The entries of the result, of dtype `to`; `of` is the dtype of the first operand."""
    shape = columns[0].shape
    plain = {"add_any": "add"}.get(name, name)
    if plain in _PLAIN and to in FLOATS:
        return arithmetic(b, plain, to, *columns)
    if name == "select_n" and of == "bool":
        which = constant(b, columns[0])
        if which is not None:
            return np.where(which, columns[-1], columns[1])
    rows, places = different([x.ravel() for x in columns])
    if rows and (of in COMPLEX or to in COMPLEX) and name not in _OF_COMPLEX:
        raise CannotFuseError(f"primitive {name!r} cannot be fused for complex numbers", name)
    scalars = Scalars(b, to, of, params)
    rule = RULES.get(name) or _same(facts(name).call or name)
    ids = [rule(scalars, *row) for row in rows]
    return np.array(ids, np.int64)[places].reshape(shape)


def _same(name: str) -> Rule:
    """A primitive that is one operation, or a call of a function, of its own dtype."""
    if OPERATIONS[name].function:
        return lambda r, *args: r.call(name, *args)
    return lambda r, *args: r.op(name, *args)


def _polynomial(r: Scalars, x: int, *coefficients: int) -> int:
    result = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = r.add(c, r.mul(result, x))
    return result


def _one_minus_square(r: Scalars, x: int) -> int:
    one = r.number(1)
    return r.mul(r.add(one, x), r.sub(one, x))


def _compare(name: str) -> Rule:
    def rule(r: Scalars, x: int, y: int) -> int:
        if r.of in COMPLEX:
            same = [r.op(name, *pair) for pair in zip(parts(r.b, x), parts(r.b, y), strict=True)]
            return r.op("and" if name == "eq" else "or", *same)
        if r.of == "bool":
            differ = r.xor(x, y)
            if name in ("eq", "ne"):
                return differ if name == "ne" else r.op("not", differ)
            x, y = (r.b.op("convert", "uint8", v) for v in (x, y))
        return r.op(name, x, y)

    return rule


def _extreme(name: str, of_bools: str) -> Rule:
    return lambda r, x, y: r.op(of_bools if r.of == "bool" else name, x, y)


def _abs(r: Scalars, x: int) -> int:
    if r.of in COMPLEX:
        return Reals(r.b, r.dtype).modulus(*parts(r.b, x))
    return r.abs(x)


def _divisor(r: Scalars, x: int, y: int) -> tuple[int, int]:
    """Tests an integer divisor for zero, and replaces it where dividing would trap."""
    trap = zero = r.is_("eq", y, r.number(0))
    if not r.of.startswith("u"):
        least = r.is_("eq", x, r.number(np.iinfo(r.of).min))
        trap = r.either(zero, r.both(r.is_("eq", y, r.number(-1)), least))
    return zero, r.select(trap, r.number(1), y)


def _div(r: Scalars, x: int, y: int) -> int:
    """Integer division by zero gives -1, and the least number by -1 itself, as in XLA."""
    if r.of in FLOATS or r.of in COMPLEX:
        return r.div(x, y)
    zero, safe = _divisor(r, x, y)
    ones = r.number(np.iinfo(r.of).max if r.of.startswith("u") else -1)
    return r.select(zero, ones, r.div(x, safe))


def _rem(r: Scalars, x: int, y: int) -> int:
    if r.of in FLOATS:
        return r.rem(x, y)
    zero, safe = _divisor(r, x, y)
    return r.select(zero, x, r.rem(x, safe))


def _sign(r: Scalars, x: int) -> int:
    if r.of in COMPLEX:
        return r.sign(x)
    zero, rest = r.number(0), x
    if not r.of.startswith("u"):
        rest = r.select(r.is_("lt", x, zero), r.number(-1), x)
    return r.select(r.is_("gt", x, zero), r.number(1), rest)


def _round(r: Scalars, x: int) -> int:
    if int(r.params["rounding_method"]) == 1:
        return r.round(x)
    whole = r.trunc(x)
    rest = r.abs(r.sub(x, whole))
    away = r.add(whole, _sign(r, x))
    return r.select(r.is_("ge", rest, r.number(0.5)), away, whole)


def _is_finite(r: Scalars, x: int) -> int:
    return r.is_("lt", r.b.op("abs", r.of, x), r.b.number(np.inf, r.of))


def _shift(name: str) -> Rule:
    def rule(r: Scalars, x: int, y: int) -> int:
        bits = np.iinfo(r.of).bits
        far = r.is_("ge", y, r.number(bits))
        if not r.of.startswith("u"):
            far = r.either(far, r.is_("lt", y, r.number(0)))
        if name == "shr_a":
            return r.op(name, x, r.select(far, r.number(bits - 1), y))
        near = r.select(far, r.number(0), y)
        return r.select(far, r.number(0), r.op(name, x, near))

    return rule


def _logistic(r: Scalars, x: int) -> int:
    one = r.number(1)
    return r.div(one, r.add(one, r.call("exp", r.neg(x))))


def _power(r: Scalars, x: int, exponent: int) -> int:
    """x to a whole power, by squaring."""
    if exponent == 0:
        return r.number(1)
    if exponent < -1 and r.dtype in COMPLEX:  # a power that overflows may be NaN, not infinite
        far = is_far(r.b, r.dtype, x)
        inverse = r.div(r.number(1), r.select(far, x, _power(r, x, -exponent)))
        return r.select(far, _power(r, inverse, -exponent), inverse)
    left, square, result = abs(exponent), x, None
    while left:
        if left & 1:
            result = square if result is None else r.mul(result, square)
        left >>= 1
        if left:
            square = r.square(square)
    assert result is not None
    return result if exponent > 0 else r.div(r.number(1), result)


def _pow(r: Scalars, x: int, y: int) -> int:
    y = r.convert(y)
    if r.dtype in COMPLEX:
        return r.pow(x, y)
    op = r.b.ops[y]
    if op.name == "const" and op.attr in (-1, 0, 1, 2, 3):
        return _power(r, x, int(op.attr))
    return r.call("pow", x, y)


def _select_n(r: Scalars, which: int, *cases: int) -> int:
    if r.of == "bool":
        return r.select(which, cases[-1], cases[0])
    result = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        here = r.is_("le", which, r.b.number(number, r.of))
        result = r.select(here, cases[number], result)
    return result


def _convert(r: Scalars, x: int) -> int:
    """To another dtype; the real part where only the operand is complex."""
    numbers = [x]
    if r.of in COMPLEX and r.dtype not in COMPLEX:
        numbers = parts(r.b, x) if r.dtype == "bool" else parts(r.b, x)[:1]
    if r.dtype == "bool" and r.of != "bool":
        zero = r.b.number(0, COMPLEX.get(r.of, r.of))
        first, *rest = (r.is_("ne", v, zero) for v in numbers)
        return r.either(first, *rest) if rest else first
    rounded = r.convert(numbers[0])
    return _rounded(r, rounded, *r.params["rounded"]) if "rounded" in r.params else rounded


def _rounded(r: Scalars, x: int, exponent_bits: int, mantissa_bits: int) -> int:
    """A float32 as the nearest number of fewer bits, to even."""
    info = np.finfo(np.float32)
    bits, drop = Scalars(r.b, "uint32"), info.nmant - mantissa_bits
    whole = bits.bitcast(x)
    odd = bits.op("and", bits.shr_l(whole, bits.number(drop)), bits.number(1))
    up = bits.add(bits.add(whole, bits.number((1 << drop - 1) - 1)), odd)
    dropped = r.bitcast(bits.op("and", up, bits.number((1 << 32) - (1 << drop))))
    if exponent_bits < info.iexp:
        most = 2 ** (exponent_bits - 1)
        unit = 2.0 ** (2 - most - mantissa_bits)  # of what is too small to be normal
        shift = r.number(1.5 * unit * 2**info.nmant)
        small = r.is_("lt", r.abs(x), r.number(2.0 ** (2 - most)))
        dropped = r.select(small, r.sub(r.add(x, shift), shift), dropped)
        large = r.is_("ge", r.abs(dropped), r.number(2.0**most))
        dropped = r.select(large, r.mul(x, r.number(np.inf)), dropped)
    return r.select(r.is_("ne", x, x), x, dropped)


def _bitcast(r: Scalars, x: int) -> int:
    if np.dtype(r.of).itemsize != np.dtype(r.params["new_dtype"]).itemsize:
        raise CannotFuseError("bits of another width cannot be fused", "bitcast_convert_type")
    return x if r.of == r.dtype else r.bitcast(x)


def _reduce_precision(r: Scalars, x: int) -> int:
    info, bits = np.finfo(r.of), (r.params["exponent_bits"], r.params["mantissa_bits"])
    if bits == (info.iexp, info.nmant):
        return x
    if r.of != "float32" or bits != NARROW["bfloat16"]:  # of others XLA drops what is small
        raise CannotFuseError(f"a precision of {bits} bits cannot be fused", "reduce_precision")
    return _rounded(r, x, *bits)


def _rsqrt(r: Scalars, x: int) -> int:
    return r.rsqrt(x) if r.dtype in COMPLEX else r.div(r.number(1), r.sqrt(x))


def _conj(r: Scalars, x: int) -> int:
    if r.of not in COMPLEX:
        return r.convert(x)
    re, im = parts(r.b, x)
    return pair(r.b, re, r.b.op("neg", COMPLEX[r.of], im))


_ERF_INV: Mapping[str, Sequence[tuple[float, bool, float, Sequence[float]]]] = {
    "float32": (
        (5.0, False, 2.5, (
            2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
            -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
        )),
        (np.inf, True, 3.0, (
            -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
            -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
        )),
    ),
    "float64": (
        (6.25, False, 3.125, (
            -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
            1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
            6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
            2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
            1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
            4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
            0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
            0.24015818242558961693, 1.6536545626831027356,
        )),
        (16.0, True, 3.25, (
            2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
            1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
            2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
            6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
            0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
            -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
            3.0838856104922207635,
        )),
        (np.inf, True, 5.0, (
            -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
            -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
            2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
            -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
            7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
            1.0103004648645343977, 4.8499064014085844221,
        )),
    ),
}  # fmt: skip
"""Giles's polynomials (GPU Computing Gems 2012): up to where, of the root or not, around where."""


def _erf_inv(r: Scalars, x: int) -> int:
    """Computes erf's inverse by -log(1 - x²), a polynomial for each of its ranges, as XLA does."""
    w = r.neg(r.call("log1p", r.neg(r.square(x))))
    result: int | None = None
    for end, rooted, middle, coefficients in reversed(_ERF_INV[r.dtype]):
        centred = r.sub(r.sqrt(w) if rooted else w, r.number(middle))
        value = _polynomial(r, centred, *map(r.number, reversed(coefficients)))
        here = r.is_("lt", w, r.number(end))
        result = value if result is None else r.select(here, value, result)
    assert result is not None
    edge = r.is_("eq", r.abs(x), r.number(1))
    return r.select(edge, r.mul(x, r.number(np.inf)), r.mul(result, x))


_STEPS = {"float32": (5, 4), "float64": (10, 7)}
"""How far `_digamma` goes up until so many terms of its series are exact to rounding."""
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _digamma(r: Scalars, x: int) -> int:
    """Computes digamma by its series at a larger number; below 1/2 by reflection, NaN at poles."""
    one, zero, (steps, terms) = r.number(1), r.number(0), _STEPS[r.dtype]
    left = r.is_("lt", x, r.number(0.5))
    z = r.select(left, r.sub(one, x), x)
    large = r.add(z, r.number(steps))
    inverse = r.div(one, large)
    square = r.square(inverse)
    series = _polynomial(r, square, zero, *map(r.number, _BERNOULLI[:terms]))
    value = r.sub(r.sub(r.call("log", large), r.mul(r.number(0.5), inverse)), series)
    for k in reversed(range(steps)):
        value = r.sub(value, r.div(one, r.add(z, r.number(k))))
    turn = r.mul(r.number(np.pi), r.sub(x, r.round(x)))
    mirrored = r.sub(value, r.div(r.mul(r.number(np.pi), r.call("cos", turn)), r.call("sin", turn)))
    pole = r.both(r.is_("le", x, zero), r.is_("eq", x, r.floor(x)))
    value = r.select(pole, r.number(np.nan), r.select(left, mirrored, value))
    return r.select(r.is_("eq", x, zero), r.number(-np.inf), value)


def _lgamma(r: Scalars, x: int) -> int:
    """Computes lgamma; denormal numbers count as zero in arithmetic, so -log of their bits."""
    kind, info = r.of.replace("float", "int"), np.finfo(r.of)
    bits = r.b.op("and", kind, r.b.op("bitcast", kind, x), r.b.number(np.iinfo(kind).max, kind))
    is_small = r.is_("lt", bits, r.b.number(1 << info.nmant, kind))
    unit = r.number(-np.log(2.0) * (info.minexp - info.nmant))
    small = r.sub(unit, r.call("log", r.convert(bits)))
    return r.select(is_small, small, r.call("lgamma", x))


IDENTITIES = named(form="same", whole="") - {"convert_element_type"} | {"stop_gradient"}
"""Primitives whose result is their operand, whatever name, place or layout they give it."""
_PLAIN = frozenset("add sub mul div neg".split())
"""The primitives that are one operation of floats, of which most programs have most."""
RULES: Mapping[str, Rule] = {
    **{name: _compare(name) for name in _COMPARISONS},
    **dict.fromkeys(IDENTITIES, lambda r, x: x),
    "abs": _abs,
    "add_any": lambda r, x, y: r.add(x, y),
    "bitcast_convert_type": _bitcast,
    "clamp": lambda r, low, x, high: r.min(r.max(x, low), high),
    "complex": lambda r, x, y: pair(r.b, x, y),
    "conj": _conj,
    "convert_element_type": _convert,
    "digamma": _digamma,
    "div": _div,
    "erf_inv": _erf_inv,
    "imag": lambda r, x: parts(r.b, x)[1],
    "integer_pow": lambda r, x: _power(r, x, r.params["y"]),
    "is_finite": _is_finite,
    "lgamma": _lgamma,
    "logistic": _logistic,
    "max": _extreme("max", "or"),
    "min": _extreme("min", "and"),
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "pow": _pow,
    "real": lambda r, x: parts(r.b, x)[0],
    "reduce_precision": _reduce_precision,
    "rem": _rem,
    "round": _round,
    "rsqrt": _rsqrt,
    "select_n": _select_n,
    "shift_left": _shift("shl"),
    "shift_right_arithmetic": _shift("shr_a"),
    "shift_right_logical": _shift("shr_l"),
    "sign": _sign,
    "square": lambda r, x: r.square(x),
}
"""For elementwise primitives that are not one operation how an entry of the result is computed."""
ELEMENTWISE = frozenset({*RULES, *(n for n, p in TABLE.items() if (p.call or n) in OPERATIONS)})
"""Primitives that compute entry by entry."""
_OF_COMPLEX = (KNOWN | IDENTITIES).union(
    "abs add_any complex conj convert_element_type eq imag integer_pow logistic ne "
    "one_minus_square real rsqrt select_n square".split()
)
"""Those of them that are fused where an operand or the result is complex."""
