"""Sines and cosines in the loop itself, one reduction of the argument for both.

A call takes every register with it, and a Jacobian needs the cosine of most arguments it needs the
sine of. The argument less the nearest multiple of π/2, in three parts that are exact enough for
moderate arguments, goes into two polynomials, of which the quarter chooses. A vector with an
argument beyond these takes the functions' own calls, for the lanes in question, in a branch that is
hardly ever taken. Errors are below two units in the last place.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import numpy as np

from veenv.kernel.cpu.emitter import Emitter


class _Table(NamedTuple):
    """The numbers for a dtype."""

    limit: float  # the largest argument
    shift: float  # what makes a number beside it a whole one, in its lowest bits
    half_pi: tuple[float, ...]  # π/2 in parts
    # coefficients of ``(sin(r) / r - 1) / r²`` in r², minimax for ``|r| ≤ π/4``
    sine: tuple[float, ...]
    cosine: tuple[float, ...]  # those of ``(cos(r) - 1 + r²/2) / r⁴``


_TABLES = {
    "float32": _Table(
        1e4,
        1.5 * 2.0**23,
        (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        (-0.16666654873461687, 0.008332173542482179, -0.00019516655712700375),
        (0.04166665451577973, -0.0013887646771959163, 2.44628986297009e-05),
    ),
    "float64": _Table(
        1e6,
        1.5 * 2.0**52,
        (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        (
            -0.16666666666666632, 0.008333333333322314, -0.00019841269829724639,
            2.7557313661897593e-06, -2.5050753243174733e-08, 1.5896503858090225e-10,
        ),
        (
            0.04166666666666665, -0.0013888888888882696, 2.4801587294520018e-05,
            -2.7557315702882246e-07, 2.0875892375592602e-09, -1.1367682611099121e-11,
        ),
    ),
}  # fmt: skip


class Trigonometry:
    """Emits sines and cosines of vectors of floats.

    Attributes:
      known: those so far, by function and argument.
    """

    def __init__(self, emitter: Emitter):
        self._to, self._emit, self._lanes = emitter, emitter.emit, emitter.lanes
        self.known: dict[tuple[str, str], str] = {}

    def value(self, function: str, dtype: str, x: str, needed: Container[str]) -> str:
        """The vector of sines or cosines; `needed` says which of both of `x` the program needs."""
        if not self._to.joins:
            return self._to.call(function, dtype, [x])
        if (function, x) not in self.known:
            wanted = [name for name in ("sin", "cos") if name == function or name in needed]
            for name, vector in zip(wanted, self._both(wanted, dtype, x), strict=True):
                self.known[name, x] = vector
        return self.known[function, x]

    def _both(self, wanted: list[str], dtype: str, x: str) -> list[str]:
        kind = self._to.vector(dtype)
        size = self._to.intrinsic("fabs", kind, [x])
        reduced = self._near(wanted, dtype, kind, x, size)
        limit = self._to.number(dtype, _TABLES[dtype].limit)
        far = self._emit(f"fcmp ogt {kind} {size}, {limit}")
        bits = self._emit(f"bitcast <{self._lanes} x i1> {far} to i{self._lanes}")
        any_lane = self._emit(f"icmp ne i{self._lanes} {bits}, 0")

        def calls() -> list[str]:
            return [
                self._to.select(kind, far, self._to.call(name, dtype, [x]), near)
                for name, near in zip(wanted, reduced, strict=True)
            ]

        return self._to.branch(any_lane, kind, reduced, calls)

    def _near(self, wanted: list[str], dtype: str, kind: str, x: str, size: str) -> list[str]:
        """The functions of arguments of moderate size."""
        table, width = _TABLES[dtype], int(dtype[5:])
        number = f"<{self._lanes} x i{width}>"
        shift, turns = (self._to.number(dtype, v) for v in (table.shift, 2 / np.pi))
        shifted = self._to.fma(kind, size, turns, shift)
        whole = self._emit(f"fsub {kind} {shifted}, {shift}")
        less = self._emit(f"fneg {kind} {whole}")
        rest = size
        for part in table.half_pi:
            rest = self._to.fma(kind, less, self._to.number(dtype, part), rest)
        square = self._emit(f"fmul {kind} {rest}, {rest}")
        cubic = self._emit(f"fmul {kind} {square}, {rest}")
        sine = self._to.fma(kind, cubic, self._polynomial(dtype, kind, square, table.sine), rest)
        fourth = self._emit(f"fmul {kind} {square}, {square}")
        first = self._to.fma(
            kind, square, self._to.number(dtype, -0.5), self._to.number(dtype, 1.0)
        )
        inner = self._polynomial(dtype, kind, square, table.cosine)
        cosine = self._to.fma(kind, fourth, inner, first)
        quarter = self._emit(f"bitcast {kind} {shifted} to {number}")
        parity = self._emit(f"and {number} {quarter}, splat (i{width} 1)")
        odd = self._emit(f"icmp ne {number} {parity}, zeroinitializer")
        values = []
        for name in wanted:
            if name == "sin":
                value = self._to.select(kind, odd, cosine, sine)
                sign = self._emit(f"bitcast {kind} {x} to {number}")
                turn = self._emit(f"shl {number} {quarter}, splat (i{width} {width - 2})")
                sign = self._emit(f"xor {number} {sign}, {turn}")
            else:
                value = self._to.select(kind, odd, sine, cosine)
                next_quarter = self._emit(f"add {number} {quarter}, splat (i{width} 1)")
                sign = self._emit(f"shl {number} {next_quarter}, splat (i{width} {width - 2})")
            sign = self._emit(f"and {number} {sign}, splat (i{width} {-(2 ** (width - 1))})")
            bits = self._emit(f"bitcast {kind} {value} to {number}")
            signed = self._emit(f"xor {number} {bits}, {sign}")
            values.append(self._emit(f"bitcast {number} {signed} to {kind}"))
        return values

    def _polynomial(self, dtype: str, kind: str, x: str, coefficients: tuple[float, ...]) -> str:
        value = self._to.number(dtype, coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self._to.fma(kind, value, x, self._to.number(dtype, c))
        return value
