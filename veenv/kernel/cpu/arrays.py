"""Where arrays of a program are: in a kernel's memory a vector for each entry, or in a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veenv.kernel.cpu.emitter import literal, memory_element
from veenv.kernel.program import Loop, ScalarProgram, Strided
from veenv.kernel.writes import entries, in_place, replacing

ALIGNED = 64
"""Bytes of a cache line, at whose start each kept value and array begins."""


@dataclass(frozen=True)
class Stored(Strided):
    """An array in memory."""

    pointer: str  # where the memory begins
    dtype: str  # of the entries
    offset: int = 0  # bytes from there to the array
    shared: bool = False  # an entry is one number for all points, otherwise a vector

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


Place = int | tuple[int, int]
"""An operation, or a loop and the number of an array that it carries."""


def memory(
    program: ScalarProgram, lanes: int, base: int = 0, loop: Loop | None = None
) -> tuple[Mapping[Place, int], int]:
    """Where in memory each array is, and the memory of the body of each loop; then the end of all.

    `base` is what there is before, in bytes; `loop` is that whose body the program is.
    """
    places: dict[Place, int] = {}
    written = in_place(program, loop.carries if loop else 0)

    def take(place: Place, size: int, dtype: str) -> None:
        nonlocal base
        places[place] = base
        base += -(-size * lanes * np.dtype(dtype).itemsize // ALIGNED) * ALIGNED

    for position, op in enumerate(program.ops):
        if op.name == "array" and table(program, position) is None:
            take(position, len(op.args), op.dtype)
        elif op.name == "input" and op.attr[1] is None and loop is None:
            take(position, program.inputs[op.attr[0]].size, op.dtype)
        elif op.name == "part" and op.attr >= program.ops[op.args[0]].attr.carries:
            take(position, program.ops[op.args[0]].attr.length, op.dtype)
        elif op.name == "write" and (position, 0) not in written:
            take(position, entries(program, position), op.dtype)
        elif op.name == "loop":
            for k in replacing(op):
                if (position, k) not in written:
                    leaf = op.attr.body.inputs[k]
                    take((position, k), leaf.size, leaf.dtype)
            places[position] = base
            base = memory(op.attr.body, lanes, base, op.attr)[1]
    return places, base
