"""Complex numbers in scalar programs: pairs of real operations.

A complex number is an operation ``complex`` of its real and its imaginary part. It computes
nothing and is in no finished program: what is done with it is done with its parts. Products and
sums go by their definitions, quotients by Smith's method, functions by real ones, to a few units in
the last place of the larger part. Zeros and infinities are XLA's, but for what an infinite number
is multiplied by, which may be NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from veenv.kernel.program import PAIRS, CannotFuseError
from veenv.kernel.scalars import Adds, Scalars

_PAIRS_OF = {real: name for name, real in PAIRS.items()}
_LARGE = 20.0
"""Real part from which on a hyperbolic tangent is one to the last place, in any precision."""


def pair(b: Adds, re: int, im: int) -> int:
    """The number of the complex number of two real operations."""
    return b.op("complex", _PAIRS_OF[b.ops[re].dtype], re, im)


def parts(b: Adds, z: int) -> tuple[int, int]:
    """The real and the imaginary part of a complex number."""
    re, im = b.ops[z].args
    return re, im


def operation(b: Adds, name: str, dtype: str, *args: int) -> int:
    """What the builder does for an operation, or a function, whose result is complex."""
    if name in _FUNCTIONS:
        return pair(b, *_FUNCTIONS[name](reals(b, dtype), *parts(b, *args)))
    if name not in _ARITHMETIC:
        raise CannotFuseError(f"primitive {name!r} cannot be fused for complex numbers", name)
    return _ARITHMETIC[name](b, dtype, *args)


class Reals(Scalars):
    """Operations of the parts of complex numbers."""

    def times(self, x: int, y: int) -> int:
        """x·y, which is zero where x is, of any y."""
        return self.select(self.is_("eq", x, self.number(0)), x, self.mul(x, y))

    def modulus(self, x: int, y: int) -> int:
        """√(x² + y²), where the squares may be too large or too small."""
        large, small = self._by_size(x, y)
        ratio = self.select(self.is_("eq", large, small), self.number(1), self.div(small, large))
        return self.mul(large, self.sqrt(self.add(self.number(1), self.square(ratio))))

    def log_modulus(self, x: int, y: int) -> int:
        """log √(x² + y²), close to 1, too."""
        large, small = self._by_size(x, y)
        one, half = self.number(1), self.number(0.5)
        over = self.mul(self.sub(large, one), self.add(large, one))
        near = self.mul(half, self.call("log1p", self.add(over, self.square(small))))
        ratio = self.select(self.is_("eq", large, small), one, self.div(small, large))
        rest = self.mul(half, self.call("log1p", self.square(ratio)))
        far = self.add(self.call("log", large), rest)
        is_near = self.both(
            self.is_("gt", large, self.number(0.5)), self.is_("lt", large, self.number(2))
        )
        return self.select(is_near, near, far)

    def _by_size(self, x: int, y: int) -> tuple[int, int]:
        x, y = self.abs(x), self.abs(y)
        return self.max(x, y), self.min(x, y)


def reals(b: Adds, dtype: str) -> Reals:
    """Operations of the parts of complex numbers of a dtype."""
    return Reals(b, PAIRS[dtype])


def _each(name: str, b: Adds, dtype: str, *args: int) -> int:
    """The same operation of the real and of the imaginary parts."""
    real = PAIRS[dtype]
    re, im = (b.op(name, real, *of) for of in zip(*(parts(b, z) for z in args), strict=True))
    return pair(b, re, im)


def _mul(b: Adds, dtype: str, x: int, y: int) -> int:
    of, (p, q), (s, t) = PAIRS[dtype], parts(b, x), parts(b, y)
    re = b.op("sub", of, b.op("mul", of, p, s), b.op("mul", of, q, t))
    return pair(b, re, b.op("add", of, b.op("mul", of, p, t), b.op("mul", of, q, s)))


def _div(b: Adds, dtype: str, x: int, y: int) -> int:
    """Smith's method (CACM 1962); what is divided by zero is infinite, by infinity zero."""
    r, ((p, q), (s, t)) = reals(b, dtype), (parts(b, z) for z in (x, y))
    turned = r.is_("lt", r.abs(s), r.abs(t))
    large, small = r.select(turned, t, s), r.select(turned, s, t)
    zero = r.number(0)
    none = r.both(r.is_("eq", large, zero), r.is_("eq", small, zero))
    alone = r.either(none, r.is_("eq", r.abs(large), r.number(np.inf)))
    ratio = r.select(alone, zero, r.div(small, large))
    below = r.select(alone, large, r.add(large, r.mul(small, ratio)))
    one = r.select(turned, r.add(r.mul(p, ratio), q), r.add(p, r.mul(q, ratio)))
    other = r.select(turned, r.sub(r.mul(q, ratio), p), r.sub(q, r.mul(p, ratio)))
    return pair(b, r.div(one, below), r.div(other, below))


def _select(b: Adds, dtype: str, which: int, x: int, y: int) -> int:
    re, im = (
        b.op("select", PAIRS[dtype], which, one, other)
        for one, other in zip(parts(b, x), parts(b, y), strict=True)
    )
    return pair(b, re, im)


def _convert(b: Adds, dtype: str, x: int) -> int:
    real = PAIRS[dtype]
    if b.ops[x].dtype not in PAIRS:
        return pair(b, b.op("convert", real, x), b.number(0, real))
    return pair(b, *(b.op("convert", real, v) for v in parts(b, x)))


def _pow(b: Adds, dtype: str, x: int, y: int) -> int:
    """Zero to a power with a positive real part is zero, and to the power of zero one."""
    z, r, (re, im) = Scalars(b, dtype), reals(b, dtype), parts(b, y)
    power = parts(b, z.call("exp", z.mul(z.call("log", x), y)))
    zero, one = r.number(0), r.number(1)
    flat = r.both(r.is_("eq", re, zero), r.is_("eq", im, zero))
    none = r.both(*(r.is_("eq", v, zero) for v in parts(b, x)))
    gone = r.both(none, r.is_("gt", re, zero))
    found = (r.select(gone, zero, v) for v in power)
    return pair(b, *(r.select(flat, v, w) for v, w in zip((one, zero), found, strict=True)))


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


def _roots(r: Reals, x: int, y: int) -> tuple[int, int, int, int]:
    """The roots of 1 - z and of 1 + z, of the upper half of the plane."""
    one, up = r.number(1), r.abs(y)
    return *_sqrt(r, r.sub(one, x), up), *_sqrt(r, r.add(one, x), up)


def _as(r: Reals, y: int, im: int) -> int:
    """A part of the half of the plane where y is positive, in the half where y is."""
    return r.select(r.is_("lt", y, r.number(0)), r.neg(im), im)


def _asin(r: Reals, x: int, y: int) -> tuple[int, int]:
    """By the roots of 1 - z and 1 + z (Kahan 1987), and so are the next two."""
    p, q, s, t = _roots(r, x, y)
    im = r.call("asinh", r.add(r.mul(p, t), r.mul(q, s)))
    return r.call("atan2", x, r.add(r.mul(p, s), r.mul(q, t))), _as(r, y, im)


def _acos(r: Reals, x: int, y: int) -> tuple[int, int]:
    p, q, s, t = _roots(r, x, y)
    im = r.call("asinh", r.add(r.mul(p, t), r.mul(q, s)))
    return r.mul(r.number(2), r.call("atan2", p, s)), _as(r, y, r.neg(im))


def _acosh(r: Reals, x: int, y: int) -> tuple[int, int]:
    q, p, s, t = _roots(r, x, y)  # the root of z - 1 is that of 1 - z, turned
    re = r.call("asinh", r.add(r.mul(p, s), r.mul(q, t)))
    return re, _as(r, y, r.mul(r.number(2), r.call("atan2", q, s)))


def _atanh(r: Reals, x: int, y: int) -> tuple[int, int]:
    one, right, square = r.number(1), r.abs(x), r.square(y)
    less, more = r.sub(one, right), r.add(one, right)
    ratio = r.div(r.mul(r.number(4), right), r.add(r.square(less), square))
    turn = r.call("atan2", r.mul(r.number(2), r.abs(y)), r.sub(r.mul(less, more), square))
    re = r.mul(r.number(0.25), r.call("log1p", ratio))
    return _as(r, x, re), _as(r, y, r.mul(r.number(0.5), turn))


def _asinh(r: Reals, x: int, y: int) -> tuple[int, int]:
    re, im = _asin(r, r.neg(y), x)
    return im, r.neg(re)


def _atan(r: Reals, x: int, y: int) -> tuple[int, int]:
    re, im = _atanh(r, r.neg(y), x)
    return im, r.neg(re)


def _sign(r: Reals, x: int, y: int) -> tuple[int, int]:
    size = r.modulus(x, y)
    none = r.is_("eq", size, r.number(0))
    re, im = (r.select(none, r.number(0), r.div(v, size)) for v in (x, y))
    return re, im


_ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "add": functools.partial(_each, "add"),
    "convert": _convert,
    "div": _div,
    "mul": _mul,
    "neg": functools.partial(_each, "neg"),
    "pow": _pow,
    "select": _select,
    "sub": functools.partial(_each, "sub"),
}
_FUNCTIONS: Mapping[str, Callable[[Reals, int, int], tuple[int, int]]] = {
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": _asinh,
    "atan": _atan,
    "atanh": _atanh,
    "cos": _cos,
    "cosh": _cosh,
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sign": _sign,
    "sin": _sin,
    "sinh": _sinh,
    "sqrt": _sqrt,
    "tan": _tan,
    "tanh": _tanh,
}
"""Of one number, from its parts to those of the value."""
KNOWN = frozenset({*_ARITHMETIC, *_FUNCTIONS})
"""What there is of complex numbers, by the names of operations and functions."""
