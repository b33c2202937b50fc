"""What the shared code is written with: an `IRBuilder` with loops, fields and calls of XLA."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from veenv.kernel.cpu import ffi

I64, I32, I1, I8 = (ir.IntType(n) for n in (64, 32, 1, 8))
PTR = ir.PointerType()
VOID = ir.VoidType()
NULL = ir.Constant(PTR, None)


def word(value: int, kind: Any = I64) -> ir.Constant:
    """An integer constant."""
    return ir.Constant(kind, value)


class Callee:
    """A pointer that is called as a function of a type, which opaque pointers do not say."""

    def __init__(self, pointer: Any, kind: ir.FunctionType):
        self.function_type = kind
        self.type = PTR
        self.get_reference = pointer.get_reference


class Code(ir.IRBuilder):
    """An `IRBuilder` with the few things that C has: fields, loops, memory on the stack."""

    def words(self, count: int) -> Any:
        """The address of so many words on the stack, the same whenever this runs in a call."""
        with self.goto_entry_block():
            made = self.alloca(I64, count)
        made.type = PTR
        return made

    def at(self, base: Any, offset: int) -> Any:
        """An address some bytes further."""
        return self.gep(base, [word(offset)], source_etype=I8)

    def far(self, base: Any, bytes_: Any) -> Any:
        """An address a computed number of bytes further."""
        return self.gep(base, [bytes_], source_etype=I8)

    def field(self, base: Any, index: int, kind: Any = I64) -> Any:
        """The value of the 8-byte field `index`."""
        return self.load(self.at(base, 8 * index), typ=kind)

    def read(self, base: Any, field: Any, kind: Any = PTR) -> Any:
        """The value of a field of one of XLA's structures."""
        return self.load(self.at(base, field.offset), typ=kind)

    def ask(self, frame: Any, name: str, result: Any = PTR, **values: Any) -> tuple[Any, Any]:
        """What a function of XLA returns, and its arguments, which may hold what it found."""
        kind = ffi.CALLS[name]
        last = getattr(kind, kind._fields_[-1][0])
        made = self.words(ctypes.sizeof(kind) // 8)
        values |= {"struct_size": word(last.offset + last.size), "extension_start": NULL}
        for field, value in values.items():
            self.store(value, self.at(made, getattr(kind, field).offset))
        function = self.read(self.read(frame, ffi.CallFrame.api), getattr(ffi.Api, name))
        return self.call(Callee(function, ir.FunctionType(result, [PTR])), [made]), made

    def is_fine(self, frame: Any, error: Any) -> Any:
        """Whether there is no error; one that there is is destroyed."""
        with self.if_then(self.icmp_unsigned("!=", error, NULL)):
            self.ask(frame, "Error_Destroy", VOID, error=error)
        return self.icmp_unsigned("==", error, NULL)

    def item(self, base: Any, index: Any, kind: Any = I64) -> Any:
        """The value of the 8-byte field that a value numbers."""
        return self.load(self.gep(base, [index], source_etype=I64), typ=kind)

    def put(self, base: Any, index: Any, value: Any) -> None:
        """Sets the 8-byte field `index`, an int or a value."""
        place = word(index) if isinstance(index, int) else index
        self.store(value, self.gep(base, [place], source_etype=I64))

    def least(self, x: Any, y: Any) -> Any:
        """The lesser of two unsigned words."""
        return self.select(self.icmp_unsigned("<", x, y), x, y)

    def most(self, x: Any, y: Any) -> Any:
        """The greater of two unsigned words."""
        return self.select(self.icmp_unsigned(">", x, y), x, y)

    @contextmanager
    def loop(self, start: Any, stop: Any, step: Any = None) -> Iterator[Any]:
        """A loop while the counter is less than `stop`; the body may have blocks of its own."""
        step = word(1) if step is None else step
        before = self.block
        head = self.append_basic_block("head")
        inside = self.append_basic_block("inside")
        after = self.append_basic_block("after")
        self.branch(head)
        self.position_at_end(head)
        counter = self.phi(I64)
        counter.add_incoming(start, before)
        self.cbranch(self.icmp_signed("<", counter, stop), inside, after)
        self.position_at_end(inside)
        yield counter
        counter.add_incoming(self.add(counter, step), self.block)
        self.branch(head)
        self.position_at_end(after)


class SharedModule:
    """A module with variables, texts and functions.

    Attributes:
      module: the module.
    """

    def __init__(self) -> None:
        self.module = ir.Module("veenv_driver")

    def variable(self, name: str, kind: Any, value: Any) -> Any:
        """A global variable."""
        variable = ir.GlobalVariable(self.module, kind, name)
        variable.initializer = value
        variable.type = PTR
        return variable

    def text(self, name: str, text: str) -> Any:
        """A constant text, ended by a zero."""
        data = bytearray(text.encode() + b"\0")
        return self.variable(
            name, ir.ArrayType(I8, len(data)), ir.Constant(ir.ArrayType(I8, len(data)), data)
        )

    def extern(self, name: str, result: Any, args: Sequence[Any]) -> ir.Function:
        """A function that is elsewhere."""
        return ir.Function(self.module, ir.FunctionType(result, args), name)

    def function(
        self, name: str, result: Any, args: Sequence[Any]
    ) -> tuple[ir.Function, Code, Sequence[Any]]:
        """A function of this module, what writes it, and its arguments."""
        function = self.extern(name, result, args)
        return function, Code(function.append_basic_block("entry")), function.args
