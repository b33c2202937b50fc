"""Arrays in registers: between a vector for each entry and the order that memory has.

In memory the entries of a point follow one another; the kernel computes with a vector for each
entry, of as many points as it has lanes. The entries are interleaved in two steps. What is a power
of two is interleaved by halves, each step making units of twice the width. The units of what
remains are gathered by shuffles of two vectors, as many as a vector in memory has sources. Where
that takes more, rows of a point's entries are interleaved instead, square by square, and read or
written wherever they begin in memory; the last ones overlap those before them.

AVX-512 has an instruction for any shuffle of two vectors, by a vector of indices. Of LLVM's own
shuffles the compiler looks for shorter sequences, in which it spends most of the time that a kernel
takes; here it would find none. It does not look where the indices are read from memory. Vectors of
two registers are shuffled register by register.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from veenv.kernel.cpu.compile import host
from veenv.kernel.cpu.emitter import Emitter, int_vector, memory_element
from veenv.kernel.scalar_program import Leaf

Place = tuple[str, int]
"""A vector and the number of a unit in it."""
STRIDE = 2
"""Words of the table of inputs for each leaf: address, and bytes from one step to the next."""
_PERMUTED = {"float": ("ps", 32), "double": ("pd", 64), "i32": ("d", 32), "i64": ("q", 64)}
"""How AVX-512 names shuffles of these numbers, and their bits."""
_WIDTHS = (128, 256, 512)
_MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)"
_STORED = 2  # shuffles that a row counts as that is read or written across lines of the cache


class Shuffles:
    """Emits shuffles of vectors of one LLVM type of lanes."""

    def __init__(self, element: str, emitter: Emitter, lanes: int = 0):
        self.lanes = lanes = lanes or emitter.lanes
        self.kind = f"<{lanes} x {element}>"
        self._same = tuple(range(lanes))
        self._emitter = emitter
        self._loads: dict[tuple[int, ...], str] = {}
        suffix, bits = _PERMUTED.get(element, ("", 0))
        permutes = host().avx512 and lanes * bits in _WIDTHS
        self._permute = f"llvm.x86.avx512.vpermi2var.{suffix}.{lanes * bits}" if permutes else ""
        self._indices = f"<{lanes} x i{bits}>"
        two = host().avx512 and lanes * bits == 2 * max(_WIDTHS)
        self._register = Shuffles(element, emitter, lanes // 2) if two else None
        self._registers: dict[str, list[str]] = {}

    def pick(self, x: str, y: str, lanes: Sequence[int]) -> str:
        """A vector of these lanes of `x`, numbered from 0, and `y`, which follow."""
        lanes = tuple(lanes)
        if lanes == self._same:
            return x
        if self._permute:
            return self._permuted(x, y, lanes)
        if self._register is not None:
            return self._by_registers(self._register, (x, y), lanes)
        return self._emitter.emit(
            f"shufflevector {self.kind} {x}, {self.kind} {y}, {int_vector(lanes)}"
        )

    def _by_registers(self, of: Shuffles, sources: Sequence[str], lanes: Sequence[int]) -> str:
        """Does `pick`, each register of the result by itself."""

        def register(k: int) -> str:
            vector, half = sources[k // 2], k % 2
            if vector in self._registers:
                return self._registers[vector][half]
            half_mask = int_vector(range(half * of.lanes, (half + 1) * of.lanes))
            whole = f"{self.kind} {vector}, {self.kind} poison"
            return self._emitter.once(f"shufflevector {whole}, {half_mask}")

        pairs = [divmod(k, of.lanes) for k in lanes]
        halves = [
            of.gather([(register(k), place) for k, place in pairs[start : start + of.lanes]], 1)
            for start in (0, of.lanes)
        ]
        both = ", ".join(f"{of.kind} {one}" for one in halves)
        joined = self._emitter.emit(f"shufflevector {both}, {int_vector(range(self.lanes))}")
        self._registers[joined] = halves
        return joined

    def _permuted(self, x: str, y: str, lanes: tuple[int, ...]) -> str:
        kind, indices = self.kind, self._indices
        if lanes not in self._loads:
            table, text = _table(indices, lanes)
            self._emitter.declare(table, text)
            types = f"{kind}, {indices}, {kind}"
            self._emitter.declare(self._permute, f"declare {kind} @{self._permute}({types})")
            self._loads[lanes] = f"load {indices}, ptr {table}, align 64, !invariant.load !0"
        known = self._emitter.once(self._loads[lanes])
        return self._emitter.emit(
            f"call {kind} @{self._permute}({kind} {x}, {indices} {known}, {kind} {y})"
        )

    def gather(self, places: Sequence[Place], width: int) -> str:
        """A vector of units of `width` lanes, from any vectors."""
        sources = list(dict.fromkeys(vector for vector, _ in places))
        joined, known = sources[0], {sources[0]}
        for other in sources[1:] or sources[:1]:
            first = len(known) == 1
            known.add(other)
            lanes: list[int] = []
            for position, (vector, unit) in enumerate(places):
                if vector == other:
                    start = unit * width + (self.lanes if other != joined else 0)
                elif vector in known:
                    start = (unit if first else position) * width
                else:
                    start = position * width
                lanes += range(start, start + width)
            joined = self.pick(joined, other, lanes)
        return joined


@functools.cache
def _table(kind: str, lanes: tuple[int, ...]) -> tuple[str, str]:
    """Name and text of a table of indices of an LLVM type; it is no constant for the compiler."""
    bits = kind.split()[-1].rstrip(">")
    name = f"@{bits}_" + "_".join(map(str, lanes))
    numbers = ", ".join(f"{bits} {k}" for k in lanes)
    return name, f"{name} = internal global {kind} <{numbers}>, align 64"


def unit_width(entries: int, lanes: int) -> int:
    """The largest power of two that divides the number of entries and fits into a vector."""
    return min(entries & -entries, lanes)


@functools.cache
def row_starts(entries: int, lanes: int) -> tuple[int, ...]:
    """The entries at which rows begin where arrays of so many are interleaved by rows."""
    if entries < lanes:
        return ()
    starts = (*range(0, entries - lanes, lanes), entries - lanes)
    width = unit_width(entries, lanes)
    whole = entries * (width.bit_length() - 1 + lanes // width)  # shuffles, and one store
    rows = lanes * len(starts) * (lanes.bit_length() - 1 + _STORED)
    return starts if rows < whole else ()


def interleaved(values: Sequence[str], shuffles: Shuffles) -> list[str]:
    """The vectors of successive memory for a vector of each entry."""
    lanes, width = shuffles.lanes, unit_width(len(values), shuffles.lanes)
    streams, units = len(values) // width, lanes // width
    parts = [_zipped(values[s * width : (s + 1) * width], shuffles) for s in range(streams)]
    vectors = []
    for k in range(len(values)):
        places = []
        for flat in range(k * units, (k + 1) * units):
            point, stream = divmod(flat, streams)
            places.append((parts[stream][point // units], point % units))
        vectors.append(shuffles.gather(places, width))
    return vectors


def _zipped(values: Sequence[str], shuffles: Shuffles) -> list[str]:
    """`interleaved` for a power of two of entries."""
    if len(values) == 1:
        return list(values)
    half = shuffles.lanes // 2
    vectors = []
    for x, y in zip(_zipped(values[0::2], shuffles), _zipped(values[1::2], shuffles), strict=True):
        for start in (0, half):
            lanes = [k for i in range(start, start + half) for k in (i, i + shuffles.lanes)]
            vectors.append(shuffles.pick(x, y, lanes))
    return vectors


class SeparatedRows:
    """The vectors of entries of an array that is read by rows, made when they are asked for.

    `load` reads a row, by its point and the entry that it begins with.
    """

    def __init__(self, load: Callable[[int, int], str], starts: Sequence[int], shuffles: Shuffles):
        self._load, self._starts, self._shuffles = load, starts, shuffles
        self._known: dict[int, list[str]] = {}

    def entry(self, number: int) -> str:
        """The vector of an entry."""
        first = max(start for start in self._starts if start <= number)
        if first not in self._known:
            rows = [self._load(point, first) for point in range(self._shuffles.lanes)]
            self._known[first] = interleaved(rows, self._shuffles)
        return self._known[first][number - first]


class Separated:
    """The vectors of entries, made when asked for; `load` reads successive memory by number."""

    def __init__(self, load: Callable[[int], str], entries: int, shuffles: Shuffles):
        self._load, self._entries, self._shuffles = functools.cache(load), entries, shuffles
        self._width = unit_width(entries, shuffles.lanes)
        self._known: dict[tuple[int, int, int], Sequence[str]] = {}

    def entry(self, number: int) -> str:
        """The vector of an entry."""
        stream, rest = divmod(number, self._width)
        levels = self._width.bit_length() - 1
        return self._split(stream, levels, rest)[0]

    def _split(self, stream: int, levels: int, entry: int) -> Sequence[str]:
        """The vectors of those entries of a stream that agree with `entry` in its last bits."""
        key = stream, levels, entry & ((1 << levels) - 1)
        if key not in self._known:
            self._known[key] = (
                self._half(self._split(stream, levels - 1, entry), (entry >> (levels - 1)) & 1)
                if levels
                else self._stream(stream)
            )
        return self._known[key]

    def _half(self, vectors: Sequence[str], odd: int) -> list[str]:
        lanes = range(odd, 2 * self._shuffles.lanes, 2)
        pairs = zip(vectors[0::2], vectors[1::2], strict=True)
        return [self._shuffles.pick(x, y, lanes) for x, y in pairs]

    def _stream(self, stream: int) -> list[str]:
        """The vectors of one unit of every point."""
        units, streams = self._shuffles.lanes // self._width, self._entries // self._width
        vectors = []
        for k in range(self._width):
            flat = [(k * units + i) * streams + stream for i in range(units)]
            places = [(self._load(f // units), f % units) for f in flat]
            vectors.append(self._shuffles.gather(places, self._width))
        return vectors


class Leaves:
    """Emits the loads and stores of one step of the loop, a vector of points.

    They are in place, in the order that memory has.
    """

    def __init__(self, emitter: Emitter):
        self._emitter, self._emit, self.lanes = emitter, emitter.emit, emitter.lanes
        self._read: dict[int, Separated | SeparatedRows] = {}
        self._starts: dict[int, str] = {}
        self._shuffles_of: dict[str, Shuffles] = {}

    def load(self, number: int, leaf: Leaf, entry: int) -> str:
        """The vector of an entry of an input leaf."""
        if number not in self._read:
            self._read[number] = self._separated(self.start(number), leaf)
        return self._emitter.from_memory(leaf.dtype, self._read[number].entry(entry))

    def start(self, number: int) -> str:
        """The address where a step's part of an input leaf begins."""
        table = self._emit(f"getelementptr i64, ptr %ins, i64 {STRIDE * number}")
        base = self._emit(f"load ptr, ptr {table}, align 8, !invariant.load !0")
        second = self._emit(f"getelementptr i64, ptr {table}, i64 1")
        stride = self._emit(f"load i64, ptr {second}, align 8, !invariant.load !0")
        offset = self._emit(f"mul i64 %step, {stride}")
        return self._emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def square(self, start: str, leaf: Leaf, first: str) -> list[str]:
        """Returns as many vectors of entries as there are lanes, as in memory, from an i64 on."""
        offset = self._emit(f"mul i64 {first}, {_bytes(leaf)}")
        base = self._emit(f"getelementptr i8, ptr {start}, i64 {offset}")
        rows = [self._load(base, leaf, point * leaf.size) for point in range(self.lanes)]
        return interleaved(rows, self._shuffles(leaf))

    def copy(self, number: int, leaf: Leaf, place: int, count: int, source: str) -> None:
        """Writes successive vectors of an output leaf that is written by values."""
        address = self._value(number, leaf, place)
        self._emitter.declare("llvm.memcpy", _MEMCPY)
        size = count * self.lanes * _bytes(leaf)
        operands = f"ptr {address}, ptr {source}, i64 {size}, i1 false"
        self._emitter.append(f"call void @llvm.memcpy.p0.p0.i64({operands})", 2 * count)

    def _separated(self, start: str, leaf: Leaf) -> Separated | SeparatedRows:
        """An input leaf whose part of this step begins at an address."""
        shuffles, starts = self._shuffles(leaf), row_starts(leaf.size, self.lanes)

        def row(point: int, first: int) -> str:
            return self._load(start, leaf, point * leaf.size + first)

        if starts:
            return SeparatedRows(row, starts, shuffles)
        return Separated(lambda k: self._load(start, leaf, k * self.lanes), leaf.size, shuffles)

    def _load(self, start: str, leaf: Leaf, flat: int) -> str:
        """The vector in memory that begins with a number of an input leaf."""
        place, kind = self._place(start, leaf, flat), self._shuffles(leaf).kind
        return self._emit(f"load {kind}, ptr {place}, align {_bytes(leaf)}, !invariant.load !0")

    def store(self, number: int, leaf: Leaf, values: Sequence[str]) -> None:
        """Writes an output leaf, given the vectors of its entries."""
        shuffles = self._shuffles(leaf)
        values = [self._emitter.to_memory(leaf.dtype, value) for value in values]
        start, starts = self._target(number, leaf), row_starts(leaf.size, self.lanes)
        if starts:
            vectors = [
                (point * leaf.size + first, row)
                for first in starts
                for point, row in enumerate(
                    interleaved(values[first : first + self.lanes], shuffles)
                )
            ]
        else:
            vectors = [(k * self.lanes, row) for k, row in enumerate(interleaved(values, shuffles))]
        for flat, vector in vectors:
            self._store(vector, self._place(start, leaf, flat), leaf)

    def store_value(self, number: int, leaf: Leaf, place: int, value: str) -> None:
        """Writes a vector of an output leaf that is written by values."""
        address = self._value(number, leaf, place)
        self._store(self._emitter.to_memory(leaf.dtype, value), address, leaf)

    def _value(self, number: int, leaf: Leaf, k: int) -> str:
        """The address of the k-th vector of an output leaf that is written by values."""
        if number not in self._starts:
            self._starts[number] = self._target(number, leaf)
        return self._place(self._starts[number], leaf, k * self.lanes)

    def _store(self, vector: str, place: str, leaf: Leaf) -> None:
        kind, size = self._shuffles(leaf).kind, _bytes(leaf)
        self._emitter.lines.append(f"store {kind} {vector}, ptr {place}, align {size}")

    def _target(self, number: int, leaf: Leaf) -> str:
        """The address where a step's part of an output leaf begins."""
        table = self._emit(f"getelementptr ptr, ptr %outs, i64 {number}")
        base = self._emit(f"load ptr, ptr {table}, align 8, !invariant.load !0")
        offset = self._emit(f"mul i64 %step, {self.lanes * leaf.size * _bytes(leaf)}")
        return self._emit(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _shuffles(self, leaf: Leaf) -> Shuffles:
        kind = memory_element(leaf.dtype)
        if kind not in self._shuffles_of:
            self._shuffles_of[kind] = Shuffles(kind, self._emitter)
        return self._shuffles_of[kind]

    def _place(self, start: str, leaf: Leaf, flat: int) -> str:
        """The address of a number of a leaf, in the order of memory."""
        if not flat:
            return start
        return self._emit(f"getelementptr i8, ptr {start}, i64 {flat * _bytes(leaf)}")


def _bytes(leaf: Leaf) -> int:
    return np.dtype(leaf.dtype).itemsize
