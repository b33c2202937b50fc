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
from veenv.kernel.numbering import CONSTANT, MINUS_ONE, NEGATIVE, ONE, ZERO

Ids = np.ndarray
"""Numbers of scalar operations, int64, in the shape of the array whose entries they compute."""
_FEW = 24
"""Rows that are faster one by one."""
_Case = tuple[Any, Callable[..., Ids]]
"""Which rows, and what their arguments come to; the first that is true of a row counts."""


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


def _sorted_out(
    b: Builder, name: str, dtype: str, columns: Sequence[Ids], cases: Sequence[_Case]
) -> Ids:
    """What each row comes to by its case; those of none are added as they are."""
    found = np.empty_like(columns[0])
    left = np.ones(found.shape, bool)
    for rows, made in cases:
        here = rows & left
        if here.any():
            found[here] = made(*(x[here] for x in columns))
            left &= ~here
    found[left] = b.plain(name, dtype, *(x[left] for x in columns))
    return found


def _neg(b: Builder, name: str, dtype: str, x: Ids) -> Ids:
    kind = b.kinds[x]
    singly = functools.partial(_one_by_one, b, name, dtype)
    cases = [
        (kind == NEGATIVE, lambda x: b.inner[x]),
        (kind >= CONSTANT, singly),
    ]
    return _sorted_out(b, name, dtype, (x,), cases)


def _add(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    one, other = b.kinds[x], b.kinds[y]
    singly = functools.partial(_one_by_one, b, name, dtype)
    cases = [
        ((one >= CONSTANT) & (other >= CONSTANT), singly),
        (one == ZERO, lambda x, y: y),
        (other == ZERO, lambda x, y: x),
        (other == NEGATIVE, lambda x, y: arithmetic(b, "sub", dtype, x, b.inner[y])),
        (one == NEGATIVE, lambda x, y: arithmetic(b, "sub", dtype, y, b.inner[x])),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


def _sub(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    one, other = b.kinds[x], b.kinds[y]
    singly = functools.partial(_one_by_one, b, name, dtype)

    def negative(x: Ids, y: Ids) -> Ids:
        return arithmetic(b, "neg", dtype, arithmetic(b, "add", dtype, b.inner[x], y))

    cases = [
        ((one >= CONSTANT) & (other >= CONSTANT), singly),
        (other == ZERO, lambda x, y: x),
        (other == NEGATIVE, lambda x, y: arithmetic(b, "add", dtype, x, b.inner[y])),
        (one == NEGATIVE, negative),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


def _mul(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    one, other = b.kinds[x], b.kinds[y]
    singly = functools.partial(_one_by_one, b, name, dtype)
    constants = (one >= CONSTANT, other >= CONSTANT)
    negatives = (one == NEGATIVE, other == NEGATIVE)
    alone = (constants[0] & (constants[1] | negatives[1])) | (constants[1] & negatives[0])
    cases = [
        (one == ONE, lambda x, y: y),
        (other == ONE, lambda x, y: x),
        (alone, singly),
        (one == MINUS_ONE, lambda x, y: arithmetic(b, "neg", dtype, y)),
        (other == MINUS_ONE, lambda x, y: arithmetic(b, "neg", dtype, x)),
        (negatives[0] | negatives[1], lambda x, y: _signed(b, name, dtype, x, y)),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


def _div(b: Builder, name: str, dtype: str, x: Ids, y: Ids) -> Ids:
    one, other = b.kinds[x], b.kinds[y]
    singly = functools.partial(_one_by_one, b, name, dtype)
    cases = [
        (other >= CONSTANT, singly),
        ((one == NEGATIVE) | (other == NEGATIVE), lambda x, y: _signed(b, name, dtype, x, y)),
    ]
    return _sorted_out(b, name, dtype, (x, y), cases)


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
