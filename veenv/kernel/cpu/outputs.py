"""What a kernel's code writes of its output leaves, and what is left to the driver.

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
from veenv.kernel.scalar_program import Leaf, ScalarProgram, remembered

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
        """Whether the code writes a vector for each value, not vectors of successive memory."""
        return self.sources.size > 0


class Write(NamedTuple):
    """What the code writes as soon as an operation is done."""

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
    found: dict[int, list[Write]] = {}
    for number, made in enumerate(written(program)):
        if not made.by_value:
            found.setdefault(max(made.ids), []).append(Write(number, made, None))
            continue
        for value, count in _runs(program, made.ids):
            write = Write(number, made, value, count)
            found.setdefault(made.ids[value], []).append(write)
    return found


def _runs(program: ScalarProgram, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where entries begin that follow one another in an array, and how many; others one by one."""
    start = 0
    while start < len(ids):
        first, count = program.ops[ids[start]], 1
        while first.name == "entry" and start + count < len(ids):
            if program.ops[ids[start + count]] != first._replace(attr=first.attr + count):
                break
            count += 1
        yield start, count
        start += count


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
    found, first, sources = np.unique(numbers[entries], return_index=True, return_inverse=True)
    # as the values come in the leaf, or in arrays
    in_arrays = any(program.ops[i].name == "entry" for i in found)
    order = np.arange(len(found)) if in_arrays else np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    values = tuple(found[order].tolist())
    places = np.dtype(leaf.dtype).itemsize * entries
    return Written(leaf, Leaf((len(values),), leaf.dtype), values, rank[sources], places, constants)
