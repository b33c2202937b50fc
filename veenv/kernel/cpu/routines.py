"""Calls of LAPACK and BLAS in a kernel, for one point of a vector after the other.

SciPy exports the routines to C; JAX calls the same. They take matrices column by column, all
arguments by their addresses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from veenv.kernel.backend import InLoop
from veenv.kernel.cpu.arrays import Stored, workspace
from veenv.kernel.cpu.compile import LIBRARY
from veenv.kernel.cpu.emitter import element, literal, memory_element
from veenv.kernel.scalar_program import Buffer, Routine, Workspace


def call(to: Any, loop: InLoop[Stored], routine: Routine, base: int) -> None:
    """Calls a routine for each point of the vector that the loops around go on for.

    `to` writes instructions (`veenv.kernel.cpu.codegen.Instructions`);
    `base` is where memory for it begins, in bytes.
    """

    def point(lane: str) -> None:
        if to.scope.mask is None:
            _call(to, loop, routine, base, lane)
            return
        where = f"extractelement {to.vector('bool')} {to.scope.mask}, i64 {lane}"
        to.either(to.emit(where), lambda: _call(to, loop, routine, base, lane), lambda: None)

    to.each("%filled", point)


def _call(to: Any, loop: InLoop[Stored], routine: Routine, base: int, lane: str) -> None:
    addresses, written = list[str](), list[Callable[[], None]]()
    for one, size in zip(routine.arguments, workspace(loop.loop), strict=True):
        if not isinstance(one, Buffer | Workspace):
            addresses.append(_constant(to, one, routine.dtype))
            continue
        if isinstance(one, Buffer) and _lies(to, one, array := loop.argument(one.argument)):
            addresses.append(to.view_of(array, one.start, lane))
            continue
        addresses.append(to.emit(f"getelementptr i8, ptr %kept, i64 {base}"))
        base += size
        if isinstance(one, Buffer):
            copied = to, one, loop.argument(one.argument), lane, addresses[-1]
            _copy(*copied, back=False)
            if one.argument < loop.loop.carries:
                written.append(functools.partial(_copy, *copied, back=True))
    symbol = LIBRARY + routine.name
    to.declare(symbol, f"declare void @{symbol}({', '.join(['ptr'] * len(addresses))})")
    to.lines.append(f"call void @{symbol}({', '.join(f'ptr {x}' for x in addresses)})")
    for copy in written:
        copy()


def _lies(to: Any, buffer: Buffer, array: Stored) -> bool:
    """Tests whether a point's entries lie in memory as a routine reads and writes them."""
    near = array.width(to.lanes) * array.stride == np.dtype(array.dtype).itemsize
    return near and not array.shared and buffer.strides == (buffer.shape[1], 1)


def _constant(to: Any, value: str | int | float, dtype: str) -> str:
    """The address of a constant."""
    if isinstance(value, str):
        name, text = f"@character_{value}", f"i8 {ord(value)}"
    elif isinstance(value, int):
        name, text = f"@integer_{value}", f"i32 {value}"
    else:
        number = literal(np.dtype(dtype).type(value))
        name, text = f"@number_{number}", f"{element(dtype)} {number}"
    to.declare(name, f"{name} = internal constant {text}")
    return name


def _copy(to: Any, buffer: Buffer, array: Stored, lane: str, address: str, *, back: bool) -> None:
    """Copies a point's entries of an array to a buffer, or back."""
    kind, width = memory_element(array.dtype), np.dtype(array.dtype).itemsize
    row = to.view_of(array, buffer.start, lane)
    (outer, inner), (far, near) = buffer.shape, buffer.strides

    def column(j: str) -> None:
        first = to.emit(f"mul i64 {j}, {inner}")
        there = to.emit(f"mul i64 {j}, {far}")

        def entry(i: str) -> None:
            at = to.emit(f"add i64 {there}, {to.emit(f'mul i64 {i}, {near}')}")
            bytes_ = to.emit(f"mul i64 {at}, {array.width(to.lanes) * array.stride}")
            theirs = to.emit(f"getelementptr i8, ptr {row}, i64 {bytes_}")
            ours = to.emit(
                f"getelementptr {kind}, ptr {address}, i64 {to.emit(f'add i64 {first}, {i}')}"
            )
            source, target = (ours, theirs) if back else (theirs, ours)
            value = to.emit(f"load {kind}, ptr {source}, align {width}")
            to.lines.append(f"store {kind} {value}, ptr {target}, align {width}")

        to.each(inner, entry)

    to.each(outer, column)
