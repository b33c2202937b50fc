"""Where arrays of a program are: in a kernel's memory a vector for each entry, or in a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from veenv.kernel.cpu.emitter import literal, memory_element
from veenv.kernel.program import ScalarProgram

ALIGNED = 64
"""Bytes of a cache line, at whose start each kept value and array begins."""


@dataclass(frozen=True)
class Stored:
    """An array in memory."""

    pointer: str  # where the memory begins
    dtype: str  # of the entries
    offset: int = 0  # bytes from there to the array
    start: int = 0  # number of its first entry there
    stride: int = 1  # how many entries it is to the next one
    shared: bool = False  # an entry is one number for all points, otherwise a vector

    def view(self, start: int, stride: int) -> Stored:
        """Every so manieth entry."""
        return replace(self, start=self.start + self.stride * start, stride=self.stride * stride)

    def width(self, lanes: int) -> int:
        """Bytes of an entry."""
        return np.dtype(self.dtype).itemsize * (1 if self.shared else lanes)


def table(program: ScalarProgram, position: int) -> tuple[str, str] | None:
    """Name and text of the table of a constant array; None for others."""
    op = program.ops[position]
    if op.name != "array" or not program.is_constant[list(op.args)].all():
        return None
    kind = memory_element(op.dtype)
    values = [program.ops[a].attr for a in op.args]
    text = ", ".join(f"{kind} {_number(value)}" for value in values)
    name = f"@table_{hashlib.sha256(text.encode()).hexdigest()}"
    return name, f"{name} = internal constant [{len(values)} x {kind}] [{text}], align {ALIGNED}"


def _number(value: np.generic) -> str:
    return str(int(value)) if value.dtype == np.bool_ else literal(value)


def memory(program: ScalarProgram, lanes: int, base: int = 0) -> tuple[Mapping[int, int], int]:
    """Where in memory each array is, and the memory of the body of each loop; then the end of all.

    `base` is what there is before, in bytes.
    """
    places: dict[int, int] = {}
    for position, op in enumerate(program.ops):
        size = 0
        if op.name == "array" and table(program, position) is None:
            size = len(op.args)
        elif op.name == "input" and op.attr[1] is None:
            size = program.inputs[op.attr[0]].size
        elif op.name == "part":
            loop = program.ops[op.args[0]].attr
            size = (loop.length or 0) if op.attr >= loop.carries else 0
        elif op.name == "loop":
            places[position] = base
            base = memory(op.attr.body, lanes, base)[1]
        if size:
            places[position] = base
            base += -(-size * lanes * np.dtype(op.dtype).itemsize // ALIGNED) * ALIGNED
    return places, base
