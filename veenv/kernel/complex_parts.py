"""Complex numbers in scalar programs: pairs of real operations.

A complex number is an operation ``complex`` of its real and its imaginary part. It computes
nothing and is in no finished program: what is done with it is done with its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from veenv.kernel.program import COMPLEX, Op


class Adds(Protocol):
    """What adds operations to a program: `veenv.kernel.builder.Builder`."""

    ops: list[Op]

    def op(self, name: str, dtype: str, *args: int) -> int:
        """An operation."""
        ...

    def call(self, function: str, dtype: str, *args: int) -> int:
        """A call of a function of libm."""
        ...

    def number(self, value: float, dtype: str) -> int:
        """A constant."""
        ...


def pair(b: Adds, re: int, im: int) -> int:
    """The number of the complex number of two real operations."""
    return b.op("complex", _COMPLEX_OF[b.ops[re].dtype], re, im)


def parts(b: Adds, z: int) -> tuple[int, int]:
    """The real and the imaginary part of a complex number."""
    re, im = b.ops[z].args
    return re, im


_COMPLEX_OF = {real: name for name, real in COMPLEX.items()}


class Reals:
    """Operations of one dtype of floats, shorter to write."""

    def __init__(self, b: Adds, dtype: str):
        self._b, self._dtype = b, dtype

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: self._b.op(name, self._dtype, *args)

    def is_(self, name: str, x: int, y: int) -> int:
        """A comparison."""
        return self._b.op(name, "bool", x, y)

    def both(self, x: int, y: int) -> int:
        """Whether both are true."""
        return self._b.op("and", "bool", x, y)

    def either(self, x: int, y: int) -> int:
        """Whether one is true."""
        return self._b.op("or", "bool", x, y)

    def call(self, function: str, *args: int) -> int:
        """A function of libm."""
        return self._b.call(function, self._dtype, *args)

    def number(self, value: float) -> int:
        """A constant."""
        return self._b.number(value, self._dtype)

    def square(self, x: int) -> int:
        """x²."""
        return self.mul(x, x)

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
    return Reals(b, COMPLEX[dtype])


def _add(b: Adds, dtype: str, x: int, y: int) -> int:
    return _each(b, "add", dtype, x, y)


def _sub(b: Adds, dtype: str, x: int, y: int) -> int:
    return _each(b, "sub", dtype, x, y)


def _neg(b: Adds, dtype: str, x: int) -> int:
    return _each(b, "neg", dtype, x)


def _each(b: Adds, name: str, dtype: str, *args: int) -> int:
    """The same operation of the real and of the imaginary parts."""
    real = COMPLEX[dtype]
    re, im = (b.op(name, real, *of) for of in zip(*(parts(b, z) for z in args), strict=True))
    return pair(b, re, im)


def _mul(b: Adds, dtype: str, x: int, y: int) -> int:
    r, ((p, q), (s, t)) = reals(b, dtype), (parts(b, z) for z in (x, y))
    return pair(b, r.sub(r.mul(p, s), r.mul(q, t)), r.add(r.mul(p, t), r.mul(q, s)))


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
        b.op("select", COMPLEX[dtype], which, one, other)
        for one, other in zip(parts(b, x), parts(b, y), strict=True)
    )
    return pair(b, re, im)


def _convert(b: Adds, dtype: str, x: int) -> int:
    real = COMPLEX[dtype]
    if b.ops[x].dtype not in COMPLEX:
        return pair(b, b.op("convert", real, x), b.number(0, real))
    return pair(b, *(b.op("convert", real, v) for v in parts(b, x)))


OPERATIONS: Mapping[str, Callable[..., int]] = {
    "add": _add,
    "convert": _convert,
    "div": _div,
    "mul": _mul,
    "neg": _neg,
    "select": _select,
    "sub": _sub,
}
"""What the builder does for an operation whose result is complex."""
