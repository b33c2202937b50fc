"""Sizes of a kernel's code: the values it writes, its compile time, the points of a vector.

The code writes small leaves as they lie in memory. Of a large one it writes a vector for each value
as soon as that is known, once if several entries have it, and the driver brings the vectors into
the order of memory, in a loop: interleaving them in the code would take several instructions for
each, and keep all of them waiting for the last. Most entries of the dense Jacobian of a stencil are
zero: of a leaf that is almost all constants the driver copies these, as a row for each point, and
puts the others in their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from veenv import limits
from veenv.kernel.cpu.compile import host
from veenv.kernel.scalar_program import FREE, Leaf, Op, ScalarProgram, remembered

FEW = 4
"""Lanes in which loops take as long as a library for one point."""
_ANGLE = 60  # what a sine and cosine count as: in the code they are polynomials, with branches
_MOVED = 7  # what an entry counts as that is read, or written as it lies: it is interleaved
_DIVISION = 6  # what a division counts as
_SQUARE = 16  # entries of a leaf that are separated at once where all are
_NEVER = np.iinfo(np.int64).max


@remembered
def lanes_of(program: ScalarProgram) -> int:
    """Computes how many points a vector holds: a register's worth of the widest float, or two.

    A step of a loop waits for the one before it, so that two registers at once take hardly longer
    than one; it is worth it as long as a step's numbers have room in all registers.
    """
    lanes, room = host().lanes(program), host().registers // 2
    steps = [part for part, repeats in program.parts() if repeats > 1]
    twice = steps and all(_crossing(step).max(initial=0) <= room for step in steps)
    return 2 * lanes if twice else lanes


def size_of(program: ScalarProgram) -> int:
    """Computes the size that compile time goes with: operations, and reads and writes of the code.

    A sine, a cosine or both of an angle are many instructions in the code, and so are the shuffles
    of what is read, and of what is written as it lies in memory.
    """
    return int(_lengths(program).sum())


def _is_made(program: ScalarProgram, op: Op) -> bool:
    """Whether the result of an operation is a number that is computed, not one in memory."""
    if op.name == "part":
        return program.ops[op.args[0]].attr.entries(op.attr) is None
    return op.name not in FREE and op.name not in ("array", "loop", "write")


def _own_lengths(program: ScalarProgram, inside: bool = False) -> np.ndarray:
    """Computes the length of each operation's code, without reads and writes.

    Arrays that come into the body of a loop lie in memory as they are read.
    """
    weights = dict.fromkeys(FREE, 0) | {"div": _DIVISION}
    lengths = np.array([weights.get(op.name, 1) for op in program.ops], np.int64)
    for k, op in enumerate(program.ops):
        if op.name == "array":
            lengths[k] = sum(count if count < limits.FEW else limits.FEW
                             for _, count, _ in runs(program, op.args))  # fmt: skip
        elif op.name == "loop":
            lengths[k] = len(op.args) + body_size(op.attr.body)
        elif op.name == "input" and op.attr[1] is None and not inside:
            lengths[k] = _MOVED * min(program.inputs[op.attr[0]].size, _SQUARE)
    calls = ((k, op) for k, op in enumerate(program.ops) if op.name == "call")
    angles = {op.args: k for k, op in calls if op.attr in ("sin", "cos")}
    lengths[list(angles.values())] += _ANGLE
    return lengths


def runs(program: ScalarProgram, args: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Splits entries into runs: where each starts, how many it has, and at what distance.

    They are entries of one array at equal distances, or one number, whose distance is 0.
    """
    start = 0
    while start < len(args):
        end, distance = start + 1, None
        while end < len(args):
            step = _distance(program, args[end - 1], args[end])
            if step is None or step != (step if distance is None else distance):
                break
            end, distance = end + 1, step
        yield start, end - start, distance or 0
        start = end


def _distance(program: ScalarProgram, one: int, other: int) -> int | None:
    """Computes how far apart two entries of an array are; None for other numbers."""
    if one == other:
        return 0
    a, b = program.ops[one], program.ops[other]
    return b.attr - a.attr if a.name == b.name == "entry" and a.args == b.args else None


def body_size(body: ScalarProgram) -> int:
    """Computes the size of the code of a loop's body."""
    return int(_own_lengths(body, inside=True).sum()) + len(body.inputs) + len(body.results)


@remembered
def _lengths(program: ScalarProgram) -> np.ndarray:
    """Computes the length of each operation's code, with its reads and writes."""
    lengths = _own_lengths(program)
    unread = {k for k, op in enumerate(program.ops) if op.name == "input"}
    for k, op in enumerate(program.ops):
        if not unread.isdisjoint(op.args):
            first = unread.intersection(op.args)
            lengths[k] += _MOVED * len(first)
            unread -= first
    for output in written(program):
        if output.by_value:  # entries of arrays are copied, many at once
            one_by_one = [i for i in output.ids if program.ops[i].name != "entry"]
            np.add.at(lengths, np.array(one_by_one, np.int64), 1)
        else:
            lengths[max(output.ids)] += _MOVED * len(output.ids)
    return lengths


def _crossing(program: ScalarProgram) -> np.ndarray:
    """For each operation how many values are known with it and needed later: int64 [n]."""
    last = _last_uses(program)
    known = np.array([_is_made(program, op) for op in program.ops], np.int64)
    ended = np.bincount(last[known > 0], minlength=len(last))
    crossing = np.cumsum(known - ended)
    for position, op in enumerate(program.ops):
        if op.name == "part":  # it is where its loop is
            crossing[op.args[0] : position] = _NEVER
    return crossing


def _last_uses(program: ScalarProgram) -> np.ndarray:
    """For each operation the position where it is needed last, its own if never: int64 [n]."""
    last = np.arange(len(program.ops))
    for position, op in enumerate(program.ops):
        for i in op.args:
            last[i] = position
    for output in written(program):
        if not output.by_value:
            ids = [*output.ids]
            last[ids] = np.maximum(last[ids], max(ids))
    return last


_NONE = np.zeros(0, np.int64)


class Written(NamedTuple):
    """An output leaf that a kernel writes."""

    leaf: Leaf  # its shape and dtype
    stored: Leaf  # what the code writes: the leaf, or different values of it
    ids: tuple[int, ...]  # the operations of what the code writes
    # int64, of a leaf that is written by values for each entry but the constants the number of its
    # value; empty for others
    sources: np.ndarray = _NONE
    # int64, for each of these entries its bytes from the start of the leaf
    places: np.ndarray = _NONE
    # the leaf with its constants, and zero elsewhere; empty where the code writes it
    constants: np.ndarray = _NONE

    @property
    def by_value(self) -> bool:
        """Tells whether the code stores a vector for each value, not consecutive memory."""
        return self.sources.size > 0


class Write(NamedTuple):
    """A store that the code makes as soon as an operation is done."""

    number: int  # of the leaf, among those that the kernel writes
    made: Written  # the leaf
    # number of the value, of a leaf that is written by values; None for a whole leaf
    value: int | None
    # how many; of several the operation is the entry of an array, as are the others
    values: int = 1


@remembered
def written(program: ScalarProgram) -> list[Written]:
    """The output leaves that a kernel writes, in their order."""
    return [_written(program, k) for k in program.written()]


@remembered
def writes_of(program: ScalarProgram) -> dict[int, list[Write]]:
    """For each operation the leaves, or values of leaves, that are known with it."""
    writes: dict[int, list[Write]] = {}
    for number, output in enumerate(written(program)):
        if not output.by_value:
            writes.setdefault(max(output.ids), []).append(Write(number, output, None))
            continue
        for value, count in _runs(program, output.ids):
            write = Write(number, output, value, count)
            writes.setdefault(output.ids[value], []).append(write)
    return writes


def _runs(program: ScalarProgram, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Finds runs of consecutive entries of an array, and their lengths."""
    for start, count, distance in runs(program, ids):
        if distance == 1:
            yield start, count
        else:
            yield from ((k, 1) for k in range(start, start + count))


def _written(program: ScalarProgram, output: int) -> Written:
    leaf, ids = program.outputs[output], program.results[output]
    if leaf.size < limits.POINT:
        return Written(leaf, leaf, ids)
    numbers = np.array(ids)
    constant = program.is_constant[numbers]
    entries, constants = np.arange(leaf.size), _NONE
    if leaf.size >= limits.SMALL and (leaf.size - constant.sum()) * limits.FEW <= leaf.size:
        entries, constants = np.flatnonzero(~constant), np.zeros(leaf.size, leaf.dtype)
        different, where = np.unique(numbers[constant], return_inverse=True)
        constants[constant] = np.array([program.ops[i].attr for i in different], leaf.dtype)[where]
    unique, first, sources = np.unique(numbers[entries], return_index=True, return_inverse=True)
    # as the values come in the leaf, or in arrays
    in_arrays = any(program.ops[i].name == "entry" for i in unique)
    order = np.arange(len(unique)) if in_arrays else np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    values = tuple(unique[order].tolist())
    places = np.dtype(leaf.dtype).itemsize * entries
    return Written(leaf, Leaf((len(values),), leaf.dtype), values, rank[sources], places, constants)
