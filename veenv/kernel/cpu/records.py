"""The record of a kernel, which ``driver.c`` reads and defines; what of it is kept on disk.

A kernel on disk can be run without its program: by its machine code, and how that is called.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from veenv.kernel.cpu import disk
from veenv.kernel.cpu.compile import MachineCode, Objects, objects_of
from veenv.kernel.cpu.emitter import Emitter, memory_element, module
from veenv.kernel.cpu.layout import STRIDE, Shuffles, interleaved
from veenv.kernel.cpu.size import Written, lanes_of, written
from veenv.kernel.price import kernel_seconds
from veenv.kernel.scalar_program import Leaf, ScalarProgram

NAME = "transpose"


@functools.cache
def transposing(element: str, lanes: int) -> MachineCode:
    """The machine code that transposes an array of numbers; all kernels share it."""
    transposing = functools.partial(_transposing, element, lanes)
    return MachineCode(disk.objects(f"transposing {element} {lanes}", transposing))


def _transposing(element: str, lanes: int) -> Objects:
    """The same, not in memory yet.

    Its function ``(ptr source, ptr target, i64 entries, i64 stride, ptr numbers)`` has the name
    `NAME`: `source` has a vector of `lanes` points for each value, and `numbers` the number of its
    value for each entry. The entries of a point, at least as many as a vector has lanes, become a
    row of `target`; rows begin every `stride` bytes. Squares are transposed in registers; the last
    one overlaps the one before it where the entries are no multiple of the lanes.
    """
    emitter = Emitter(lanes)
    emit, shuffles = emitter.emit, Shuffles(element, emitter)
    kind = shuffles.kind

    def vector(entry: int) -> str:
        place = emit(f"getelementptr i64, ptr {numbers}, i64 {entry}")
        number = emit(f"load i64, ptr {place}, align 8")
        value = emit(f"getelementptr {kind}, ptr %source, i64 {number}")
        return emit(f"load {kind}, ptr {value}, align 1")

    numbers = emit("getelementptr i64, ptr %numbers, i64 %first")
    rows = interleaved([vector(k) for k in range(lanes)], shuffles)
    target = emit(f"getelementptr {element}, ptr %target, i64 %first")
    for point, row in enumerate(rows):
        offset = emit(f"mul i64 %stride, {point}")
        place = emit(f"getelementptr i8, ptr {target}, i64 {offset}")
        emitter.lines.append(f"store {kind} {row}, ptr {place}, align 1")
    body = "\n".join(f"  {line}" for line in emitter.lines)
    parameters = "ptr noalias %source, ptr noalias %target, i64 %entries, i64 %stride, ptr %numbers"
    function = f"""\
define void @{NAME}({parameters}) #0 {{
entry:
  %last = sub i64 %entries, {lanes}
  %never = icmp slt i64 %entries, 0
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %stored ]
  %over = icmp sgt i64 %k, %last
  %first = select i1 %over, i64 %last, i64 %k
{body}
  br label %stored
stored:
  %next = add i64 %k, {lanes}
  %more = icmp slt i64 %next, %entries
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}"""
    return objects_of(module(lanes, emitter.declared.values(), function))


_MOST_DIRECT = 24
"""Outputs that are written in place where a vector of points is not a whole line of the cache.

More of them would collide in the cache, at the equal distances they often have; they are staged.
"""
_LINE = 64
_STAGING = 48 * 1024
_IN_PLACE_TILE = 1 << 40
_LITTLE_STACK = 16 * 1024
"""Bytes that a body takes at most of a thread's stack; threads of 128 kB are usual."""
_OTHERS_STACK = 64 * 1024
"""Bytes of a stack for functions that a body calls, and for handlers of signals."""
_CHUNK_OPERATIONS = 1_500_000
"""Operations of points that are worth a task of the thread pool, about 20 microseconds."""


class Layout(NamedTuple):
    """The memory layout of a kernel, stored beside its code."""

    lanes: int  # points in a vector
    executed: int  # operations at a point
    inputs: tuple[Leaf, ...]
    outputs: Sequence[Written]  # the leaves that it writes
    single: bool = False  # whether a vector of one point has code of its own, which calls libraries


def layout_of(program: ScalarProgram) -> Layout:
    """The layout of a program's kernel of many points."""
    leaves = program.inputs, written(program)
    return Layout(lanes_of(program), program.executed, *leaves, bool(program.called))


def _words(names: str) -> tuple[tuple[str, Any], ...]:
    """Fields of 64 bits."""
    return tuple((name, ctypes.c_int64) for name in names.split())


class LeafRecord(ctypes.Structure):
    """The shape and type of an input or output."""

    _fields_ = _words(
        "bytes rank offset in_place staged count sources places constants width transpose"
    )


class EntryRecord(ctypes.Structure):
    """The record of a kernel on disk."""

    _fields_ = _words(
        "key users next body num_in num_out tile lanes staging memory ins outs chunk own_stack"
    )


def entry_of(key: int, layout: Layout, code: MachineCode) -> tuple[EntryRecord, Any]:
    """The record of a kernel, and the arrays that have to live as long."""
    lanes, executed, leaves_in, outputs, _ = layout
    whole = [_bytes(output.leaf) for output in outputs if not output.by_value]
    direct = len(whole) <= _MOST_DIRECT or all(lanes * size >= _LINE for size in whole)
    in_place = [direct and not output.by_value for output in outputs]
    staged = sum(_bytes(m.stored) for m, there in zip(outputs, in_place, strict=True) if not there)
    tile = max(1, _STAGING // (lanes * staged)) if staged else _IN_PLACE_TILE
    inputs = [Written(leaf, leaf, ()) for leaf in leaves_in]
    staging, rows = 0, []
    for made, there in (*((x, True) for x in inputs), *zip(outputs, in_place, strict=True)):
        size = _bytes(made.stored)
        by_value = _by_value(made, lanes) if made.by_value else ()
        rows.append((_bytes(made.leaf), len(made.leaf.shape), staging, there, size, *by_value))
        staging += -(-size * lanes * (1 if there else tile) // _LINE) * _LINE
    parts = rows[: len(inputs)], rows[len(inputs) :]
    ins, outs = ((LeafRecord * len(part))(*part) for part in parts)
    tables = ctypes.sizeof(ctypes.c_int64) * (STRIDE * len(inputs) + len(outputs))
    own_stack = code.stack > _LITTLE_STACK
    memory = staging + tables + (code.stack + _OTHERS_STACK if own_stack else 0)
    traffic = sum(made.leaf.size for made in (*inputs, *outputs))
    work = _CHUNK_OPERATIONS // (executed + 2 * traffic + 1)
    entry = EntryRecord(
        key=key, body=code.address("body"), num_in=len(inputs), num_out=len(outputs),
        tile=tile, lanes=lanes, staging=staging, memory=-(-memory // _LINE) * _LINE,
        ins=ctypes.addressof(ins), outs=ctypes.addressof(outs),
        chunk=-(-max(work, 1) // lanes) * lanes, own_stack=own_stack,
    )  # fmt: skip
    return entry, (ins, outs, outputs)


def _by_value(output: Written, lanes: int) -> tuple[int, ...]:
    """The fields of a leaf that is written by values."""
    constants = output.constants.ctypes.data if output.constants.size else 0
    transpose = transposing(memory_element(output.leaf.dtype), lanes).address(NAME)
    width = np.dtype(output.leaf.dtype).itemsize
    tables = output.sources.ctypes.data, output.places.ctypes.data, constants
    return len(output.sources), *tables, width, transpose


def _bytes(leaf: Leaf) -> int:
    """Bytes of a leaf at one point."""
    return leaf.size * np.dtype(leaf.dtype).itemsize


@dataclass(frozen=True, eq=False)
class Finished:
    """The part of a `ScalarProgram` that calling its machine code needs."""

    own_digest: str  # of the program
    outputs: tuple[Leaf, ...]  # shape and dtype of each output leaf
    copies: dict[int, int]  # of the output leaves those that are copies of input leaves
    constants: dict[int, np.ndarray]  # and those that are constants
    seconds: float  # predicted of one point
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
    """Returns the kernel stored by a name, if its machine code is there, too."""
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
    leaves = []
    for k, stored in zip(written, map(_leaf, head["stored"]), strict=True):
        dtypes = np.int64, np.int64, outputs[k].dtype
        leaves.append(Written(outputs[k], stored, (), *(_array(parts, d) for d in dtypes)))
    layout = Layout(head["lanes"], head["executed"], inputs, leaves, head["single"])
    return Finished(head["digest"], outputs, copies, constants, head["seconds"], layout, objects)


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
        "seconds": kernel_seconds(program, 1),
        "inputs": program.inputs,
        "outputs": program.outputs,
        "copies": [*copies.items()],
        "constants": [*constants],
        "stored": [output.stored for output in layout.outputs],
    }
    by_value = [x for o in layout.outputs for x in (o.sources, o.places, o.constants)]
    disk.put(name, head, [x.tobytes() for x in (*constants.values(), *by_value)])


def _leaf(known: tuple[Sequence[int], str]) -> Leaf:
    shape, dtype = known
    return Leaf(tuple(shape), dtype)


def _array(parts: Iterator[bytes], dtype: Any, shape: Sequence[int] = (-1,)) -> np.ndarray:
    """The array of the next part."""
    return np.frombuffer(next(parts), dtype).reshape(shape)
