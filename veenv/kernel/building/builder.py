"""Builds scalar programs: equal operations become one, what is simpler is found as they come.

Operations have numbers, and arrays of these numbers are what primitives are computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product
from typing import Any

import numpy as np

from veenv import limits
from veenv.kernel.building import complex_numbers
from veenv.kernel.scalar_program import (
    COMMUTATIVE,
    DTYPES,
    FLOATS,
    FREE,
    NARROW,
    PAIRS,
    CannotFuseError,
    Op,
    TooLongError,
    dtype_name,
    made,
)
from veenv.rules.operations import OPERATIONS

_LONGEST = 4 * limits.BODY
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
CARRY, COLUMN, OUTER = GIVEN = "carry", "column", "outer"
"""While a body is built: what is carried, an array's entry of the step, an operation outside."""
_NEUTRAL = frozenset({0, 1, -1})  # constants by which a sum, a difference or a product is simpler
_NOT_FOLDED = frozenset({"complex", "shl", "shr_a", "shr_l", "array", "loop", "write"})


class Builder:
    """Adds operations as what they come to; what is added again has the number that it has.

    What it simplifies is exact, but for two things that XLA does too: ``x + 0`` is ``x`` (which can
    change the sign of a zero; not in sums that have an `attr`), and ``x / c`` with a constant is
    ``x · (1/c)``.
    """

    def __init__(
        self,
        limit: int = limits.MAX_OPERATIONS,
        longest: int | None = None,
        stored: bool = False,
    ):
        if limit > _IDS:
            raise ValueError(f"a program has at most {_IDS:,} operations, not {limit:,}")
        self.ops: list[Op] = []
        self.counts: dict[tuple[str, int], np.ndarray] = {}
        self.loops, self.formulas = dict[str, Any](), dict[int, Any]()
        self.stored = stored  # whether loops go through the entries of large arrays in memory
        self.limit, self.longest = limit, longest or _LONGEST
        self.computing = 0  # how many of the operations compute something
        self.most_stacked = limits.STACKED
        self._known: dict[Any, int] = {}
        self._choices: dict[int, Any] = {}
        self._counted = True
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
        numbers = map(self._known.get, keys)
        return [self.const(x) if i is None else i for x, i in zip(values, numbers, strict=True)]

    def number(self, value: float, dtype: str) -> int:
        """A Python number as a constant of a dtype."""
        return self.const(np.dtype(dtype).type(value))

    def value(self, i: int) -> Any:
        """The constant that an operation is; None for others."""
        op = self.ops[i]
        return op.attr if op.name == "const" else None

    def negated(self, i: int) -> int | None:
        """Returns the operation that a float operation negates; None if it is no negation."""
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
        """Adds `op` for each row of arguments; fast for sums, products and the like of floats."""
        code = _ARITHMETIC.get((name, dtype))
        if code is None:
            return [self.op(name, dtype, *args) for args in rows]
        rows = [*rows]
        values = [constant(self, np.array(column)) for column in zip(*rows, strict=True)]
        if values and all(v is not None for v in values):
            return self.consts(evaluate(Op(name, dtype), values))
        commutes, known, ids = name in COMMUTATIVE, self._known, []
        for args in rows:
            first, last = args[0], args[-1]
            if commutes and first > last:
                args = first, last = last, first
            key = code | first << _ID_BITS | last
            known_op = known.get(key)
            ids.append(self._arithmetic(name, dtype, args, key) if known_op is None else known_op)
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
            simpler = self._simpler(op)
            if simpler is not None:
                self._known[key] = simpler
                return simpler
        return self._add(op, key)

    def _simpler(self, op: Op) -> int | None:
        """The number of the constant or simpler operation that one comes to; None for others."""
        every = [self.ops[a] for a in op.args]
        values = [x.attr if x.name == "const" else None for x in every]
        known = values and all(v is not None for v in values)
        if known and op.name not in _NOT_FOLDED:
            return self.const(evaluate(op, values))
        return _RULES[op.name](self, op, values) if op.name in _RULES else None

    def expect(self, count: int) -> None:
        """Refuses what takes so many operations more."""
        if self.computing + count > self.limit:
            raise self.too_many()

    def too_many(self) -> TooLongError:
        """The error for more operations than there may be."""
        return TooLongError(
            f"the function takes more than {self.limit:,} scalar operations, the most "
            "that one kernel may have (it would take too long to compile)"
        )

    def _add(self, op: Op, key: Any) -> int:
        """The number of an operation that is not known."""
        number = len(self.ops)
        self.computing += self._counted and op.name not in FREE and op.name not in GIVEN
        if self.computing > self.limit or number >= _IDS:
            raise self.too_many()
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

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Counts no operations: what is not needed is left out, and the rest is counted then."""
        counted, self._counted = self._counted, False
        try:
            yield
        finally:
            self._counted = counted

    def choice(self, array: int) -> tuple[int, Callable[[int], int], Callable[[int], int]] | None:
        """The bool that chooses between two arrays, and what reads each; None of other arrays."""
        if array not in self._choices:
            self._choices[array] = self._choice(array)
        return self._choices[array]

    def _choice(self, array: int) -> Any:
        ops = [self.ops[i] for i in self.ops[array].args]
        alike = self.ops[array].name == "array" and all(
            op.name == "select" and op.args[0] == ops[0].args[0] for op in ops
        )
        if not alike:
            return None
        either = [self._reader([op.args[k] for op in ops]) for k in (1, 2)]
        return None if None in either else (ops[0].args[0], *either)

    def _reader(self, ids: Sequence[int]) -> Callable[[int], int] | None:
        """Returns the reader of an array's entries, or of a value that is the same everywhere."""
        if all(i == ids[0] for i in ids):
            return lambda place: ids[0]
        array, dtype = self.array(ids), self.ops[ids[0]].dtype
        there = self.ops[array].name != "array" or all(self.value(i) is not None for i in ids)
        return (lambda place: self.op("read", dtype, array, place)) if there else None

    def entries(self, i: int) -> int | None:
        """Counts the entries of an array; None for a number, or a whole input."""
        while self.ops[i].name == "write":
            i = self.ops[i].args[0]
        op = self.ops[i]
        if op.name == "array":
            return len(op.args)
        if op.name == "view":
            return op.attr[2]
        return self.ops[op.args[0]].attr.entries(op.attr) if op.name == "part" else None

    def entries_at(self, whole: int, places: Sequence[int]) -> list[int]:
        """The entries at places of an array that a loop writes."""
        dtype, known = self.ops[whole].dtype, self._known
        entries = [made(("entry", dtype, (whole,), place)) for place in places]
        fresh = [op for op in entries if op not in known]
        known.update(zip(fresh, range(len(self.ops), len(self.ops) + len(fresh)), strict=True))
        self.ops += fresh
        self._special += bytes(len(fresh))
        return [known[op] for op in entries]

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
    """An entry at a known place, or of each of two arrays between which one bool chooses."""
    array, place = op.args
    if values[1] is not None:
        return entry(b, array, int(values[1]))
    choice = b.choice(array)
    if choice is None:
        return None
    which, *either = choice
    return b.op("select", op.dtype, which, *(x(place) for x in either))


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


def evaluate(op: Op, args: Sequence[Any]) -> Any:
    """The value of an operation at NumPy scalars or arrays, in the operation's dtype.

    Functions of float32 are evaluated in float64 and rounded once.
    """
    with np.errstate(all="ignore"):
        if op.name == "convert":
            value = _converted(args[0], op.dtype)
        elif op.name == "bitcast":
            value = np.asarray(args[0]).view(op.dtype)
        else:
            if op.name == "call" and op.dtype == "float32":
                args = [np.asarray(a, np.float64) for a in args]
            value = OPERATIONS[op.attr if op.name == "call" else op.name].numpy(*args)
        return np.asarray(value).astype(op.dtype)[()]


def _converted(x: Any, dtype: str) -> Any:
    x = np.asarray(x)
    if dtype == "bool":
        return x != 0
    if dtype_name(x.dtype) in FLOATS and dtype not in FLOATS:
        info = np.iinfo(dtype)
        inside = np.clip(np.trunc(np.nan_to_num(x.astype(np.float64))), info.min, info.max)
        top, bottom = x >= float(info.max), x <= float(info.min)
        safe = np.where(top | bottom, 0, inside).astype(dtype)
        return np.where(top, info.max, np.where(bottom, info.min, safe))
    return x.astype(dtype)


Ids = np.ndarray
"""Numbers of scalar operations, int64, in the shape of the array whose entries they compute."""
Rule = Callable[[Builder, Any, Sequence[Ids]], list[Ids]]
"""What a primitive does: from the builder, the equation and the operands to the results."""


def arithmetic(b: Builder, name: str, dtype: str, *operands: Ids) -> Ids:
    """Adds `Builder.op` for each entry of arrays of one shape; equal entries are added once."""
    rows, places = different([x.ravel() for x in operands])
    return np.array(b.rows(name, dtype, rows), np.int64)[places].reshape(operands[0].shape)


def choose(b: Builder, which: Any, x: Any, y: Any) -> Ids:
    """The entries of x where a bool is true, otherwise those of y, all broadcast to one shape."""
    if np.size(which) == 1 and np.shape(x) == np.shape(y):
        for new, old, negate in ((x, y, False), (y, x, True)):
            column = _written(b, int(np.ravel(which)[0]), new, old, negate)
            if column is not None:
                return column
    rows = np.broadcast_arrays(*(np.asarray(v, np.int64) for v in (which, x, y)))
    columns = zip(*(v.ravel().tolist() for v in rows), strict=True)
    once = np.size(which) == 1 and rows[0].size > limits.WIDE
    with b.uncounted() if once else nullcontext():  # few of them may be read, see `_read`
        ids = [b.op("select", b.ops[p].dtype, w, p, q) for w, p, q in columns]
    return np.array(ids, np.int64).reshape(rows[0].shape)


def whole(b: Builder, ids: Sequence[int]) -> int | None:
    """The array with something written in it, of which these are all entries; None for others."""
    first = b.ops[ids[0]] if len(ids) else None
    if first is None or first.name != "entry" or first.attr or b.entries(first.args[0]) != len(ids):
        return None
    same = all(b.ops[i] == first._replace(attr=k) for k, i in enumerate(ids))
    return first.args[0] if same else None


def _written(b: Builder, which: int, new: Any, old: Any, negate: bool) -> Ids | None:
    """An array where what was written in another is chosen as it is written; None for others."""
    ids = np.ravel(new).tolist()
    last = whole(b, ids)
    if last is None or b.ops[last].name != "write":
        return None
    writes, base = list[Op](), b.array(np.ravel(old).tolist())
    while last != base and b.ops[last].name == "write":
        writes.append(b.ops[last])
        last = b.ops[last].args[0]
    if last != base:
        return None
    for op in reversed(writes):
        _, place, value = op.args
        pair = value, b.op("read", op.dtype, last, place)
        value = b.op("select", op.dtype, which, *(pair[::-1] if negate else pair))
        last = b.op("write", op.dtype, last, place, value)
    entries = [b.op("entry", b.ops[last].dtype, last, attr=k) for k in range(len(ids))]
    return np.array(entries, np.int64).reshape(np.shape(new))


def reals(b: Builder, ids: Ids) -> list[int]:
    """The operations of an array's entries; of complex ones the parts, one after the other."""
    flat = ids.ravel().tolist()
    if flat and b.ops[flat[0]].dtype in PAIRS:
        return [part for i in flat for part in b.ops[i].args]
    return flat


def once(*arrays: Ids) -> list[Ids]:
    """Arrays of one shape with one entry along each axis along which all of them are broadcast."""
    steps = zip(*(x.strides for x in arrays), strict=True)
    cut = [slice(None) if any(step) else slice(0, 1) for step in steps]
    return [x[*cut, ...] for x in arrays]


def constant(b: Builder, ids: Ids) -> np.ndarray | None:
    """The array that constants make up; None where an entry is not constant."""
    if ids.size and b.value(int(ids.flat[0])) is None:
        return None
    (few,) = once(ids)
    rows, places = different([few.ravel()])
    values = [b.value(i) for (i,) in rows]
    if any(v is None for v in values):
        return None
    dtype = b.ops[int(ids.flat[0])].dtype if ids.size else np.int32
    return np.broadcast_to(np.array(values, dtype)[places].reshape(few.shape), ids.shape)


def constants(b: Builder, values: Any) -> Ids:
    """The numbers of the entries of a constant array."""
    values = np.asarray(values)
    if values.dtype == bool:
        return np.where(values, b.const(np.True_), b.const(np.False_))
    if values.dtype.name in NARROW:
        values = values.astype(np.float32)
    if values.size == 1 or dtype_name(values.dtype) not in {*DTYPES, *PAIRS}:
        # no operation takes the latter
        return np.array([b.const(v) for v in values.flat], np.int64).reshape(values.shape)
    if np.iscomplexobj(values):
        pairs = zip(constants(b, values.real).flat, constants(b, values.imag).flat, strict=True)
        ids = [complex_numbers.pair(b, int(re), int(im)) for re, im in pairs]
        return np.array(ids, np.int64).reshape(values.shape)
    bits = values.ravel().view(f"u{values.dtype.itemsize}")
    rows, places = different([bits])
    numbers = np.array(rows, bits.dtype).ravel().view(values.dtype)
    return np.array(b.consts(numbers), np.int64)[places].reshape(values.shape)


def different(columns: Sequence[np.ndarray]) -> tuple[list[tuple[int, ...]], Any]:
    """The rows that are not equal, in the order in which they come first, and where each is."""
    if len(columns[0]) < limits.WIDE:
        return [*zip(*[column.tolist() for column in columns], strict=True)], slice(None)
    key, *rest = columns
    for column in rest:
        if int(key.max() + 1) * int(column.max() + 1) > np.iinfo(np.int64).max:
            key = np.unique(key, return_inverse=True)[1]  # as many numbers as there are rows
        key = key * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    first.sort()
    return [*zip(*[column[first].tolist() for column in columns], strict=True)], rank[inverse]


def refuse_stacked(count: int, most: int) -> None:
    """Refuses so many stacked numbers of a point where they are too many."""
    if count > most:
        raise CannotFuseError(
            f"loops stack {count:,} numbers a point, of {most:,} that a kernel has memory for",
            "scan",
        )
