"""From a vector of points for each value to a row of entries for each point, in a loop."""

from __future__ import annotations

import functools

from veenv.kernel.cpu.compile import MachineCode
from veenv.kernel.cpu.emitter import Emitter, module
from veenv.kernel.cpu.layout import Shuffles, woven

NAME = "transpose"


@functools.cache
def transposing(element: str, lanes: int) -> MachineCode:
    """The machine code that transposes an array of numbers; all kernels share it.

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
    rows = woven([vector(k) for k in range(lanes)], shuffles)
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
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %over = icmp sgt i64 %k, %last
  %first = select i1 %over, i64 %last, i64 %k
{body}
  %next = add i64 %k, {lanes}
  %more = icmp slt i64 %next, %entries
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}"""
    return MachineCode(module(lanes, emitter.declared.values(), function))
