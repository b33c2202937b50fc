"""The loop over tiles of points: stages what does not lie entry by entry, calls the kernel.

A tile's points are computed entry by entry; what does not lie so in memory (arrays, arguments that
are not batched, the last points) is staged in a buffer. A kernel is described by an entry:

| entry, 8 bytes each | |
| --- | --- |
| 0 key, 1 users (-1: free), 2 next entry | |
| 3 body | ``void(ptr ins, ptr outs, i64 vectors)`` |
| 4, 5 number of input and output leaves | |
| 6 points of a tile, 7 points of a vector | |
| 8 bytes of staging for a tile, 9 number of pointers in both tables | |
| 10, 11 addresses of the leaves' records | entries, bytes of one, rank, offset, in place |
| 12 least points of a chunk | |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from veenv.kernel.cpu.module import I64, PTR, VOID, Code, SharedModule, typed, word

KEY, USERS, NEXT, BODY, NUM_IN, NUM_OUT, TILE, LANES, STAGING, STREAMS, INS, OUTS, CHUNK = range(13)
ENTRY_WORDS = 13
LEAF_WORDS = 5
SIZE, BYTES, RANK, OFFSET, IN_PLACE = range(LEAF_WORDS)


class Tiles(SharedModule):
    """Builds ``veenv_run``.

    Attributes:
      run: ``run(entry, ins, steps, outs, start, stop, memory)``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memcpy = self.extern("memcpy", PTR, [PTR, PTR, I64])
        copies = {n: self._copies(n) for n in (1, 2, 4, 8)}
        self.stage = {n: c[0] for n, c in copies.items()}
        self.unstage = {n: c[1] for n, c in copies.items()}
        self.run = self._run()

    def _copies(self, size: int) -> tuple[ir.Function, ir.Function]:
        """``stage(data, buffer, entries, tile, first, count, upto, step)`` and its inverse.

        The buffer holds entry after entry, `tile` points each; the points from `count` to `upto`
        repeat the last. `step` is the number of entries from one point to the next: 0 where the
        argument is not batched.
        """
        kind = ir.IntType(8 * size)
        types = [PTR, PTR, I64, I64, I64, I64, I64, I64]
        stage, b, args = self.function(f"veenv_stage{size}", VOID, types)
        data, buffer, entries, tile, first, count, upto, step = args
        last = b.sub(count, word(1))
        with b.loop(word(0), entries) as e:
            row = b.gep(buffer, [b.mul(e, tile)], source_etype=kind)
            column = b.gep(data, [b.add(b.mul(first, step), e)], source_etype=kind)
            with b.loop(word(0), count) as q:
                value = b.load(b.gep(column, [b.mul(q, step)], source_etype=kind), typ=kind)
                b.store(value, b.gep(row, [q], source_etype=kind))
            repeated = b.load(b.gep(row, [last], source_etype=kind), typ=kind)
            with b.loop(count, upto) as q:
                b.store(repeated, b.gep(row, [q], source_etype=kind))
        b.ret_void()
        unstage, b, args = self.function(f"veenv_unstage{size}", VOID, types[:6])
        data, buffer, entries, tile, first, count = args
        with b.if_then(b.icmp_signed("==", entries, word(1))):
            target = b.gep(data, [first], source_etype=kind)
            b.call(self.memcpy, [target, buffer, b.mul(count, word(size))])
            b.ret_void()
        with b.loop(word(0), count) as q:
            row = b.gep(data, [b.mul(b.add(first, q), entries)], source_etype=kind)
            column = b.gep(buffer, [q], source_etype=kind)
            with b.loop(word(0), entries) as e:
                value = b.load(b.gep(column, [b.mul(e, tile)], source_etype=kind), typ=kind)
                b.store(value, b.gep(row, [e], source_etype=kind))
        b.ret_void()
        return stage, unstage

    def _by_size(self, b: Code, functions: Any, size: Any, args: Sequence[Any]) -> None:
        """Calls the copy for entries of a computed size."""
        after = b.append_basic_block("copied")
        other = b.append_basic_block("size8")
        switch = b.switch(size, other)
        for n, function in functions.items():
            block = other if n == 8 else b.append_basic_block(f"size{n}")
            if n != 8:
                switch.add_case(word(n), block)
            b.position_at_end(block)
            b.call(function, args)
            b.branch(after)
        b.position_at_end(after)

    def _run(self) -> ir.Function:
        """``run(entry, ins, steps, outs, start, stop, memory)``: computes points of the batch."""
        function, b, args = self.function("veenv_run", VOID, [PTR, PTR, PTR, PTR, I64, I64, PTR])
        entry, ins, steps, outs, start, stop, memory = args
        tile, lanes = b.field(entry, TILE), b.field(entry, LANES)
        tables = b.far(memory, b.field(entry, STAGING))
        body = b.field(entry, BODY, PTR)
        body_type = ir.FunctionType(VOID, [PTR, PTR, I64])
        stream = b.words(1)
        with b.loop(start, stop, tile) as first:
            count = b.least(tile, b.sub(stop, first))
            full = b.icmp_signed("==", count, tile)
            vectors = b.udiv(b.sub(b.add(count, lanes), word(1)), lanes)
            b.store(word(0), stream)
            self._inputs(b, entry, ins, steps, (start, first, count, full), memory, tables, stream)
            out_table = b.gep(tables, [b.load(stream, typ=I64)], source_etype=I64)
            b.store(word(0), stream)
            self._outputs(b, entry, outs, (first, full), memory, out_table, stream)
            b.call(typed(b, body, body_type), [tables, out_table, vectors])
            self._copy_out(b, entry, outs, (first, count, full), memory)
        b.ret_void()
        return function

    def record(self, b: Code, entry: Any, table: int, k: Any) -> Any:
        """The record of a leaf."""
        return b.gep(b.field(entry, table, PTR), [b.mul(k, word(LEAF_WORDS))], source_etype=I64)

    def _leaf(self, b: Code, record: Any) -> tuple[Any, Any, Any]:
        """Entries, bytes an entry and staging offset of a leaf."""
        return b.field(record, SIZE), b.field(record, BYTES), b.field(record, OFFSET)

    def _direct(self, b: Code, record: Any, full: Any) -> Any:
        """Whether the kernel reads or writes a leaf where it is."""
        single = b.icmp_signed("==", b.field(record, SIZE), word(1))
        allowed = b.icmp_signed("!=", b.field(record, IN_PLACE), word(0))
        return b.and_(full, b.and_(single, allowed))

    def _push(self, b: Code, table: Any, stream: Any, pointer: Any) -> None:
        place = b.load(stream, typ=I64)
        b.put(table, place, pointer)
        b.store(b.add(place, word(1)), stream)

    def _push_staged(
        self, b: Code, table: Any, stream: Any, staged: Any, size: Any, row: Any
    ) -> None:
        with b.loop(word(0), size) as e:
            self._push(b, table, stream, b.far(staged, b.mul(e, row)))

    def _inputs(
        self,
        b: Code,
        entry: Any,
        ins: Any,
        steps: Any,
        span: Any,
        memory: Any,
        table: Any,
        stream: Any,
    ) -> None:
        start, first, count, full = span
        tile = b.field(entry, TILE)
        with b.loop(word(0), b.field(entry, NUM_IN)) as k:
            record = self.record(b, entry, INS, k)
            size, bytes_, offset = self._leaf(b, record)
            data, step = b.item(ins, k, PTR), b.item(steps, k)
            batched = b.icmp_signed("!=", step, word(0))
            direct = b.and_(self._direct(b, record, full), batched)
            with b.if_else(direct) as (then, otherwise):
                with then:
                    self._push(b, table, stream, b.far(data, b.mul(first, bytes_)))
                with otherwise:
                    staged = b.far(memory, offset)
                    fresh = b.or_(batched, b.icmp_signed("==", first, start))
                    with b.if_then(fresh):
                        points = b.select(batched, count, tile)
                        copied = [data, staged, size, tile, first, points, tile, step]
                        self._by_size(b, self.stage, bytes_, copied)
                    self._push_staged(b, table, stream, staged, size, b.mul(tile, bytes_))

    def _outputs(
        self, b: Code, entry: Any, outs: Any, span: Any, memory: Any, table: Any, stream: Any
    ) -> None:
        first, full = span
        tile = b.field(entry, TILE)
        with b.loop(word(0), b.field(entry, NUM_OUT)) as k:
            record = self.record(b, entry, OUTS, k)
            size, bytes_, offset = self._leaf(b, record)
            with b.if_else(self._direct(b, record, full)) as (then, otherwise):
                with then:
                    data = b.item(outs, k, PTR)
                    self._push(b, table, stream, b.far(data, b.mul(first, bytes_)))
                with otherwise:
                    staged = b.far(memory, offset)
                    self._push_staged(b, table, stream, staged, size, b.mul(tile, bytes_))

    def _copy_out(self, b: Code, entry: Any, outs: Any, span: Any, memory: Any) -> None:
        first, count, full = span
        tile = b.field(entry, TILE)
        with b.loop(word(0), b.field(entry, NUM_OUT)) as k:
            record = self.record(b, entry, OUTS, k)
            size, bytes_, offset = self._leaf(b, record)
            with b.if_then(b.not_(self._direct(b, record, full))):
                copied = [b.item(outs, k, PTR), b.far(memory, offset), size, tile, first, count]
                self._by_size(b, self.unstage, bytes_, copied)
