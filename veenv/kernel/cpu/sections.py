"""The code of a scalar program: one function, or sections that are compiled side by side.

LLVM takes one core for a function. The code of a long program is therefore cut into functions of
about the same length. What one computes and a later one needs is kept in memory; the cuts are where
that is little (`veenv.kernel.cpu.spans`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from veenv.kernel.cpu import arrays
from veenv.kernel.cpu.arrays import ALIGNED
from veenv.kernel.cpu.bodies import Instructions
from veenv.kernel.cpu.compile import Objects, objects_of
from veenv.kernel.cpu.emitter import module
from veenv.kernel.cpu.spans import kept_places, sections
from veenv.kernel.scalar_program import ScalarProgram


def objects(program: ScalarProgram, lanes: int) -> Objects:
    """The machine code of a program; its function `body` is as `body` says."""
    spans, size = sections(program), _size(program, lanes)
    if len(spans) == 1:
        return _objects([body(program, lanes)], arrays.memory(program, lanes)[1], size)
    places = kept_places(program, spans)
    base = size * (1 + max(places.values(), default=-1))
    kept = {i: size * place for i, place in places.items()}
    texts = [section(program, lanes, span, kept, base) for span in spans]
    memory = arrays.memory(program, lanes, base)[1]
    return _objects([*texts, _calling(lanes, spans, memory)], memory, size)


def _objects(texts: Sequence[str], memory: int, size: int) -> Objects:
    """The machine code of modules that keep so much, and each result at most once besides."""
    most = max(text.count(" = ") for text in texts)
    return objects_of(*texts, stack=memory + size * most)


def body(program: ScalarProgram, lanes: int) -> str:
    """A module with the function `body` of two tables of pointers and a number of vectors.

    `ins` is a table of two words for each input leaf, its address and the bytes from one vector of
    points to the next; `outs` is a table of the addresses of what is written of the output leaves
    (`veenv.kernel.cpu.outputs`). Points lie one after the other; the function computes ``vectors *
    lanes`` of them.
    """
    made = Instructions(program, lanes, range(len(program.ops)), {})
    steps = f"""\
  br label %first
first:
{made.text()}
  br label %last"""
    memory = arrays.memory(program, lanes)[1]
    return module(lanes, made.declared.values(), _loop(steps, _kept(memory) if memory else ""))


def section(
    program: ScalarProgram, lanes: int, span: range, kept: Mapping[int, int], base: int
) -> str:
    """A module with a function of some of a program's operations, whose name `_name` says.

    It computes one vector of points: `ins` and `outs` are as for `body`; `kept` is memory for what
    other sections need; then comes the number of the vector. The other arguments are those of
    `Instructions`.
    """
    made = Instructions(program, lanes, span, kept, base)
    function = f"""\
define void @{_name(span)}(ptr noalias %ins, ptr noalias %outs, ptr noalias %kept, i64 %step) #0 {{
entry:
  %never = icmp slt i64 %step, 0
  br label %first
first:
{made.text()}
  br label %exit
exit:
  ret void
}}"""
    return module(lanes, made.declared.values(), function)


def _size(program: ScalarProgram, lanes: int) -> int:
    """Bytes of a kept vector, of any dtype."""
    width = max(np.dtype(dtype).itemsize for dtype in program.dtypes)
    return -(-width * lanes // ALIGNED) * ALIGNED


def _name(span: range) -> str:
    return f"section_{span.start}"


def _calling(lanes: int, spans: Sequence[range], memory: int) -> str:
    """A module with the function `body` that calls sections, for one vector after the other."""
    names = [f"@{_name(span)}" for span in spans]
    call = "(ptr %ins, ptr %outs, ptr %kept, i64 %step)"
    steps = "\n".join(f"  call void {name}{call}" for name in names)
    declared = [f"declare void {name}(ptr, ptr, ptr, i64)" for name in names]
    return module(lanes, declared, _loop(steps + "\n  br label %last", _kept(memory)))


def _kept(memory: int) -> str:
    return f"  %kept = alloca [{memory} x i8], align {ALIGNED}\n"


def _loop(steps: str, entry: str = "") -> str:
    return f"""\
define void @body(ptr noalias %ins, ptr noalias %outs, i64 %vectors) #0 {{
entry:
{entry}  %none = icmp eq i64 %vectors, 0
  %never = icmp slt i64 %vectors, 0
  br i1 %none, label %exit, label %loop
loop:
  %step = phi i64 [ 0, %entry ], [ %next, %last ]
{steps}
last:
  %next = add i64 %step, 1
  %done = icmp eq i64 %next, %vectors
  br i1 %done, label %exit, label %loop
exit:
  ret void
}}"""
