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

from veenv.kernel.scalar_program import PAIRS, ROUNDED, Adds, CannotFuseError, Scalars

_PAIRS_OF = {real: name for name, real in PAIRS.items()}
_LARGE = 20.0
"""Number from which on a hyperbolic sine is half an exponential to the last place, of any dtype."""


def pair(b: Adds, re: int, im: int) -> int:
    """The number of the complex number of two real operations."""
    return b.op("complex", _PAIRS_OF[b.ops[re].dtype], re, im)


def parts(b: Adds, z: int) -> tuple[int, int]:
    """The real and the imaginary part of a complex number."""
    re, im = b.ops[z].args
    return re, im


def operation(b: Adds, name: str, dtype: str, *args: int) -> int:
    """Returns the builder's rule for an operation, or a function, with a complex result."""
    if name in _FUNCTIONS:
        return pair(b, *_FUNCTIONS[name](reals(b, dtype), *parts(b, *args)))
    if name not in _ARITHMETIC:
        raise CannotFuseError(f"primitive {name!r} cannot be fused for complex numbers", name)
    return _ARITHMETIC[name](b, dtype, *args)


class Reals(Scalars):
    """Operations of the parts of complex numbers."""

    def times(self, x: int, y: int) -> int:
        """x·y, which is zero where one of them is, of any other."""
        rest = self.select(self.is_("eq", y, self.number(0)), y, self.mul(x, y))
        return self.select(self.is_("eq", x, self.number(0)), x, rest)

    def infinite(self, x: int) -> int:
        """Tests for infinity."""
        return self.is_("eq", self.abs(x), self.number(np.inf))

    def like(self, y: int, value: int) -> int:
        """A number of the half of the plane where y is positive, in the half where y is."""
        kind = self.dtype.replace("float", "int")
        bits = self.b.op("bitcast", kind, y)  # of which a zero's sign is one
        return self.select(self.is_("lt", bits, self.b.number(0, kind)), self.neg(value), value)

    def modulus(self, x: int, y: int) -> int:
        """√(x² + y²), where the squares may be too large or too small."""
        large, small = self.by_size(x, y)
        ratio = self.select(self.is_("eq", large, small), self.number(1), self.div(small, large))
        modulus = self.mul(large, self.sqrt(self.add(self.number(1), self.square(ratio))))
        endless = self.either(self.infinite(x), self.infinite(y))
        return self.select(endless, self.number(np.inf), modulus)

    def log_modulus(self, x: int, y: int, less: int) -> int:
        """log √(x² + y²), of which `less` is x - 1 without its rounding."""
        large, small = self.by_size(x, y)
        one, half = self.number(1), self.number(0.5)
        near = self.mul(half, self.call("log1p", self._over(less, y)))
        ratio = self.select(self.is_("eq", large, small), one, self.div(small, large))
        rest = self.mul(half, self.call("log1p", self.square(ratio)))
        far = self.add(self.call("log", large), rest)
        is_near = self.both(self.is_("gt", large, half), self.is_("lt", large, self.number(2)))
        return self.select(is_near, near, far)

    def _over(self, x: int, y: int) -> int:
        """(1 + x)² + y² - 1: products of halves of the bits have no error, sums theirs beside."""
        (p, q), (s, t) = self._halves(x), self._halves(y)
        total, errors = self.add(x, x), []
        for v, w in ((s, s), (p, p), (self.add(s, s), t), (self.add(p, p), q), (t, t), (q, q)):
            term, before = self.mul(v, w), total
            total = self.add(before, term)
            added = self.sub(total, before)
            errors += [self.sub(before, self.sub(total, added)), self.sub(term, added)]
        return self.add(total, functools.reduce(self.add, errors))

    def _halves(self, x: int) -> tuple[int, int]:
        """The leading half of a number's bits, and what is left."""
        info, kind = np.finfo(self.dtype), self.dtype.replace("float", "uint")
        rest = 1 << (info.nmant + 2) // 2
        complement = self.b.number(2**info.bits - rest, kind)
        high = self.bitcast(self.b.op("and", kind, self.b.op("bitcast", kind, x), complement))
        return high, self.sub(x, high)

    def by_size(self, x: int, y: int) -> tuple[int, int]:
        """The larger and the smaller size."""
        x, y = self.abs(x), self.abs(y)
        return self.max(x, y), self.min(x, y)

    def hyperbolic(self, x: int) -> tuple[int, int, int]:
        """sinh and cosh, where they are no larger than they need be; what is left as a root."""
        limit = self.number(_LARGE)
        near = self.max(self.neg(limit), self.min(limit, x))
        rest = self.sub(self.abs(x), self.abs(near))
        root = self.call("exp", self.mul(self.number(0.5), rest))
        return self.call("sinh", near), self.call("cosh", near), root

    def grown(self, circular: int, hyperbolic: int, root: int) -> int:
        """The product of a function of the circle, one of the hyperbola, and twice its root."""
        return self.times(self.times(self.times(circular, hyperbolic), root), root)


Function = Callable[[Reals, int, int], tuple[int, int]]
"""Of one number, from its parts to those of the value."""


def reals(b: Adds, dtype: str) -> Reals:
    """Operations of the parts of complex numbers of a dtype."""
    return Reals(b, PAIRS[dtype])


def is_far(b: Adds, dtype: str, x: int) -> int:
    """Whether a complex number is surely outside of the unit circle, and has no NaN."""
    r, (p, q) = reals(b, dtype), parts(b, x)
    return r.is_("gt", r.add(r.abs(p), r.abs(q)), r.number(2))


def _each(name: str, b: Adds, dtype: str, *args: int) -> int:
    """The same operation of the real and of the imaginary parts."""
    real = PAIRS[dtype]
    re, im = (b.op(name, real, *of) for of in zip(*(parts(b, z) for z in args), strict=True))
    return pair(b, re, im)


def _add(b: Adds, dtype: str, x: int, y: int) -> int:
    """With zeros that are added: the sign of a zero is a side of a branch cut."""
    real, zero = PAIRS[dtype], b.number(0, PAIRS[dtype])
    pairs = zip(parts(b, x), parts(b, y), strict=True)
    re, im = (b.op("add", real, *of, attr=ROUNDED if zero in of else None) for of in pairs)
    return pair(b, re, im)


def _mul(b: Adds, dtype: str, x: int, y: int) -> int:
    """Multiplies; a square avoids the squares of its parts, which may both be infinite."""
    r, (p, q), (s, t) = reals(b, dtype), parts(b, x), parts(b, y)
    if x != y:
        re = r.sub(r.mul(p, s), r.mul(q, t))
        return pair(b, re, r.add(r.mul(p, t), r.mul(q, s)))
    half, re = r.mul(p, q), r.mul(r.sub(p, q), r.add(p, q))
    re = b.op("add", r.dtype, re, r.number(0), attr=ROUNDED)  # no zero is negative
    return pair(b, re, r.add(half, half))


def _div(b: Adds, dtype: str, x: int, y: int) -> int:
    return pair(b, *_quotient(reals(b, dtype), *parts(b, x), *parts(b, y)))


def _quotient(r: Reals, p: int, q: int, s: int, t: int) -> tuple[int, int]:
    """Smith's method (CACM 1962); what is divided by zero is infinite, by infinity zero."""
    turned = r.either(r.is_("lt", r.abs(s), r.abs(t)), r.infinite(t))  # beside NaN, too
    large, small = r.select(turned, t, s), r.select(turned, s, t)
    zero = r.number(0)
    none = r.both(r.is_("eq", large, zero), r.is_("eq", small, zero))
    alone = r.either(none, r.infinite(large))
    ratio = r.select(alone, zero, r.div(small, large))
    below = r.select(alone, large, r.add(large, r.mul(small, ratio)))
    one = r.select(turned, r.add(r.mul(p, ratio), q), r.add(p, r.mul(q, ratio)))
    other = r.select(turned, r.sub(r.mul(q, ratio), p), r.sub(q, r.mul(p, ratio)))
    return r.div(one, below), r.div(other, below)


def _select(b: Adds, dtype: str, which: int, x: int, y: int) -> int:
    pairs = zip(parts(b, x), parts(b, y), strict=True)
    return pair(b, *(b.op("select", PAIRS[dtype], which, *of) for of in pairs))


def _convert(b: Adds, dtype: str, x: int) -> int:
    real = PAIRS[dtype]
    if b.ops[x].dtype not in PAIRS:
        return pair(b, b.op("convert", real, x), b.number(0, real))
    return pair(b, *(b.op("convert", real, v) for v in parts(b, x)))


def _pow(b: Adds, dtype: str, x: int, y: int) -> int:
    """Zero to a power with a positive real part is zero, and to the power of zero one."""
    r, (p, q), (re, im) = reals(b, dtype), parts(b, x), parts(b, y)
    zero, one = r.number(0), r.number(1)
    size, angle = parts(b, b.op("mul", dtype, b.op("log", dtype, x), y))
    p_none, q_none, re_none, im_none = (r.is_("eq", v, zero) for v in (p, q, re, im))
    is_real = r.both(r.both(q_none, im_none), r.is_("gt", p, zero))  # infinities, too
    power = _exp(r, size, r.select(is_real, zero, angle))
    gone = r.both(r.both(p_none, q_none), r.is_("gt", re, zero))
    flat = r.both(re_none, im_none)
    selected = (r.select(gone, zero, v) for v in power)
    return pair(b, *(r.select(flat, v, w) for v, w in zip((one, zero), selected, strict=True)))


def _exp(r: Reals, x: int, y: int) -> tuple[int, int]:
    """In two factors, of which none is infinite while the product is not."""
    half = r.call("exp", r.mul(r.number(0.5), x))
    re, im = (r.mul(r.mul(half, r.call(f, y)), half) for f in ("cos", "sin"))
    return re, r.select(r.is_("eq", y, r.number(0)), y, im)


def _expm1(r: Reals, x: int, y: int) -> tuple[int, int]:
    half = r.call("sin", r.mul(r.number(0.5), y))
    less = r.mul(r.number(2), r.square(half))
    near = r.sub(r.mul(r.call("expm1", x), r.call("cos", y)), less)
    far, im = _exp(r, x, y)
    return r.select(r.is_("gt", x, r.number(2 * _LARGE)), far, near), im


def _log(r: Reals, x: int, y: int) -> tuple[int, int]:
    large, small = r.by_size(x, y)
    return r.log_modulus(large, small, r.sub(large, r.number(1))), r.call("atan2", y, x)


def _log1p(r: Reals, x: int, y: int) -> tuple[int, int]:
    more = r.add(x, r.number(1))
    return r.log_modulus(more, y, x), r.call("atan2", y, more)


def _sqrt(r: Reals, x: int, y: int) -> tuple[int, int]:
    """The larger part by a root, the other one by a quotient; of numbers of moderate size."""
    half, zero, imaginary = r.number(0.5), r.number(0), y
    is_small = r.is_("lt", r.max(r.abs(x), r.abs(y)), r.number(2.0**64))
    scale, back = (
        r.select(is_small, *map(r.number, v)) for v in ((2.0**60, 1 / 16), (2.0**-30, 4))
    )
    x, y = r.mul(scale, x), r.mul(scale, y)
    sum_ = r.mul(half, r.add(r.abs(x), r.modulus(x, y)))
    endless = r.infinite(y)
    large = r.sqrt(r.select(endless, r.abs(y), sum_))
    alone = r.either(r.is_("eq", large, zero), endless)
    small = r.mul(back, r.select(alone, y, r.div(r.mul(half, y), large)))
    large = r.mul(back, large)
    right = r.is_("ge", x, zero)
    below = r.select(r.is_("lt", imaginary, zero), r.neg(large), large)
    return r.select(right, large, r.abs(small)), r.select(right, small, below)


def _rsqrt(r: Reals, x: int, y: int) -> tuple[int, int]:
    re, im = _quotient(r, r.number(1), r.number(0), *_sqrt(r, x, r.abs(y)))
    return re, r.like(y, im)


def _sin(r: Reals, x: int, y: int) -> tuple[int, int]:
    sinh, cosh, root = r.hyperbolic(y)
    sin, cos = r.call("sin", x), r.call("cos", x)
    return r.grown(sin, cosh, root), r.grown(cos, sinh, root)


def _cos(r: Reals, x: int, y: int) -> tuple[int, int]:
    sinh, cosh, root = r.hyperbolic(y)
    cos, sin, down = r.call("cos", x), r.call("sin", x), r.neg(sinh)
    return r.grown(cos, cosh, root), r.grown(sin, down, root)


def _cosh(r: Reals, x: int, y: int) -> tuple[int, int]:
    re, im = _cos(r, y, x)
    return re, r.neg(im)


def _tanh(r: Reals, x: int, y: int) -> tuple[int, int]:
    """Computes tanh by exponentials of -2|x|, which are never large."""
    y = r.select(r.infinite(x), r.number(0), y)
    twice = r.mul(r.number(-2), r.abs(x))
    less, four = r.call("expm1", twice), r.mul(r.number(4), r.call("exp", twice))
    sin, cos = r.call("sin", y), r.call("cos", y)
    below = r.add(r.square(less), r.mul(four, r.square(cos)))
    re = r.div(r.mul(less, r.add(less, r.number(2))), r.neg(below))
    return r.like(x, re), r.times(r.mul(sin, cos), r.div(four, below))


def _arc(r: Reals, x: int, y: int) -> tuple[int, int]:
    """Computes the arc whose sine over cosine is x, and its imaginary part, in the upper half.

    By the roots of 1 - z and 1 + z (Kahan 1987); far out by z itself, which has no product.
    """
    one, up, four = r.number(1), r.abs(y), r.number(4)
    (p, q), (s, t) = _sqrt(r, r.sub(one, x), up), _sqrt(r, r.add(one, x), up)
    size = r.modulus(r.div(x, four), r.div(up, four))
    far = r.is_("gt", size, r.number(1 / float(np.finfo(r.dtype).eps)))
    sine = r.select(far, size, r.add(r.mul(p, t), r.mul(q, s)))
    log = r.select(far, r.number(np.log(4)), r.number(0))
    beside = r.select(far, up, r.add(r.mul(p, s), r.mul(q, t)))
    return beside, r.add(r.call("asinh", sine), log)


def _asin(r: Reals, x: int, y: int) -> tuple[int, int]:
    beside, im = _arc(r, x, y)
    return r.call("atan2", x, beside), r.like(y, im)


def _acos(r: Reals, x: int, y: int) -> tuple[int, int]:
    beside, im = _arc(r, x, y)
    return r.call("atan2", beside, x), r.like(y, r.neg(im))


def _acosh(r: Reals, x: int, y: int) -> tuple[int, int]:
    beside, im = _arc(r, x, y)
    return im, r.like(y, r.call("atan2", beside, x))


def _atanh(r: Reals, x: int, y: int) -> tuple[int, int]:
    """Computes atanh by the distance to one: a quarter turn far off, without squares close by."""
    zero, one, right, up = r.number(0), r.number(1), r.abs(x), r.abs(y)
    less, more = r.sub(one, right), r.add(one, right)
    apart, eps = r.modulus(less, up), float(np.finfo(r.dtype).eps)
    far, close = r.is_("gt", apart, r.number(1 / eps)), r.is_("lt", apart, r.number(eps))
    once = r.mul(r.number(2), r.div(right, apart))  # twice the largest number is none
    twice = r.div(r.add(once, once), apart)
    none = r.either(r.infinite(apart), r.is_("eq", right, zero))
    ratio = r.select(none, zero, r.select(close, once, twice))
    part = r.select(close, r.number(0.5), r.number(0.25))
    below = r.select(far, r.number(-1), r.sub(r.mul(less, more), r.square(y)))
    level = r.mul(zero, r.min(up, one))  # which may be NaN
    turn = r.call("atan2", r.select(far, level, r.add(up, up)), below)
    re = r.mul(part, r.call("log1p", ratio))
    return r.like(x, re), r.like(y, r.mul(r.number(0.5), turn))


def _sign(r: Reals, x: int, y: int) -> tuple[int, int]:
    size = r.modulus(x, y)
    none = r.is_("eq", size, r.number(0))
    re, im = (r.select(none, r.number(0), r.div(v, size)) for v in (x, y))
    return re, im


def _turned(of: Function) -> Function:
    """-i f(iz), as between a function of the circle and that of the hyperbola."""

    def turned(r: Reals, x: int, y: int) -> tuple[int, int]:
        re, im = of(r, r.neg(y), x)
        return im, r.neg(re)

    return turned


_ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "add": _add,
    "convert": _convert,
    "div": _div,
    "mul": _mul,
    "neg": functools.partial(_each, "neg"),
    "pow": _pow,
    "select": _select,
    "sub": functools.partial(_each, "sub"),
}
_FUNCTIONS: Mapping[str, Function] = {
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": _turned(_asin),
    "atan": _turned(_atanh),
    "atanh": _atanh,
    "cos": _cos,
    "cosh": _cosh,
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "rsqrt": _rsqrt,
    "sign": _sign,
    "sin": _sin,
    "sinh": _turned(_sin),
    "sqrt": _sqrt,
    "tan": _turned(_tanh),
    "tanh": _tanh,
}
KNOWN = frozenset({*_ARITHMETIC, *_FUNCTIONS})
"""What there is of complex numbers, by the names of operations and functions."""
