"""The numbers of the operations of a program that grows, of which no two are equal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product, repeat
from typing import Any

import numpy as np

from veenv.kernel.program import COMMUTATIVE, FLOATS, CannotFuseError, Op, dtype_name

MAX_OPERATIONS = 60_000
"""Programs of more operations take longer than about fifteen seconds to compile."""
_MANY = 10_000
"""Rows from which on equal ones are looked for before anything is done with them."""
OTHER, NEGATIVE, CONSTANT, ZERO, ONE, MINUS_ONE = range(6)
"""Kinds of operations, for those that take them: others, negatives of floats, and constants."""
ID_BITS = 20
_IDS = (1 << ID_BITS) - 1
ARITHMETIC = {
    (name, dtype): k << 2 * ID_BITS
    for k, (name, dtype) in enumerate(product(("add", "sub", "mul", "div", "neg"), sorted(FLOATS)))
}
"""Operations that can only be simplified where an argument is a constant or a negative.

They are known by an integer, which has the numbers of the arguments in its lower bits.
"""


class Numbering:
    """Operations by number: what is added again has the number that it has.

    Attributes:
      ops: the operations so far.
      kinds: int8 [limit], of each operation its kind, such as `ZERO`.
      inner: int64 [limit], what each `NEGATIVE` is the negative of.
      counts: for a dtype and a length the numbers of as many of its constants 0, 1, 2 ...
    """

    def __init__(self, limit: int = MAX_OPERATIONS):
        if limit > _IDS:
            raise ValueError(f"a program has at most {_IDS:,} operations, not {limit:,}")
        self.ops: list[Op] = []
        self._limit = limit
        self._known: dict[Any, int] = {}
        self._kinds = bytearray(limit)  # read and written faster than arrays, one at a time
        self.kinds = np.frombuffer(self._kinds, np.int8)
        self.inner = np.zeros(limit, np.int64)
        self.counts: dict[tuple[str, int], np.ndarray] = {}

    def input(self, leaf: int, index: int, dtype: str) -> int:
        """Entry `index` of input leaf `leaf`."""
        key = "input", leaf, index
        known = self._known.get(key)
        return self._add(Op("input", dtype, (), (leaf, index)), key) if known is None else known

    def const(self, value: Any) -> int:
        """A NumPy scalar."""
        value = np.asarray(value)[()]
        dtype = dtype_name(value.dtype)
        key = dtype, value.tobytes()
        known = self._known.get(key)
        if known is None:
            known = self._add(Op("const", dtype, (), value), key)
            self._kinds[known] = _kind(value)
        return known

    def number(self, value: float, dtype: str) -> int:
        """A Python number as a constant of a dtype."""
        return self.const(np.dtype(dtype).type(value))

    def value(self, i: int) -> Any:
        """The constant that an operation is; None for others."""
        op = self.ops[i]
        return op.attr if op.name == "const" else None

    def negated(self, i: int) -> int | None:
        """What an operation is the negative of; None for what is no negation."""
        return self.ops[i].args[0] if self._kinds[i] == NEGATIVE else None

    def plain(self, name: str, dtype: str, *columns: np.ndarray) -> np.ndarray:
        """The number of each row's operation, of arithmetic that is as simple as it can be.

        Args:
          name: add, sub, mul, div or neg.
          dtype: of floats.
          *columns: int64 [n], numbers of the arguments.

        Returns:
          int64 [n].
        """
        first, last = columns[0], columns[-1]
        if name in COMMUTATIVE:
            first, last = np.minimum(first, last), np.maximum(first, last)
        keys = ARITHMETIC[name, dtype] | first << ID_BITS | last
        places: Any = slice(None)
        if len(keys) > _MANY:
            keys, places = np.unique(keys, return_inverse=True)
        rows = keys.tolist()
        ids = list(map(self._known.get, rows))
        if None in ids:
            self._add_plain(name, dtype, [k for k, i in zip(rows, ids, strict=True) if i is None])
            ids = list(map(self._known.get, rows))
        return np.array(ids, np.int64)[places]

    def _add_plain(self, name: str, dtype: str, keys: Iterable[int]) -> None:
        """Adds arithmetic that is not known, by keys that may come several times."""
        new = list(dict.fromkeys(keys))
        first = len(self.ops)
        if first + len(new) > self._limit:
            raise self._full()
        numbers = np.array(new, np.int64)
        args = [numbers & _IDS] if name == "neg" else [numbers >> ID_BITS & _IDS, numbers & _IDS]
        pairs = zip(*(column.tolist() for column in args), strict=True)
        fields = zip(repeat(name), repeat(dtype), pairs, repeat(None))
        self._known.update(zip(new, range(first, first + len(new)), strict=True))
        self.ops += map(tuple.__new__, repeat(Op), fields)
        if name == "neg":
            self.kinds[first : first + len(new)] = NEGATIVE
            self.inner[first : first + len(new)] = args[0]

    def _full(self) -> CannotFuseError:
        return CannotFuseError(
            f"the function takes more than {self._limit:,} scalar operations, the most "
            "that one kernel may have (it would take too long to compile)"
        )

    def _add(self, op: Op, key: Any) -> int:
        """The number of an operation that is not known."""
        number = len(self.ops)
        if number >= self._limit:
            raise self._full()
        self._known[key] = number
        self.ops.append(op)
        if op.name == "neg" and op.dtype in FLOATS:
            self._kinds[number] = NEGATIVE
            self.inner[number] = op.args[0]
        return number


def _kind(value: Any) -> int:
    """The kind of a constant."""
    for kind, number in ((ZERO, 0), (ONE, 1), (MINUS_ONE, -1)):
        if value == number:
            return kind
    return CONSTANT
