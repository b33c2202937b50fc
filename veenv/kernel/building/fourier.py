"""Discrete Fourier transforms as scalar operations: butterflies with a table of roots of unity."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax import lax

from veenv import limits
from veenv.kernel.building.builder import Builder, Ids, Rule, arithmetic, constants
from veenv.kernel.building.complex_numbers import pair, parts
from veenv.kernel.scalar_program import COMPLEX, CannotFuseError, dtype_name

_Parts = tuple[Ids, Ids]
"""Real and imaginary parts of numbers."""


class _Transform:
    """Transforms along the first axis, of numbers whose parts have a dtype."""

    def __init__(self, b: Builder, dtype: str, sign: int):
        self.b, self.dtype, self.sign = b, dtype, sign

    def scaled(self, factors: np.ndarray, x: Ids) -> Ids:
        """Factors times numbers; zero times an infinite one is none, as nothing is multiplied."""
        factors = np.broadcast_to(factors.reshape(-1, *(1 for _ in x.shape[1:])), x.shape)
        products, on = np.full(x.shape, self.b.number(0, self.dtype), np.int64), factors != 0
        numbers = constants(self.b, factors[on].astype(self.dtype))
        products[on] = arithmetic(self.b, "mul", self.dtype, numbers, x[on])
        return products

    def add(self, x: Ids, y: Ids) -> Ids:
        """Sums of numbers."""
        return arithmetic(self.b, "add", self.dtype, x, y)

    def turned(self, z: _Parts, turns: np.ndarray) -> _Parts:
        """Numbers times the exponentials of 2 pi i turns, which go along the first axis."""
        whole = np.round(4 * turns) == 4 * turns  # quarters, where sines and cosines are 0 and 1
        tables = np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)
        c, s = (np.where(whole, np.round(x), x) for x in tables)
        re, im = z
        less = self.scaled(-s, im)
        return self.add(self.scaled(c, re), less), self.add(self.scaled(s, re), self.scaled(c, im))

    def whole(self, z: _Parts) -> _Parts:
        """The transform (Cooley and Tukey 1965)."""
        n = len(z[0])
        if n < 2:
            return z
        p = _primes(n)[0]
        re, im = (x.reshape(n // p, p, *x.shape[1:]) for x in z)
        re, im = self.whole((re, im))
        turns, rows = self.sign * np.arange(n // p) / n, [(re[:, 0], im[:, 0])]
        rows += [self.turned((re[:, r], im[:, r]), r * turns) for r in range(1, p)]
        parts = []
        for q in range(p):
            around = self.sign * np.arange(p) * q % p / p
            terms = [
                self.turned(row, np.full(n // p, around[r])) if around[r] else row
                for r, row in enumerate(rows)
            ]
            parts.append([functools.reduce(self.add, x) for x in zip(*terms, strict=True)])
        re, im = map(np.concatenate, zip(*parts, strict=True))
        return re, im


def _fft(b: Builder, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
    """Fourier transforms along the last axes, of real arrays or to them along the last one."""
    lengths, kind = eqn.params["fft_lengths"], lax.FftType(eqn.params["fft_type"]).name
    if max(lengths, default=1) > limits.WIDE:
        reason = f"of {max(lengths)} numbers cannot be fused, of up to {limits.WIDE} it can"
        raise CannotFuseError(f"primitive 'fft' {reason}", "fft")
    (x,), aval, back = ins, eqn.outvars[0].aval, "I" in kind
    of = dtype_name(eqn.invars[0].aval.dtype)
    dtype = COMPLEX.get(of, of)
    zero, transform = b.number(0, dtype), _Transform(b, dtype, 1 if back else -1)
    both = [parts(b, i) if of in COMPLEX else (i, zero) for i in x.ravel().tolist()]
    re, im = np.array(both, np.int64).reshape(-1, 2).T.reshape(2, *x.shape)
    axes = [*range(x.ndim - len(lengths), x.ndim)]
    for axis in reversed(axes) if kind == "RFFT" else axes:  # along the last one while it is real
        n, half = lengths[axis - x.ndim], "R" in kind and axis == x.ndim - 1
        re, im = (np.moveaxis(y, axis, 0) for y in (re, im))
        if half and back:  # the other half is conjugate; what is its own conjugate is real
            other, none = slice((n - 1) // 2, 0, -1), np.full_like(im[:1], zero)
            halves = [none, im[1 : (n + 1) // 2], *([none] if n % 2 == 0 else [])]
            re = np.concatenate([re, re[other]])
            im = np.concatenate([*halves, arithmetic(b, "neg", dtype, im[other])])
        re, im = transform.whole((re, im))
        if back:
            re, im = (transform.scaled(np.full(n, 1 / n), y) for y in (re, im))
        end = n // 2 + 1 if half and not back else n
        re, im = (np.moveaxis(y[:end], 0, axis) for y in (re, im))
    if aval.dtype.kind != "c":
        return [re]
    ids = [pair(b, *of) for of in zip(re.ravel().tolist(), im.ravel().tolist(), strict=True)]
    return [np.array(ids, np.int64).reshape(aval.shape)]


def passes(eqn: Any) -> int:
    """Counts the arrays of its result's size that an equation computes: one, but for transforms."""
    lengths = eqn.params.get("fft_lengths", ())
    return max(1, sum(2 * p for n in lengths for p in _primes(n)))  # sums of rows, turned before


def _primes(n: int) -> list[int]:
    """The prime factors of a number."""
    p = next((p for p in range(2, n) if n % p == 0), n)
    return [p, *_primes(n // p)] if n > 1 else []


RULES: Mapping[str, Rule] = {"fft": _fft}
"""What a Fourier transform does to the numbers of operations."""
