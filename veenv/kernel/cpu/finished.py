"""The calling convention of a kernel on disk: enough to run it without its program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veenv.kernel.cpu import disk
from veenv.kernel.cpu.compile import Objects
from veenv.kernel.cpu.outputs import Written
from veenv.kernel.cpu.records import Layout, layout_of
from veenv.kernel.scalar_program import Leaf, ScalarProgram

_LAYOUT = ("sources", "places", "constants")
"""The arrays of an output that is written by values."""


@dataclass(frozen=True, eq=False)
class Finished:
    """What is left of a `ScalarProgram` when its machine code is there."""

    own_digest: str  # of the program
    outputs: tuple[Leaf, ...]  # shape and dtype of each output leaf
    copies: dict[int, int]  # of the output leaves those that are copies of input leaves
    constants: dict[int, np.ndarray]  # and those that are constants
    layout: Layout
    objects: Objects

    @property
    def inputs(self) -> tuple[Leaf, ...]:
        """Shape and dtype of each input leaf."""
        return self.layout.inputs

    def digest(self) -> str:
        """A hash of everything that decides what the program computes."""
        return self.own_digest

    def written(self) -> tuple[int, ...]:
        """The output leaves that a kernel has to write."""
        every = range(len(self.outputs))
        return tuple(k for k in every if k not in self.copies and k not in self.constants)

    def copied_leaf(self, output: int) -> int | None:
        """Number of the input leaf that an output leaf is a copy of; None for others."""
        return self.copies.get(output)

    def constant_leaf(self, output: int) -> np.ndarray | None:
        """The value of an output leaf that does not depend on the inputs; None for others."""
        return self.constants.get(output)


def code_name(digest: str, lanes: int) -> str:
    """The name of a program's machine code on disk."""
    return f"{digest} {lanes}"


def find(name: str) -> Finished | None:
    """What is kept by a name, if the machine code is there, too."""
    return disk.find(name, _finished)


def _finished(head: dict[str, Any], arrays: Sequence[bytes]) -> Finished | None:
    """The kernel that a file describes."""
    parts = iter(arrays)
    objects = disk.known_objects(code_name(head["digest"], head["lanes"]))
    if objects is None:
        return None
    inputs, outputs = (tuple(map(_leaf, head[which])) for which in ("inputs", "outputs"))
    copies = dict(head["copies"])
    constants = {k: _array(parts, outputs[k].dtype, outputs[k].shape) for k in head["constants"]}
    written = [k for k in range(len(outputs)) if k not in copies and k not in constants]
    made = []
    for k, stored in zip(written, map(_leaf, head["stored"]), strict=True):
        dtypes = np.int64, np.int64, outputs[k].dtype
        made.append(Written(outputs[k], stored, (), *(_array(parts, d) for d in dtypes)))
    layout = Layout(head["lanes"], head["executed"], inputs, made, head["single"])
    return Finished(head["digest"], outputs, copies, constants, layout, objects)


def keep(name: str, program: ScalarProgram) -> None:
    """Keeps what a call of a program's kernel needs, beside its code."""
    layout = layout_of(program)
    every = range(len(program.outputs))
    copied = ((k, program.copied_leaf(k)) for k in every)
    copies = {k: source for k, source in copied if source is not None}
    known = ((k, program.constant_leaf(k)) for k in every if k not in copies)
    constants = {k: value for k, value in known if value is not None}
    head: dict[str, Any] = {
        "digest": program.digest(),
        "lanes": layout.lanes,
        "executed": layout.executed,
        "single": layout.single,
        "inputs": program.inputs,
        "outputs": program.outputs,
        "copies": [*copies.items()],
        "constants": [*constants],
        "stored": [made.stored for made in layout.outputs],
    }
    places = [getattr(made, name) for made in layout.outputs for name in _LAYOUT]
    disk.put(name, head, [x.tobytes() for x in (*constants.values(), *places)])


def _leaf(known: tuple[Sequence[int], str]) -> Leaf:
    shape, dtype = known
    return Leaf(tuple(shape), dtype)


def _array(parts: Iterator[bytes], dtype: Any, shape: Sequence[int] = (-1,)) -> np.ndarray:
    """The array of the next part."""
    return np.frombuffer(next(parts), dtype).reshape(shape)
