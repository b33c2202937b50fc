"""Quotients by the reciprocal of the divisor, where the processor's divider is slow.

Some processors with AVX-512 divide a whole vector in the time of thirty multiplications. They have
an approximation of the reciprocal, of 14 bits; Newton's steps make it as good as rounding, and all
quotients by one divisor share it. What a first product leaves of the dividend then corrects the
quotient: the nearest float, but for quotients that are nearly too small for one. Reciprocals are
not corrected; they are off by one unit in the last place at most. Zeros, infinities and NaN come
out as division has them, where denormal numbers count as zeros, as they do in XLA. On others that
is slower than to divide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from veenv.kernel.cpu.compile import host
from veenv.kernel.cpu.types import element, intrinsic, literal

_STEPS = {"float32": 1, "float64": 2}
_BITS = {"float32": 32, "float64": 64}
_LARGE = {"float32": (2.0**125, 2.0**-30), "float64": (2.0**1021, 2.0**-60)}
"""Divisors beyond the first have reciprocals that are denormal; the second makes them smaller."""

_SPECIAL = 0b1001_1111
"""The processor's flags for zeros, infinities and NaN."""


class _Inverse(NamedTuple):
    """A divisor and what its quotients share, by name.

    Attributes:
      divisor: the vector of divisors, large ones scaled.
      value: their reciprocals.
      large: which lanes are scaled.
      scale: by what.
    """

    divisor: str
    value: str
    large: str
    scale: str


class Quotients:
    """Emits divisions of vectors of floats.

    Args:
      lanes: width of the vectors.
      emit: takes an instruction and returns the name of its result.
      declare: takes a symbol and its declaration.
    """

    def __init__(self, lanes: int, emit: Callable[[str], str], declare: Callable[[str, str], None]):
        self._lanes, self._emit, self._declare = lanes, emit, declare
        self._inverses: dict[str, _Inverse] = {}

    def quotient(self, dtype: str, x: str, divisor: str, x_is_one: bool) -> str:
        """The vector of quotients.

        Args:
          dtype: "float32" or "float64".
          x: name of the vector of dividends.
          divisor: name of the vector of divisors.
          x_is_one: whether every dividend is one.
        """
        kind = f"<{self._lanes} x {element(dtype)}>"
        width = self._lanes * _BITS[dtype]
        if not host().slow_divider or width not in (128, 256, 512):
            return self._emit(f"fdiv {kind} {x}, {divisor}")
        if divisor not in self._inverses:
            self._inverses[divisor] = self._inverse(dtype, kind, width, divisor)
        inverse = self._inverses[divisor]
        smaller = self._emit(f"fmul {kind} {x}, {inverse.scale}")
        scaled = self._select(kind, inverse.large, smaller, x)
        first = self._emit(f"fmul {kind} {scaled}, {inverse.value}")
        if x_is_one:
            return first
        left = self._remaining(kind, inverse.divisor, first, scaled)
        better = self._fma(kind, left, inverse.value, first)
        # Nothing is left of an exact quotient, whose sign a sum of zeros would lose; infinities
        # leave an infinity or NaN. The first product is right for all of these.
        return self._select(kind, self._special(kind, left), first, better)

    def _inverse(self, dtype: str, kind: str, width: int, x: str) -> _Inverse:
        """What all quotients by `x` share."""
        of = element(dtype)
        limit, scale = (f"splat ({of} {literal(np.dtype(dtype).type(v))})" for v in _LARGE[dtype])
        size = intrinsic(self._emit, self._declare, "fabs", kind, [x])
        large = self._emit(f"fcmp ogt {kind} {size}, {limit}")
        smaller = self._emit(f"fmul {kind} {x}, {scale}")
        divisor = self._select(kind, large, smaller, x)
        mask = f"i{max(8, self._lanes)}"
        symbol = f"llvm.x86.avx512.rcp14.{'ps' if dtype == 'float32' else 'pd'}.{width}"
        self._declare(symbol, f"declare {kind} @{symbol}({kind}, {kind}, {mask})")
        rough = value = self._emit(
            f"call {kind} @{symbol}({kind} {divisor}, {kind} zeroinitializer, {mask} -1)"
        )
        for _ in range(_STEPS[dtype]):
            left = self._remaining(kind, divisor, value, f"splat ({of} 1.0)")
            value = self._fma(kind, left, value, value)
        good = self._emit(f"fcmp ord {kind} {value}, zeroinitializer")
        return _Inverse(divisor, self._select(kind, good, value, rough), large, scale)

    def _special(self, kind: str, x: str) -> str:
        """Where `x` is zero, infinite or NaN."""
        of = "ps" if "float" in kind else "pd"
        symbol = f"llvm.x86.avx512.fpclass.{of}.{self._lanes * (32 if of == 'ps' else 64)}"
        flags = f"<{self._lanes} x i1>"
        self._declare(symbol, f"declare {flags} @{symbol}({kind}, i32)")
        return self._emit(f"call {flags} @{symbol}({kind} {x}, i32 {_SPECIAL})")

    def _select(self, kind: str, where: str, x: str, y: str) -> str:
        return self._emit(f"select <{self._lanes} x i1> {where}, {kind} {x}, {kind} {y}")

    def _remaining(self, kind: str, x: str, y: str, of: str) -> str:
        """``of - x y``, rounded once."""
        return self._fma(kind, self._emit(f"fneg {kind} {x}"), y, of)

    def _fma(self, kind: str, x: str, y: str, z: str) -> str:
        return intrinsic(self._emit, self._declare, "fma", kind, [x, y, z])
