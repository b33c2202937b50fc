"""How a kernel's code reads and writes its leaves: in place, in the order that memory has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from veenv.kernel.cpu.layout import Emit, Shuffles, Unwoven, UnwovenRows, row_starts, woven
from veenv.kernel.cpu.types import memory_element
from veenv.kernel.program import Leaf

STRIDE = 2
"""Words of the table of inputs for each leaf: address, and bytes from one step to the next."""


class Leaves:
    """Emits the loads and stores of one step of the loop, a vector of points.

    Args:
      lanes: how many points.
      lines: instructions, to append to.
      emit: takes an instruction and returns the name of its result.
      once: the same, of an instruction without operands that may have been emitted before.
      declare: takes a symbol and its declaration.
    """

    def __init__(
        self,
        lanes: int,
        lines: list[str],
        emit: Emit,
        once: Emit,
        declare: Callable[[str, str], None],
    ):
        self.lanes = lanes
        self._lines, self._emit, self._once, self._declare = lines, emit, once, declare
        self._read: dict[int, Unwoven | UnwovenRows] = {}
        self._starts: dict[int, str] = {}
        self._shuffles_of: dict[str, Shuffles] = {}

    def load(self, number: int, leaf: Leaf, entry: int) -> str:
        """The vector of an entry of an input leaf."""
        if number not in self._read:
            table = self._emit(f"getelementptr i64, ptr %ins, i64 {STRIDE * number}")
            base = self._emit(f"load ptr, ptr {table}, align 8, !invariant.load !0")
            second = self._emit(f"getelementptr i64, ptr {table}, i64 1")
            stride = self._emit(f"load i64, ptr {second}, align 8, !invariant.load !0")
            offset = self._emit(f"mul i64 %step, {stride}")
            start = self._emit(f"getelementptr i8, ptr {base}, i64 {offset}")
            self._read[number] = self._unwoven(start, leaf)
        value = self._read[number].entry(entry)
        if leaf.dtype == "bool":
            return self._emit(f"icmp ne <{self.lanes} x i8> {value}, zeroinitializer")
        return value

    def _unwoven(self, start: str, leaf: Leaf) -> Unwoven | UnwovenRows:
        """An input leaf whose part of this step begins at an address."""
        shuffles, starts = self._shuffles(leaf), row_starts(leaf.size, self.lanes)

        def load(place: str) -> str:
            bounds = f"align {_bytes(leaf)}, !invariant.load !0"
            return self._emit(f"load {shuffles.kind}, ptr {place}, {bounds}")

        def row(point: int, first: int) -> str:
            return load(self._place(start, leaf, point * leaf.size + first))

        if starts:
            return UnwovenRows(row, starts, shuffles)
        return Unwoven(lambda k: load(self._part(start, leaf, k)), leaf.size, shuffles)

    def store(self, number: int, leaf: Leaf, values: Sequence[str]) -> None:
        """Writes an output leaf, given the vectors of its entries."""
        shuffles = self._shuffles(leaf)
        values = [self._in_memory(leaf, value) for value in values]
        start, starts = self._target(number, leaf), row_starts(leaf.size, self.lanes)
        if starts:
            vectors = [
                (point * leaf.size + first, row)
                for first in starts
                for point, row in enumerate(woven(values[first : first + self.lanes], shuffles))
            ]
        else:
            vectors = [(k * self.lanes, row) for k, row in enumerate(woven(values, shuffles))]
        for flat, vector in vectors:
            place = self._place(start, leaf, flat)
            self._lines.append(f"store {shuffles.kind} {vector}, ptr {place}, align {_bytes(leaf)}")

    def store_value(self, number: int, leaf: Leaf, place: int, value: str) -> None:
        """Writes a vector of an output leaf that is written by values."""
        if number not in self._starts:
            self._starts[number] = self._target(number, leaf)
        kind = self._shuffles(leaf).kind
        address = self._part(self._starts[number], leaf, place)
        self._lines.append(
            f"store {kind} {self._in_memory(leaf, value)}, ptr {address}, align {_bytes(leaf)}"
        )

    def _target(self, number: int, leaf: Leaf) -> str:
        """The address where a step's part of an output leaf begins."""
        table = self._emit(f"getelementptr ptr, ptr %outs, i64 {number}")
        base = self._emit(f"load ptr, ptr {table}, align 8, !invariant.load !0")
        offset = self._emit(f"mul i64 %step, {self.lanes * leaf.size * _bytes(leaf)}")
        return self._emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _in_memory(self, leaf: Leaf, value: str) -> str:
        if leaf.dtype != "bool":
            return value
        return self._emit(f"zext <{self.lanes} x i1> {value} to {self._shuffles(leaf).kind}")

    def _shuffles(self, leaf: Leaf) -> Shuffles:
        kind = memory_element(leaf.dtype)
        if kind not in self._shuffles_of:
            made = Shuffles(kind, self.lanes, self._emit, self._once, self._declare)
            self._shuffles_of[kind] = made
        return self._shuffles_of[kind]

    def _part(self, start: str, leaf: Leaf, k: int) -> str:
        """The address of the k-th vector of a leaf."""
        return self._place(start, leaf, k * self.lanes)

    def _place(self, start: str, leaf: Leaf, flat: int) -> str:
        """The address of a number of a leaf, in the order of memory."""
        if not flat:
            return start
        return self._emit(f"getelementptr i8, ptr {start}, i64 {flat * _bytes(leaf)}")


def _bytes(leaf: Leaf) -> int:
    return np.dtype(leaf.dtype).itemsize
