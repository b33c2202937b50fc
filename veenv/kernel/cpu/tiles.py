"""A part of the batch: a kernel gets addresses, and what it cannot reach in place is staged.

A kernel reads and writes arrays where they are, vectors of points at a time. Staged are arguments
that are not batched, repeated for one vector; the points after the last whole vector; and outputs
where many of them would collide in the cache, or that the code writes by values
(`veenv.kernel.cpu.outputs`): they are written tile by tile. A kernel is described by an entry:

| entry, 8 bytes each | |
| --- | --- |
| 0 key, 1 users, 2 next entry | |
| 3 body | ``void(ptr ins, ptr outs, i64 vectors)`` |
| 4, 5 number of input and output leaves | |
| 6 vectors of a tile, 7 points of a vector | |
| 8 bytes of staging, 9 of all of its memory | |
| 10, 11 addresses of the leaves' records | 0 bytes of a point, 1 rank, 2 offset in staging |
| | 3 whether it is in place, 4 bytes of a point in staging |
| | of what is staged by values: 5 number of entries, addresses: 6 the numbers of their |
| | values, 7 their places, 8 the constants between them or 0; 9 bytes of an entry |
| | 10 ``void(ptr source, ptr target, i64 entries, i64 stride, ptr numbers)`` |
| 12 least points of a chunk, 13 whether the body's stack is in that memory | |

The memory begins at a line of the cache: staging, the tables of `ins` and `outs`, and where it is
more than a few kB the stack of the body, as a thread may have little.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from veenv.kernel.cpu import ffi
from veenv.kernel.cpu.layout import STRIDE

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


KEY, USERS, NEXT, BODY, NUM_IN, NUM_OUT, TILE, LANES, STAGING, MEMORY, INS, OUTS = range(12)
CHUNK, OWN_STACK = 12, 13
ENTRY_WORDS = 14
LEAF_WORDS = 11
BYTES, RANK, OFFSET, IN_PLACE, STAGED = range(5)
COUNT, SOURCES, PLACES, CONSTANTS, WIDTH, TRANSPOSE = range(5, LEAF_WORDS)
_WIDTHS = (1, 2, 4, 8)
_BODY = ir.FunctionType(VOID, [PTR, PTR, I64])
_TRANSPOSE = ir.FunctionType(VOID, [PTR, PTR, I64, I64, PTR])


class Tiles(SharedModule):
    """Builds ``veenv_run``.

    Attributes:
      run: ``run(entry, ins, steps, outs, start, stop, memory)``: computes points of the batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memcpy = self.extern("memcpy", PTR, [PTR, PTR, I64])
        self.stage = self._stage()
        self.scatter = self._scatter()
        self.spread = self._spread()
        self.shared_inputs = self._shared_inputs()
        self.compute = self._compute(self._on_stack())
        self.whole = self._whole()
        self.rest = self._rest()
        self.run = self._run()

    def _stage(self) -> ir.Function:
        """``stage(buffer, data, bytes, count, upto)``: copies points, and the last one again."""
        function, b, args = self.function("veenv_stage", VOID, [PTR, PTR, I64, I64, I64])
        buffer, data, bytes_, count, upto = args
        b.call(self.memcpy, [buffer, data, b.mul(count, bytes_)])
        last = b.far(data, b.mul(b.sub(count, word(1)), bytes_))
        with b.loop(count, upto) as point:
            b.call(self.memcpy, [b.far(buffer, b.mul(point, bytes_)), last, bytes_])
        b.ret_void()
        return function

    def _spread(self) -> ir.Function:
        """``spread(entry, record, target, source, count)``: points that are staged by values."""
        types = [PTR, PTR, PTR, PTR, I64]
        function, b, (entry, record, target, source, count) = self.function(
            "veenv_spread", VOID, types
        )
        lanes, constants = b.field(entry, LANES), b.field(record, CONSTANTS)
        bytes_, staged = b.field(record, BYTES), b.field(record, STAGED)
        entries, transpose = b.field(record, COUNT), b.field(record, TRANSPOSE, PTR)
        squares = b.and_(
            b.icmp_signed("==", constants, word(0)), b.icmp_signed(">=", entries, lanes)
        )
        with b.loop(word(0), count, lanes) as first:
            rows, vectors = b.far(target, b.mul(first, bytes_)), b.far(source, b.mul(first, staged))
            points = b.least(lanes, b.sub(count, first))
            full = b.and_(squares, b.icmp_signed("==", points, lanes))
            with b.if_else(full) as (then, otherwise):
                with then:
                    numbers = b.field(record, SOURCES, PTR)
                    values = [vectors, rows, entries, bytes_, numbers]
                    b.call(Callee(transpose, _TRANSPOSE), values)
                with otherwise:
                    b.call(self.scatter, [record, rows, vectors, points, lanes])
        b.ret_void()
        return function

    def _scatter(self) -> ir.Function:
        """``scatter(record, rows, vectors, points, lanes)``: a few points, or a few entries."""
        types = [PTR, PTR, PTR, I64, I64]
        function, b, args = self.function("veenv_scatter", VOID, types)
        record, rows, vectors, points, lanes = args
        constants, places = b.field(record, CONSTANTS, PTR), b.field(record, PLACES, PTR)
        sources = b.field(record, SOURCES, PTR)
        some = b.icmp_signed("!=", b.field(record, CONSTANTS), word(0))
        bytes_, width = b.field(record, BYTES), b.field(record, WIDTH)
        with b.loop(word(0), points) as point:
            row = b.far(rows, b.mul(point, bytes_))
            with b.if_then(some):
                b.call(self.memcpy, [row, constants, bytes_])
            for size in _WIDTHS:
                kind = ir.IntType(8 * size)
                of_width = b.icmp_signed("==", width, word(size))
                with b.if_then(of_width), b.loop(word(0), b.field(record, COUNT)) as k:
                    number = b.add(b.mul(b.item(sources, k), lanes), point)
                    value = b.load(b.gep(vectors, [number], source_etype=kind), typ=kind)
                    b.store(value, b.far(row, b.item(places, k)), align=size)
        b.ret_void()
        return function

    def _shared_inputs(self) -> ir.Function:
        """``shared_inputs(entry, ins, steps, start, memory, table)``: the table of the inputs.

        Those that all points share are staged once, and do not move from vector to vector.
        """
        types = [PTR, PTR, PTR, I64, PTR, PTR]
        function, b, args = self.function("veenv_shared_inputs", VOID, types)
        entry, ins, steps, start, memory, table = args
        lanes = b.field(entry, LANES)
        with b.loop(word(0), b.field(entry, NUM_IN)) as k:
            record = self.record(b, entry, INS, k)
            bytes_, data = b.field(record, BYTES), b.item(ins, k, PTR)
            place = b.mul(k, word(STRIDE))
            stride = b.add(place, word(1))
            with b.if_else(b.icmp_signed("!=", b.item(steps, k), word(0))) as (then, otherwise):
                with then:
                    b.put(table, place, b.far(data, b.mul(start, bytes_)))
                    b.put(table, stride, b.mul(lanes, bytes_))
                with otherwise:
                    staged = b.far(memory, b.field(record, OFFSET))
                    b.call(self.stage, [staged, data, bytes_, word(1), lanes])
                    b.put(table, place, staged)
                    b.put(table, stride, word(0))
        b.ret_void()
        return function

    def _on_stack(self) -> ir.Function:
        """``on_stack(top, body, table, targets, vectors)``: a body, with its stack below."""
        types = [PTR, PTR, PTR, PTR, I64]
        function, b, (top, body, *values) = self.function("veenv_on_stack", VOID, types)
        save = self.extern("llvm.stacksave.p0", PTR, [])
        restore = self.extern("llvm.stackrestore.p0", VOID, [PTR])
        # of a size that is not known, so that this function addresses it by a frame pointer
        kept = b.alloca(I64, b.least(values[-1], word(1)))
        kept.type = PTR
        b.store(b.call(save, []), kept)
        b.call(restore, [top])
        b.call(Callee(body, _BODY), values)
        b.call(restore, [b.load(kept, typ=PTR)])
        b.ret_void()
        return function

    def _compute(self, on_stack: ir.Function) -> ir.Function:
        """``compute(entry, memory, table, targets, vectors)``: calls the body."""
        types = [PTR, PTR, PTR, PTR, I64]
        function, b, (entry, memory, *values) = self.function("veenv_compute", VOID, types)
        body, own = b.field(entry, BODY, PTR), b.field(entry, OWN_STACK)
        with b.if_else(b.icmp_signed("!=", own, word(0))) as (then, otherwise):
            with then:
                b.call(on_stack, [b.far(memory, b.field(entry, MEMORY)), body, *values])
            with otherwise:
                b.call(Callee(body, _BODY), values)
        b.ret_void()
        return function

    def _whole(self) -> ir.Function:
        """``whole(entry, outs, start, vectors, memory, table)``: whole vectors, tile by tile."""
        types = [PTR, PTR, I64, I64, PTR, PTR]
        function, b, args = self.function("veenv_whole", VOID, types)
        entry, outs, start, vectors, memory, table = args
        tile, lanes = b.field(entry, TILE), b.field(entry, LANES)
        num_in, num_out = b.field(entry, NUM_IN), b.field(entry, NUM_OUT)
        targets = b.gep(table, [b.mul(num_in, word(STRIDE))], source_etype=I64)
        with b.loop(word(0), vectors, tile) as done:
            now = b.least(tile, b.sub(vectors, done))
            first = b.add(start, b.mul(done, lanes))
            with b.loop(word(0), num_out) as k:
                record = self.record(b, entry, OUTS, k)
                direct = b.far(b.item(outs, k, PTR), b.mul(first, b.field(record, BYTES)))
                staged = b.far(memory, b.field(record, OFFSET))
                b.put(targets, k, b.select(self._in_place(b, record), direct, staged))
            b.call(self.compute, [entry, memory, table, targets, now])
            self._copy_out(b, entry, outs, memory, first, b.mul(now, lanes), everything=False)
            with b.loop(word(0), num_in) as k:
                place = b.mul(k, word(STRIDE))
                moved = b.mul(now, b.item(table, b.add(place, word(1))))
                b.put(table, place, b.far(b.item(table, place, PTR), moved))
        b.ret_void()
        return function

    def _rest(self) -> ir.Function:
        """``rest(entry, outs, start, count, memory, table)``: less than a vector of points."""
        types = [PTR, PTR, I64, I64, PTR, PTR]
        function, b, args = self.function("veenv_rest", VOID, types)
        entry, outs, start, count, memory, table = args
        num_in, lanes = b.field(entry, NUM_IN), b.field(entry, LANES)
        targets = b.gep(table, [b.mul(num_in, word(STRIDE))], source_etype=I64)
        with b.loop(word(0), num_in) as k:
            place = b.mul(k, word(STRIDE))
            with b.if_then(b.icmp_signed("!=", b.item(table, b.add(place, word(1))), word(0))):
                record = self.record(b, entry, INS, k)
                staged = b.far(memory, b.field(record, OFFSET))
                data = b.item(table, place, PTR)
                b.call(self.stage, [staged, data, b.field(record, BYTES), count, lanes])
                b.put(table, place, staged)
        with b.loop(word(0), b.field(entry, NUM_OUT)) as k:
            b.put(targets, k, b.far(memory, b.field(self.record(b, entry, OUTS, k), OFFSET)))
        b.call(self.compute, [entry, memory, table, targets, word(1)])
        self._copy_out(b, entry, outs, memory, start, count, everything=True)
        b.ret_void()
        return function

    def _run(self) -> ir.Function:
        function, b, args = self.function("veenv_run", VOID, [PTR, PTR, PTR, PTR, I64, I64, PTR])
        entry, ins, steps, outs, start, stop, memory = args
        table = b.far(memory, b.field(entry, STAGING))
        lanes = b.field(entry, LANES)
        count = b.sub(stop, start)
        vectors = b.udiv(count, lanes)
        points = b.mul(vectors, lanes)
        b.call(self.shared_inputs, [entry, ins, steps, start, memory, table])
        with b.if_then(b.icmp_signed(">", vectors, word(0))):
            b.call(self.whole, [entry, outs, start, vectors, memory, table])
        with b.if_then(b.icmp_signed("<", points, count)):
            first = b.add(start, points)
            b.call(self.rest, [entry, outs, first, b.sub(count, points), memory, table])
        b.ret_void()
        return function

    def record(self, b: Code, entry: Any, table: int, k: Any) -> Any:
        """The record of a leaf."""
        return b.gep(b.field(entry, table, PTR), [b.mul(k, word(LEAF_WORDS))], source_etype=I64)

    def _in_place(self, b: Code, record: Any) -> Any:
        return b.icmp_signed("!=", b.field(record, IN_PLACE), word(0))

    def _copy_out(
        self, b: Code, entry: Any, outs: Any, memory: Any, first: Any, count: Any, everything: bool
    ) -> None:
        """Copies staged outputs to where they belong: everything, or what is never in place."""
        with b.loop(word(0), b.field(entry, NUM_OUT)) as k:
            record = self.record(b, entry, OUTS, k)
            staged = word(1, ir.IntType(1)) if everything else b.not_(self._in_place(b, record))
            with b.if_then(staged):
                bytes_ = b.field(record, BYTES)
                target = b.far(b.item(outs, k, PTR), b.mul(first, bytes_))
                source = b.far(memory, b.field(record, OFFSET))
                by_value = b.icmp_signed("!=", b.field(record, COUNT), word(0))
                with b.if_else(by_value) as (then, otherwise):
                    with then:
                        b.call(self.spread, [entry, record, target, source, count])
                    with otherwise:
                        b.call(self.memcpy, [target, source, b.mul(count, bytes_)])
