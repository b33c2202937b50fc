"""A growing list of operations in which no two are equal, compiled.

What `veenv.kernel.builder.Builder` does to products, sums and signs of floats, on numbers of
operations; everything else of a program is there from the start and opaque. `tests` hold the two
together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from veenv.search.kernels.compilation import compiled

OPAQUE, CONST, MUL, ADD, SUB, NEG, SELECT, AND, OR = range(9)
NONE = -1


class Operations(NamedTuple):
    """Operations by number, each after its arguments.

    Attributes:
      rows: int64 [M, 6]; of each operation its kind, three arguments (`NONE` where it has fewer; of
        constants the bits), what it takes, and its place in the table (`NONE` for opaque ones).
      table: int64 [T]; numbers by hash, `NONE` where free; T is a power of two.
      size: int64 [3]; how many operations there are, how many there were at the start, and whether
        constants are rounded to float32.
    """

    rows: np.ndarray
    table: np.ndarray
    size: np.ndarray


def _bitcast(source: Any, target: Any) -> Any:
    """An intrinsic for the same 64 bits as another type."""

    @intrinsic
    def operation(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return operation


float_of = _bitcast(types.int64, types.float64)
"""The float64 of 64 bits."""
bits_of = _bitcast(types.float64, types.int64)
"""The bits of a float64, as int64."""


@compiled
def find(ops, kind, a, b, c):
    """The number of an operation, new or known; there must be room for a new one."""
    table, rows = ops.table, ops.rows
    mask = table.shape[0] - 1
    h = (kind * 0x9E3779B1) ^ (a * 0x85EBCA6B) ^ (b * 0x27D4EB2F) ^ (c * 0x165667B1)
    h = (h ^ (h >> 15) ^ (h >> 32)) & mask
    while table[h] != NONE:
        i = table[h]
        if rows[i, 0] == kind and rows[i, 1] == a and rows[i, 2] == b and rows[i, 3] == c:
            return i
        h = (h + 1) & mask
    i = ops.size[0]
    table[h] = i
    rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3] = kind, a, b, c
    rows[i, 4] = 0 if kind == CONST else 1
    rows[i, 5] = h
    ops.size[0] = i + 1
    return i


@compiled
def forget(ops):
    """Forgets what is not there from the start."""
    for i in range(ops.size[0] - 1, ops.size[1] - 1, -1):
        ops.table[ops.rows[i, 5]] = NONE
    ops.size[0] = ops.size[1]


@compiled
def constant(ops, value):
    """A number."""
    if ops.size[2]:
        value = np.float64(np.float32(value))
    return find(ops, CONST, bits_of(value), NONE, NONE)


@compiled
def negative(ops, a):
    """-a."""
    if ops.rows[a, 0] == CONST:
        return constant(ops, -float_of(ops.rows[a, 1]))
    if ops.rows[a, 0] == NEG:
        return ops.rows[a, 1]
    return find(ops, NEG, a, NONE, NONE)


@compiled
def product(ops, a, b):
    """a · b."""
    if ops.rows[a, 0] == CONST and ops.rows[b, 0] == CONST:
        return constant(ops, float_of(ops.rows[a, 1]) * float_of(ops.rows[b, 1]))
    if ops.rows[a, 0] == CONST:
        a, b = b, a
    if ops.rows[b, 0] == CONST:
        if float_of(ops.rows[b, 1]) == 1.0:
            return a
        if float_of(ops.rows[b, 1]) == -1.0:
            return negative(ops, a)
        if ops.rows[a, 0] == NEG:
            a, b = ops.rows[a, 1], constant(ops, -float_of(ops.rows[b, 1]))
            return find(ops, MUL, min(a, b), max(a, b), NONE)
    minus = False
    if ops.rows[a, 0] == NEG:
        a, minus = ops.rows[a, 1], True
    if ops.rows[b, 0] == NEG:
        b, minus = ops.rows[b, 1], not minus
    found = find(ops, MUL, min(a, b), max(a, b), NONE)
    return negative(ops, found) if minus else found


@compiled
def difference(ops, a, b):
    """a - b, b no negation."""
    if ops.rows[a, 0] == CONST and ops.rows[b, 0] == CONST:
        return constant(ops, float_of(ops.rows[a, 1]) - float_of(ops.rows[b, 1]))
    if ops.rows[b, 0] == CONST and float_of(ops.rows[b, 1]) == 0.0:
        return a
    if ops.rows[a, 0] == NEG:
        a = ops.rows[a, 1]
        return negative(ops, find(ops, ADD, min(a, b), max(a, b), NONE))
    return find(ops, SUB, a, b, NONE)


@compiled
def total(ops, a, b, minus):
    """a + b, or a - b."""
    if minus:
        if ops.rows[b, 0] != NEG:
            return difference(ops, a, b)
        b = ops.rows[b, 1]
    if ops.rows[a, 0] == CONST and ops.rows[b, 0] == CONST:
        return constant(ops, float_of(ops.rows[a, 1]) + float_of(ops.rows[b, 1]))
    if ops.rows[a, 0] == CONST and float_of(ops.rows[a, 1]) == 0.0:
        return b
    if ops.rows[b, 0] == CONST and float_of(ops.rows[b, 1]) == 0.0:
        return a
    if ops.rows[b, 0] == NEG:
        return difference(ops, a, ops.rows[b, 1])
    if ops.rows[a, 0] == NEG:
        return difference(ops, b, ops.rows[a, 1])
    return find(ops, ADD, min(a, b), max(a, b), NONE)


@compiled
def chosen(ops, mask, a):
    """a where the mask is true, else zero; a where there is no mask."""
    if mask == NONE:
        return a
    zero = constant(ops, 0.0)
    return a if a == zero else find(ops, SELECT, mask, a, zero)


@compiled
def logical(ops, kind, a, b):
    """``a AND b`` or ``a OR b``."""
    return a if a == b else find(ops, kind, min(a, b), max(a, b), NONE)
