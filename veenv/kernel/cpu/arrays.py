"""Arrays of a program in memory or in tables, and which operations are the same in all lanes.

In a kernel's memory an array has a vector for each entry. What depends on nothing but constants is
the same for all points.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from veenv.kernel.cpu.emitter import literal, memory_element
from veenv.kernel.ordering import Place, owned
from veenv.kernel.scalar_program import (
    Buffer,
    Loop,
    ScalarProgram,
    Strided,
    Workspace,
    remembered,
)

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


@remembered
def table(program: ScalarProgram, position: int) -> tuple[str, str] | None:
    """Name and text of the table of a constant array; None for others."""
    op = program.ops[position]
    if op.name != "array" or not program.is_constant[list(op.args)].all():
        return None
    kind = memory_element(op.dtype)
    values = {a: program.ops[a].attr for a in op.args}
    if np.array([*values.values()]).view(np.uint8).any():
        known = {a: f"{kind} {_number(value)}" for a, value in values.items()}
        text = f"[{', '.join(known[a] for a in op.args)}]"
    else:
        text = "zeroinitializer"
    kind = f"[{len(op.args)} x {kind}]"
    name = f"@table_{hashlib.sha256(f'{kind} {text}'.encode()).hexdigest()}"
    return name, f"{name} = internal constant {kind} {text}, align {ALIGNED}"


def _number(value: np.generic) -> str:
    return str(int(value)) if value.dtype == np.bool_ else literal(value)


@remembered
def memory(
    program: ScalarProgram, lanes: int, base: int = 0, carries: int | None = None
) -> tuple[Mapping[Place | int, int], int]:
    """Returns the offset of each array, and of each loop body's memory; then the end of all.

    `base` is what there is before, in bytes; a program that is a loop's body has `carries`.
    """
    places: dict[Place | int, int] = {}
    arrays = [*owned(program, carries or 0)]
    if carries is None:
        inputs = ((k, op) for k, op in enumerate(program.ops) if op.name == "input")
        arrays += [
            ((k, None), program.inputs[op.attr[0]]) for k, op in inputs if op.attr[1] is None
        ]
    for place, leaf in arrays:
        if place[1] is not None or table(program, place[0]) is None:
            places[place] = base
            base += -(-leaf.size * lanes * np.dtype(leaf.dtype).itemsize // ALIGNED) * ALIGNED
    for position, op in enumerate(program.ops):
        if op.name == "loop":
            places[position] = base
            body = memory(op.attr.body, lanes, base, op.attr.carries)[1]
            base = max(body, base + sum(workspace(op.attr)))
    return places, base


def workspace(loop: Loop) -> list[int]:
    """Bytes of memory for each argument of a loop's routine, in whose place it is."""
    sizes = []
    for one in loop.routine.arguments if loop.routine else ():
        size, dtype = 0, "bool"
        if isinstance(one, Workspace):
            size, dtype = one.size, one.dtype
        elif isinstance(one, Buffer):
            size, dtype = prod(one.shape), loop.body.inputs[one.argument].dtype
        sizes.append(-(-size * np.dtype(dtype).itemsize // ALIGNED) * ALIGNED)
    return sizes


@remembered
def uniform(program: ScalarProgram, leaves: tuple[bool, ...]) -> Sequence[bool]:
    """Tells which operations are the same at all points, given which input leaves are."""
    flags: list[bool] = []
    results: dict[int, list[bool]] = {}
    for position, op in enumerate(program.ops):
        args = [flags[a] for a in op.args]
        same = leaves[op.attr[0]] if op.name == "input" else all(args) and op.name != "write"
        if op.name == "loop":
            results[position] = _results(op.attr, args)
        elif op.name == "part":
            same = results[op.args[0]][op.attr]
        flags.append(same)
    return flags


def within(loop: Loop, args: Sequence[bool]) -> list[bool]:
    """Tells which input leaves of a loop's body are the same at all points, given its arguments."""
    arrays = [bool(leaf.shape) for leaf in loop.body.inputs[: loop.carries]]
    leaves = [flag and not any(arrays[k : k + 1]) for k, flag in enumerate(args)]
    while True:
        flags = uniform(loop.body, tuple(leaves))
        ends = all(flags[i] for i in loop.body.results[-1]) if loop.length is None else True
        pairs = zip(leaves[: loop.carries], loop.body.results, strict=False)
        carried = [flag and ends and flags[ids[0]] for flag, ids in pairs]
        if carried == leaves[: loop.carries]:
            return leaves
        leaves[: loop.carries] = carried


def _results(loop: Loop, args: Sequence[bool]) -> list[bool]:
    leaves = within(loop, args)
    flags = uniform(loop.body, tuple(leaves))
    stacked = loop.body.results[loop.carries :]
    return [*leaves[: loop.carries], *(flags[ids[0]] for ids in stacked)]
