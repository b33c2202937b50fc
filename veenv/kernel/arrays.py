"""Arithmetic of arrays: what it comes to is found for all of their entries at once.

By the kinds of the arguments rows fall into a few cases, of which `veenv.kernel.builder` has the
same for single operations. Case by case they are simplified, and what is left is looked up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veenv.kernel.builder import Builder
from veenv.kernel.ids import Ids, different
from veenv.kernel.numbering import CONSTANT, MINUS_ONE, NEGATIVE, ONE, ZERO

_FEW = 24
"""Rows that are faster one by one."""
Kinds = np.ndarray
"""Kinds of operations (`veenv.kernel.numbering`), int8."""
_Case = tuple[Callable[..., Any], Callable[..., Ids]]
"""From kinds which rows, and what their arguments come to; the first true of a row counts."""


def arithmetic(b: Builder, name: str, dtype: str, *operands: Ids) -> Ids:
    """As `Builder.op` for each entry of arrays.

    Args:
      b: the builder.
      name: add, sub, mul, div or neg.
      dtype: of floats.
      *operands: one or two arrays of one shape.

    Returns:
      An array of that shape.

    Example:
      >>> b = Builder()
      >>> x = np.array([b.input(0, k, "float32") for k in range(100)])
      >>> zero = np.full(100, b.number(0, "float32"))
      >>> bool((arithmetic(b, "add", "float32", x, zero) == x).all())
      True
    """
    columns = [x.ravel() for x in operands]
    made = _one_by_one if columns[0].size < _FEW else _CASES[name]
    return made(b, name, dtype, *columns).reshape(operands[0].shape)


def choose(b: Builder, which: Any, x: Any, y: Any) -> Ids:
    """The entries of x where a bool is true, otherwise those of y.

    Args:
      b: the builder.
      which: numbers of bools, as x and y of a shape to which all three are broadcast.
      x: numbers, of any dtype.
      y: numbers.
    """
    rows = np.broadcast_arrays(*(np.asarray(v, np.int64) for v in (which, x, y)))
    columns = zip(*(v.ravel().tolist() for v in rows), strict=True)
    ids = [b.op("select", b.ops[p].dtype, w, p, q) for w, p, q in columns]
    return np.array(ids, np.int64).reshape(rows[0].shape)


def _one_by_one(b: Builder, name: str, dtype: str, *columns: Ids) -> Ids:
    rows = zip(*[x.tolist() for x in columns], strict=True)
    return np.array(b.rows(name, dtype, rows), np.int64)


def _different(b: Builder, name: str, dtype: str, *columns: Ids) -> Ids:
    """As `_one_by_one`, each of the rows that are equal once."""
    rows, places = different(columns)
    return np.array(b.rows(name, dtype, rows), np.int64)[places]


def _sorted_out(
    b: Builder, name: str, dtype: str, columns: Sequence[Ids], cases: Sequence[_Case]
) -> Ids:
    """What each row comes to by its case; those of none are added as they are."""
    found, left = np.empty_like(columns[0]), np.arange(len(columns[0]))
    kinds = [b.kinds[x] for x in columns]
    for rows, made in cases:
        here = rows(*kinds)
        count = np.count_nonzero(here)
        if count == len(left):
            found[left] = made(*columns)
            return found
        if count:
            found[left[here]] = made(*(x[here] for x in columns))
            left, *columns = (x[~here] for x in (left, *columns))
            kinds = [k[~here] for k in kinds]
    found[left] = b.plain(name, dtype, *columns)
    return found


def _neg(b: Builder, name: str, dtype: str, x: Ids) -> Ids:
    cases: list[_Case] = [
        (lambda k: k == NEGATIVE, lambda x: b.inner[x]),
        (lambda k: k >= CONSTANT, functools.partial(_one_by_one, b, name, dtype)),
    ]
    return _sorted_out(b, name, dtype, (x,), cases)


def _add(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    cases: list[_Case] = [
        (_both_constant, functools.partial(_different, b, name, dtype)),
        (lambda k, _: k == ZERO, lambda x, y: y),
        (lambda _, k: k == ZERO, lambda x, y: x),
        (lambda _, k: k == NEGATIVE, lambda x, y: arithmetic(b, "sub", dtype, x, b.inner[y])),
        (lambda k, _: k == NEGATIVE, lambda x, y: arithmetic(b, "sub", dtype, y, b.inner[x])),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


def _sub(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    def negative(x: Ids, y: Ids) -> Ids:
        return arithmetic(b, "neg", dtype, arithmetic(b, "add", dtype, b.inner[x], y))

    cases: list[_Case] = [
        (_both_constant, functools.partial(_different, b, name, dtype)),
        (lambda _, k: k == ZERO, lambda x, y: x),
        (lambda _, k: k == NEGATIVE, lambda x, y: arithmetic(b, "add", dtype, x, b.inner[y])),
        (lambda k, _: k == NEGATIVE, negative),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


def _mul(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    def alone(k: Kinds, other: Kinds) -> Any:
        constants = k >= CONSTANT, other >= CONSTANT
        return (constants[0] & (constants[1] | (other == NEGATIVE))) | (
            constants[1] & (k == NEGATIVE)
        )

    cases: list[_Case] = [
        (lambda k, _: k == ONE, lambda x, y: y),
        (lambda _, k: k == ONE, lambda x, y: x),
        (alone, functools.partial(_different, b, name, dtype)),
        (lambda k, _: k == MINUS_ONE, lambda x, y: arithmetic(b, "neg", dtype, y)),
        (lambda _, k: k == MINUS_ONE, lambda x, y: arithmetic(b, "neg", dtype, x)),
        (_some_negative, functools.partial(_signed, b, name, dtype)),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


def _div(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    cases: list[_Case] = [
        (lambda _, k: k >= CONSTANT, functools.partial(_different, b, name, dtype)),
        (_some_negative, functools.partial(_signed, b, name, dtype)),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


def _both_constant(k: Kinds, other: Kinds) -> Any:
    return (k >= CONSTANT) & (other >= CONSTANT)


def _some_negative(k: Kinds, other: Kinds) -> Any:
    return (k == NEGATIVE) | (other == NEGATIVE)


def _signed(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    """Products and quotients of which one or both arguments are negatives."""
    negatives = [b.kinds[z] == NEGATIVE for z in (x, y)]
    inner = [np.where(n, b.inner[z], z) for n, z in zip(negatives, (x, y), strict=True)]
    found = arithmetic(b, name, dtype, *inner)
    odd = negatives[0] ^ negatives[1]
    found[odd] = arithmetic(b, "neg", dtype, found[odd])
    return found


_CASES: Mapping[str, Callable[..., Ids]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
}
