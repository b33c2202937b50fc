"""Builds scalar programs: equal operations become one, what is simpler is found as they come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from veenv.kernel import complex_numbers
from veenv.kernel.fold import evaluate
from veenv.kernel.program import (
    COMMUTATIVE,
    FLOATS,
    FREE,
    PAIRS,
    CannotFuseError,
    Op,
    dtype_name,
    made,
)

MAX_OPERATIONS = 60_000
"""Programs of more operations take longer than about fifteen seconds to compile."""
LONGEST = 8000
"""What a step of a loop may take of the code: it is one function, which one core compiles."""
_ID_BITS = 20
_IDS = (1 << _ID_BITS) - 1
_ARITHMETIC = {
    (name, dtype): k << 2 * _ID_BITS
    for k, (name, dtype) in enumerate(product(("add", "sub", "mul", "div", "neg"), sorted(FLOATS)))
}
"""Operations that can only be simplified where an argument is a constant or a negative.

They are known by an integer, which has the numbers of the arguments in its lower bits.
"""
_NEUTRAL = frozenset({0, 1, -1})  # constants by which a sum, a difference or a product is simpler
_NOT_FOLDED = frozenset({"complex", "shl", "shr_a", "shr_l", "array", "loop", "write"})


class Builder:
    """Adds operations as what they come to; what is added again has the number that it has.

    What it simplifies is exact, but for two things that XLA does too: ``x + 0`` is ``x`` (which can
    change the sign of a zero; not in sums that have an `attr`), and ``x / c`` with a constant is
    ``x · (1/c)``.
    """

    def __init__(self, limit: int = MAX_OPERATIONS, longest: int | None = None):
        if limit > _IDS:
            raise ValueError(f"a program has at most {_IDS:,} operations, not {limit:,}")
        self.ops: list[Op] = []
        self.counts: dict[tuple[str, int], np.ndarray] = {}
        self.loops: dict[str, Any] = {}
        self._limit, self._computing, self.longest = limit, 0, longest or LONGEST
        self._known: dict[Any, int] = {}
        self._special = bytearray()
        """Of each operation 2 if it is a constant, 1 if a neutral one or a negative, else 0."""

    def input(self, leaf: int, index: int, dtype: str) -> int:
        """Entry `index` of input leaf `leaf`."""
        key = "input", leaf, index
        known = self._known.get(key)
        return self._add(Op("input", dtype, (), (leaf, index)), key) if known is None else known

    def const(self, value: Any) -> int:
        """A NumPy scalar; a complex one is a pair of constants."""
        value = np.asarray(value)[()]
        if np.iscomplexobj(value):
            return complex_numbers.pair(self, self.const(value.real), self.const(value.imag))
        dtype = dtype_name(value.dtype)
        value = value.astype(dtype, copy=False)
        key = dtype, value.tobytes()
        known = self._known.get(key)
        return self._add(Op("const", dtype, (), value), key) if known is None else known

    def consts(self, values: np.ndarray) -> list[int]:
        """Many numbers of a dtype that operations take, [n]."""
        dtype, size, data = dtype_name(values.dtype), values.dtype.itemsize, values.tobytes()
        keys = [(dtype, data[k : k + size]) for k in range(0, len(data), size)]
        found = map(self._known.get, keys)
        return [self.const(x) if i is None else i for x, i in zip(values, found, strict=True)]

    def number(self, value: float, dtype: str) -> int:
        """A Python number as a constant of a dtype."""
        return self.const(np.dtype(dtype).type(value))

    def value(self, i: int) -> Any:
        """The constant that an operation is; None for others."""
        op = self.ops[i]
        return op.attr if op.name == "const" else None

    def negated(self, i: int) -> int | None:
        """What an operation is the negative of, of floats; None for what is no negation."""
        op = self.ops[i]
        return op.args[0] if op.name == "neg" and op.dtype in FLOATS else None

    def op(self, name: str, dtype: str, *args: int, attr: Any = None) -> int:
        """The number of an operation, new or known."""
        code = _ARITHMETIC.get((name, dtype)) if attr is None else None
        if code is not None:
            if args[0] > args[-1] and name in COMMUTATIVE:
                args = args[::-1]
            key = code | args[0] << _ID_BITS | args[-1]
            known = self._known.get(key)
            return self._arithmetic(name, dtype, args, key) if known is None else known
        if dtype in PAIRS and name != "complex":
            return complex_numbers.operation(self, attr or name, dtype, *args)
        if name in COMMUTATIVE and args[0] > args[1]:
            args = args[::-1]
        op = made((name, dtype, args, attr))
        known = self._known.get(op)
        if known is None:
            known = self._simpler(op)
            if known is None:
                return self._add(op, op)
            self._known[op] = known
        return known

    def rows(self, name: str, dtype: str, rows: Iterable[tuple[int, ...]]) -> list[int]:
        """As `op` for each row of arguments; fast for sums, products and the like of floats."""
        code = _ARITHMETIC.get((name, dtype))
        if code is None:
            return [self.op(name, dtype, *args) for args in rows]
        commutes, known, ids = name in COMMUTATIVE, self._known, []
        for args in rows:
            first, last = args[0], args[-1]
            if commutes and first > last:
                args = first, last = last, first
            key = code | first << _ID_BITS | last
            found = known.get(key)
            ids.append(self._arithmetic(name, dtype, args, key) if found is None else found)
        return ids

    def dot(self, dtype: str, x: Iterable[int], y: Iterable[int]) -> int | None:
        """The sum of the products of two rows, from the first one on; None of empty ones."""
        multiply, add = ("and", "or") if dtype == "bool" else ("mul", "add")
        total = None
        for first, last in zip(x, y, strict=True):
            term = self.op(multiply, dtype, first, last)
            total = term if total is None else self.op(add, dtype, total, term)
        return total

    def _arithmetic(self, name: str, dtype: str, args: tuple[int, ...], key: int) -> int:
        """The number of an operation that is not known, or of what it comes to."""
        op = made((name, dtype, args, None))
        kinds = self._special[args[0]], self._special[args[-1]]
        if kinds != (0, 0) and (1 in kinds or 0 not in kinds or name == "div"):
            found = self._simpler(op)
            if found is not None:
                self._known[key] = found
                return found
        return self._add(op, key)

    def _simpler(self, op: Op) -> int | None:
        """The number of the constant or simpler operation that one comes to; None for others."""
        every = [self.ops[a] for a in op.args]
        values = [x.attr if x.name == "const" else None for x in every]
        known = values and all(v is not None for v in values)
        if known and op.name not in _NOT_FOLDED:
            return self.const(evaluate(op, values))
        return _RULES[op.name](self, op, values) if op.name in _RULES else None

    @property
    def computing(self) -> int:
        """How many operations compute something so far."""
        return self._computing

    def expect(self, count: int) -> None:
        """Refuses what takes so many operations more."""
        if self._computing + count > self._limit:
            raise self._too_many()

    def _too_many(self) -> CannotFuseError:
        return CannotFuseError(
            f"the function takes more than {self._limit:,} scalar operations, the most "
            "that one kernel may have (it would take too long to compile)"
        )

    def _add(self, op: Op, key: Any) -> int:
        """The number of an operation that is not known."""
        number = len(self.ops)
        self._computing += op.name not in FREE
        if self._computing > self._limit or number >= _IDS:
            raise self._too_many()
        self._known[key] = number
        self.ops.append(op)
        special = op.name in ("const", "neg")
        plain = op.name == "const" and op.attr not in _NEUTRAL
        self._special.append(special + plain)
        return number

    def array(self, ids: Sequence[int]) -> int:
        """The array of some entries: what is one already, or follows in one, is not made anew."""
        ops = [self.ops[i] for i in ids]
        first = ops[0]
        if len(ids) > 1 and all(op.name == first.name for op in ops):
            if first.name == "input" and all(op.attr[0] == first.attr[0] for op in ops):
                whole = self.op("input", first.dtype, attr=(first.attr[0], None))
                return self._within(whole, [op.attr[1] for op in ops], ids)
            if first.name == "entry" and all(op.args == first.args for op in ops):
                return self._within(first.args[0], [op.attr for op in ops], ids)
        return self.op("array", first.dtype, *ids)

    def entries(self, i: int) -> int | None:
        """How many entries an array has; None of a number, or of a whole input."""
        while self.ops[i].name == "write":
            i = self.ops[i].args[0]
        op = self.ops[i]
        if op.name == "array":
            return len(op.args)
        if op.name == "view":
            return op.attr[2]
        return self.ops[op.args[0]].attr.entries(op.attr) if op.name == "part" else None

    def _within(self, whole: int, places: Sequence[int], ids: Sequence[int]) -> int:
        """The array of entries that are at some places of another."""
        of, start, stride = self.ops[whole], places[0], places[1] - places[0]
        if any(place != start + k * stride for k, place in enumerate(places)):
            return self.op("array", of.dtype, *ids)
        if (start, stride, len(places)) == (0, 1, self.entries(whole)):
            return whole
        return self.op("view", of.dtype, whole, attr=(start, stride, len(places)))


Values = Sequence[Any]


def _add(b: Builder, op: Op, values: Values) -> int | None:
    x, y = op.args
    if op.attr is None and values[0] is not None and values[0] == 0:
        return y
    if op.attr is None and values[1] is not None and values[1] == 0:
        return x
    if (inner := b.negated(y)) is not None:
        return b.op("sub", op.dtype, x, inner)
    if (inner := b.negated(x)) is not None:
        return b.op("sub", op.dtype, y, inner)
    return None


def _sub(b: Builder, op: Op, values: Values) -> int | None:
    x, y = op.args
    if values[1] is not None and values[1] == 0:
        return x
    if (inner := b.negated(y)) is not None:
        return b.op("add", op.dtype, x, inner)
    if (inner := b.negated(x)) is not None:
        return b.op("neg", op.dtype, b.op("add", op.dtype, inner, y))
    if x == y and op.dtype not in FLOATS:
        return b.number(0, op.dtype)
    return None


def _mul(b: Builder, op: Op, values: Values) -> int | None:
    for (x, y), value in zip((op.args, op.args[::-1]), (values[1], values[0]), strict=True):
        if value is not None:
            if value == 1:
                return x
            if value == -1 and op.dtype in FLOATS:
                return b.op("neg", op.dtype, x)
            if value == 0 and op.dtype not in FLOATS:
                return y
        inner = b.negated(x)
        if inner is not None:
            if value is not None:
                return b.op("mul", op.dtype, inner, b.const(-value))
            return b.op("neg", op.dtype, b.op("mul", op.dtype, inner, y))
    return None


def _div(b: Builder, op: Op, values: Values) -> int | None:
    if op.dtype not in FLOATS:
        return None
    x, y = op.args
    if values[1] is not None:
        if values[1] == 1:
            return x
        with np.errstate(all="ignore"):
            inverse = np.dtype(op.dtype).type(1) / values[1]
        tiny = np.finfo(op.dtype).tiny
        if np.isfinite(inverse) and abs(inverse) >= tiny and np.isfinite(values[1]):
            return b.op("mul", op.dtype, x, b.const(inverse))
    for position, other in ((0, y), (1, x)):
        if (inner := b.negated(op.args[position])) is not None:
            pair = (inner, other) if position == 0 else (other, inner)
            return b.op("neg", op.dtype, b.op("div", op.dtype, *pair))
    return None


def _involution(b: Builder, op: Op, values: Values) -> int | None:
    """An operation that undoes itself."""
    inner = b.ops[op.args[0]]
    return inner.args[0] if inner.name == op.name else None


def _abs(b: Builder, op: Op, values: Values) -> int | None:
    inner = b.ops[op.args[0]]
    if inner.name == "neg" and op.dtype in FLOATS:
        return b.op("abs", op.dtype, inner.args[0])
    return op.args[0] if inner.name == "abs" else None


def _extreme(b: Builder, op: Op, values: Values) -> int | None:
    return op.args[0] if op.args[0] == op.args[1] else None


def _select(b: Builder, op: Op, values: Values) -> int | None:
    condition, true, false = op.args
    if values[0] is not None:
        return true if values[0] else false
    if true == false:
        return true
    if op.dtype == "bool" and values[1] is not None and values[2] is not None:
        return condition if values[1] else b.op("not", "bool", condition)
    inner = b.ops[condition]
    if inner.name == "not":
        return b.op("select", op.dtype, inner.args[0], false, true)
    return None


def _convert(b: Builder, op: Op, values: Values) -> int | None:
    return op.args[0] if b.ops[op.args[0]].dtype == op.dtype else None


def _logical(b: Builder, op: Op, values: Values) -> int | None:
    neutral = op.name == "and"
    if op.args[0] == op.args[1]:
        return op.args[0]
    if op.dtype != "bool":
        return None
    for value, other in zip(values, op.args[::-1], strict=True):
        if value is not None:
            return other if bool(value) == neutral else b.const(np.bool_(not neutral))
    return None


def _read(b: Builder, op: Op, values: Values) -> int | None:
    return None if values[1] is None else entry(b, op.args[0], int(values[1]))


def entry(b: Builder, whole: int, place: int) -> int:
    """The entry of an array at a place that is known."""
    of = b.ops[whole]
    if of.name == "array":
        return of.args[place]
    if of.name == "view":
        start, stride, _ = of.attr
        return entry(b, of.args[0], start + stride * place)
    if of.name == "input":
        return b.input(of.attr[0], place, of.dtype)
    return b.op("entry", of.dtype, whole, attr=place)


_RULES = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _involution,
    "abs": _abs,
    "max": _extreme,
    "min": _extreme,
    "select": _select,
    "convert": _convert,
    "and": _logical,
    "or": _logical,
    "not": _involution,
    "read": _read,
}
