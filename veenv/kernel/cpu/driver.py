"""The code that all kernels share, as LLVM IR: what XLA calls, and the loop over tiles of points.

A kernel is a `Body` function and an *entry*, a record in memory that does not move. XLA calls
handlers of its FFI (``xla/ffi/api/c_api.h`` in `jax.ffi.include_dir()`; the structures used here
are the same in API versions 0.3 and 0.5, of jaxlib 0.10 and 0.12). *Instantiate* runs when an
executable is made: it finds the entry by the key in the call's attributes, counts itself as a user
and leaves the entry as the call's state; when the executable goes, XLA deletes the state and the
entry has a user less. *Execute* splits the batch into chunks for the runtime's thread pool.

| entry, 8 bytes each | |
| --- | --- |
| 0 key, 1 users (-1: free), 2 next entry | |
| 3 body | ``void(ptr ins, ptr outs, i64 vectors)`` |
| 4, 5 number of input and output leaves | |
| 6 points of a tile, 7 points of a vector | |
| 8 bytes of staging for a tile, 9 number of pointers in both tables | |
| 10, 11 addresses of the leaves' records | entries a point, bytes an entry, rank, staging offset, in place |
| 12 least points of a chunk | |

A tile's points are computed entry by entry; what does not lie so in memory (arrays, arguments that
are not batched, the last points) is staged in a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

I64, I32, I1, I8 = (ir.IntType(n) for n in (64, 32, 1, 8))
PTR = ir.PointerType()
VOID = ir.VoidType()

KEY, USERS, NEXT, BODY, NUM_IN, NUM_OUT, TILE, LANES, STAGING, STREAMS, INS, OUTS, CHUNK = range(13)
ENTRY_WORDS = 13
LEAF_WORDS = 5
_SIZE, _BYTES, _RANK, _OFFSET, _IN_PLACE = range(LEAF_WORDS)

# Byte offsets in XLA_FFI_CallFrame and XLA_FFI_Api.
_FRAME = {"extension": 8, "api": 16, "ctx": 24, "args": 72, "rets": 112, "attrs": 160}
_API = {
    "major": 32, "minor": 36, "error_create": 48, "error_destroy": 64, "state_set": 104,
    "state_get": 112, "schedule": 136, "num_threads": 144,
}  # fmt: skip
_METADATA = 1
_NOT_FOUND = 5

SHARED_NEXT, SHARED_DONE, SHARED_USERS, SHARED_CHUNKS, SHARED_CHUNK, SHARED_BATCH, SHARED_ENTRY = (
    range(7)
)
_SHARED_WORDS = 7
_MESSAGE = (
    "the code of a fused veenv kernel is not in this process: it was compiled in another one, or "
    "its program was lowered long ago; trace and lower the function again (jax.clear_caches())"
)


def word(value: int, kind: Any = I64) -> ir.Constant:
    """An integer constant."""
    return ir.Constant(kind, value)


class Code(ir.IRBuilder):
    """An `IRBuilder` with the few things that C has: fields, loops, memory on the stack."""

    def words(self, count: int) -> Any:
        """The address of so many words on the stack."""
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


class Driver:
    """Builds the module."""

    def __init__(self, triple: str = ""):
        self.module = ir.Module("veenv_driver")
        self.module.triple = triple
        self.head = self._variable("veenv_entries", PTR, ir.Constant(PTR, None))
        self.type_id = self._variable("veenv_type_id", I64, word(0))
        self.message = self._text("veenv_message", _MESSAGE)
        self.malloc = self._extern("malloc", PTR, [I64])
        self.free = self._extern("free", VOID, [PTR])
        self.memcpy = self._extern("memcpy", PTR, [PTR, PTR, I64])
        self.sched_yield = self._extern("sched_yield", I32, [])
        copies = {n: self._copies(n) for n in (1, 2, 4, 8)}
        self.stage = {n: c[0] for n, c in copies.items()}
        self.unstage = {n: c[1] for n, c in copies.items()}
        self.run = self._run()
        self.work = self._work()
        self.release = self._release()
        self.task = self._task()
        self.parallel = self._parallel()
        self._instantiate()
        self._deleter()
        self._retire()
        self._execute()

    def _variable(self, name: str, kind: Any, value: Any) -> Any:
        variable = ir.GlobalVariable(self.module, kind, name)
        variable.initializer = value
        variable.type = PTR
        return variable

    def _text(self, name: str, text: str) -> Any:
        data = bytearray(text.encode() + b"\0")
        return self._variable(
            name, ir.ArrayType(I8, len(data)), ir.Constant(ir.ArrayType(I8, len(data)), data)
        )

    def _extern(self, name: str, result: Any, args: Sequence[Any]) -> ir.Function:
        return ir.Function(self.module, ir.FunctionType(result, args), name)

    def _function(
        self, name: str, result: Any, args: Sequence[Any]
    ) -> tuple[ir.Function, Code, Sequence[Any]]:
        function = self._extern(name, result, args)
        return function, Code(function.append_basic_block("entry")), function.args

    def _copies(self, size: int) -> tuple[ir.Function, ir.Function]:
        """``stage(data, buffer, entries, tile, first, count, upto, step)`` and its inverse.

        The buffer holds entry after entry, `tile` points each; the points from `count` to `upto`
        repeat the last. `step` is the number of entries from one point to the next: 0 where the
        argument is not batched.
        """
        kind = ir.IntType(8 * size)
        types = [PTR, PTR, I64, I64, I64, I64, I64, I64]
        stage, b, args = self._function(f"veenv_stage{size}", VOID, types)
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
        unstage, b, args = self._function(f"veenv_unstage{size}", VOID, types[:6])
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
        function, b, args = self._function(
            "veenv_run", VOID, [PTR, PTR, PTR, PTR, I64, I64, PTR]
        )
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
            b.call(_typed(b, body, body_type), [tables, out_table, vectors])
            self._copy_out(b, entry, outs, (first, count, full), memory)
        b.ret_void()
        return function

    def _record(self, b: Code, entry: Any, table: int, k: Any) -> Any:
        """The record of a leaf."""
        return b.gep(b.field(entry, table, PTR), [b.mul(k, word(LEAF_WORDS))], source_etype=I64)

    def _leaf(self, b: Code, record: Any) -> tuple[Any, Any, Any]:
        """Entries, bytes an entry and staging offset of a leaf."""
        return b.field(record, _SIZE), b.field(record, _BYTES), b.field(record, _OFFSET)

    def _direct(self, b: Code, record: Any, full: Any) -> Any:
        """Whether the kernel reads or writes a leaf where it is."""
        single = b.icmp_signed("==", b.field(record, _SIZE), word(1))
        allowed = b.icmp_signed("!=", b.field(record, _IN_PLACE), word(0))
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
        self, b: Code, entry: Any, ins: Any, steps: Any, span: Any, memory: Any, table: Any, stream: Any
    ) -> None:
        start, first, count, full = span
        tile = b.field(entry, TILE)
        with b.loop(word(0), b.field(entry, NUM_IN)) as k:
            record = self._record(b, entry, INS, k)
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
            record = self._record(b, entry, OUTS, k)
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
            record = self._record(b, entry, OUTS, k)
            size, bytes_, offset = self._leaf(b, record)
            with b.if_then(b.not_(self._direct(b, record, full))):
                copied = [b.item(outs, k, PTR), b.far(memory, offset), size, tile, first, count]
                self._by_size(b, self.unstage, bytes_, copied)

    def _work(self) -> ir.Function:
        """Takes chunks of a shared batch until none is left."""
        function, b, (shared,) = self._function("veenv_work", VOID, [PTR])
        entry = b.field(shared, SHARED_ENTRY, PTR)
        chunks, chunk = b.field(shared, SHARED_CHUNKS), b.field(shared, SHARED_CHUNK)
        batch = b.field(shared, SHARED_BATCH)
        ins = b.at(shared, 8 * _SHARED_WORDS)
        count = b.field(entry, NUM_IN)
        steps = b.gep(ins, [count], source_etype=I64)
        outs = b.gep(steps, [count], source_etype=I64)
        take, take_end = b.append_basic_block("take"), b.append_basic_block("end")
        doing = b.append_basic_block("doing")
        memory = self._memory(b, entry)
        b.branch(take)
        b.position_at_end(take)
        number = b.atomic_rmw("add", b.at(shared, 8 * SHARED_NEXT), word(1), "acq_rel")
        b.cbranch(b.icmp_signed("<", number, chunks), doing, take_end)
        b.position_at_end(doing)
        first = b.mul(number, chunk)
        b.call(self.run, [entry, ins, steps, outs, first, b.least(b.add(first, chunk), batch), memory[1]])
        b.atomic_rmw("add", b.at(shared, 8 * SHARED_DONE), word(1), "acq_rel")
        b.branch(take)
        b.position_at_end(take_end)
        b.call(self.free, [memory[0]])
        b.ret_void()
        return function

    def _memory(self, b: Code, entry: Any) -> tuple[Any, Any]:
        """A buffer for the staging and the tables: what to free, and its aligned start."""
        tables = b.mul(b.field(entry, STREAMS), word(8))
        raw = b.call(self.malloc, [b.add(b.add(b.field(entry, STAGING), tables), word(64))])
        address = b.and_(b.add(b.ptrtoint(raw, I64), word(63)), word(-64))
        return raw, b.inttoptr(address, PTR)

    def _release(self) -> ir.Function:
        """One user less of a shared record; the last one frees it."""
        function, b, (shared,) = self._function("veenv_release", VOID, [PTR])
        before = b.atomic_rmw("sub", b.at(shared, 8 * SHARED_USERS), word(1), "acq_rel")
        with b.if_then(b.icmp_signed("==", before, word(1))):
            b.call(self.free, [shared])
        b.ret_void()
        return function

    def _task(self) -> ir.Function:
        """What the thread pool runs. One that starts late finds no chunk and touches no code."""
        function, b, (shared,) = self._function("veenv_task", VOID, [PTR])
        taken = b.load_atomic(b.at(shared, 8 * SHARED_NEXT), "acquire", 8, typ=I64)
        with b.if_then(b.icmp_signed("<", taken, b.field(shared, SHARED_CHUNKS))):
            b.call(self.work, [shared])
        b.call(self.release, [shared])
        b.ret_void()
        return function

    def _parallel(self) -> ir.Function:
        """``parallel(frame, shared, helpers)``: works on the batch with tasks of the thread pool.

        The caller takes chunks itself and in the end waits only for chunks that running tasks have
        taken, so that it never waits for a task that has not started.
        """
        function, b, (frame, shared, helpers) = self._function(
            "veenv_parallel", VOID, [PTR, PTR, I64]
        )
        api = b.load(b.at(frame, _FRAME["api"]), typ=PTR)
        schedule = b.load(b.at(api, _API["schedule"]), typ=PTR)
        destroy = b.load(b.at(api, _API["error_destroy"]), typ=PTR)
        record, failed = b.words(5), b.words(3)
        with b.loop(word(0), helpers):
            b.put(record, 0, word(40))
            b.put(record, 1, word(0))
            b.put(record, 2, b.load(b.at(frame, _FRAME["ctx"]), typ=PTR))
            b.put(record, 3, _Callee(self.task, PTR))
            b.put(record, 4, shared)
            b.atomic_rmw("add", b.at(shared, 8 * SHARED_USERS), word(1), "acq_rel")
            error = b.call(_typed(b, schedule, ir.FunctionType(PTR, [PTR])), [record])
            with b.if_then(b.icmp_unsigned("!=", error, ir.Constant(PTR, None))):
                b.put(failed, 0, word(24))
                b.put(failed, 1, word(0))
                b.put(failed, 2, error)
                b.call(_typed(b, destroy, ir.FunctionType(VOID, [PTR])), [failed])
                b.call(self.release, [shared])
        b.call(self.work, [shared])
        wait, end = b.append_basic_block("wait"), b.append_basic_block("end")
        b.branch(wait)
        b.position_at_end(wait)
        b.call(self.sched_yield, [])
        done = b.load_atomic(b.at(shared, 8 * SHARED_DONE), "acquire", 8, typ=I64)
        b.cbranch(b.icmp_signed("<", done, b.field(shared, SHARED_CHUNKS)), wait, end)
        b.position_at_end(end)
        b.ret_void()
        return function

    def _metadata(self, b: Code, frame: Any, stateful: bool) -> None:
        """Answers the query for the API version; returns from the handler where it is one."""
        extension = b.load(b.at(frame, _FRAME["extension"]), typ=PTR)
        null = ir.Constant(PTR, None)
        with b.if_then(b.icmp_unsigned("!=", extension, null)):
            kind = b.load(b.at(extension, 8), typ=I32)
            with b.if_then(b.icmp_signed("==", kind, word(_METADATA, I32))):
                metadata = b.load(b.at(extension, 24), typ=PTR)
                api = b.load(b.at(frame, _FRAME["api"]), typ=PTR)
                b.store(b.load(b.at(api, _API["major"]), typ=I32), b.at(metadata, 24))
                b.store(b.load(b.at(api, _API["minor"]), typ=I32), b.at(metadata, 28))
                b.store(word(0, I32), b.at(metadata, 32))
                if stateful:
                    b.store(b.load(self.type_id, typ=I64), b.at(metadata, 40))
                b.ret(null)

    def _instantiate(self) -> None:
        function, b, (frame,) = self._function("veenv_instantiate", PTR, [PTR])
        self._metadata(b, frame, stateful=True)
        attrs = b.load(b.at(frame, _FRAME["attrs"]), typ=PTR)
        value = b.load(b.at(b.load(attrs, typ=PTR), 8), typ=PTR)
        key = b.load(value, typ=I64)
        found = b.call(self._acquire(), [key])
        null = ir.Constant(PTR, None)
        api = b.load(b.at(frame, _FRAME["api"]), typ=PTR)
        with b.if_then(b.icmp_unsigned("==", found, null)):
            record = b.words(4)
            b.put(record, 0, word(28))
            b.put(record, 1, word(0))
            b.put(record, 2, self.message)
            b.put(record, 3, word(_NOT_FOUND))
            create = b.load(b.at(api, _API["error_create"]), typ=PTR)
            b.ret(b.call(_typed(b, create, ir.FunctionType(PTR, [PTR])), [record]))
        record = self._state_record(b, frame, found)
        set_state = b.load(b.at(api, _API["state_set"]), typ=PTR)
        b.ret(b.call(_typed(b, set_state, ir.FunctionType(PTR, [PTR])), [record]))

    def _state_record(self, b: Code, frame: Any, state: Any) -> Any:
        record = b.words(6)
        b.put(record, 0, word(48))
        b.put(record, 1, word(0))
        b.put(record, 2, b.load(b.at(frame, _FRAME["ctx"]), typ=PTR))
        b.put(record, 3, word(0))  # the stage: instantiate
        b.put(record, 4, self.type_id)
        b.put(record, 5, state)
        return record

    def _acquire(self) -> ir.Function:
        """The entry with a key, with one user more; null where there is none."""
        function, b, (key,) = self._function("veenv_acquire", PTR, [I64])
        null = ir.Constant(PTR, None)
        head, more = b.append_basic_block("head"), b.append_basic_block("more")
        inspect, failed = b.append_basic_block("inspect"), b.append_basic_block("failed")
        first = b.load_atomic(self.head, "acquire", 8, typ=PTR)
        start = b.block
        b.branch(head)
        b.position_at_end(head)
        entry = b.phi(PTR)
        entry.add_incoming(first, start)
        b.cbranch(b.icmp_unsigned("==", entry, null), failed, inspect)
        b.position_at_end(inspect)
        with b.if_then(b.icmp_signed("==", b.field(entry, KEY), key)):
            retry = b.append_basic_block("retry")
            b.branch(retry)
            b.position_at_end(retry)
            users = b.load_atomic(b.at(entry, 8 * USERS), "acquire", 8, typ=I64)
            with b.if_then(b.icmp_signed(">=", users, word(0))):
                new = b.add(users, word(1))
                swap = b.cmpxchg(b.at(entry, 8 * USERS), users, new, "acq_rel", "acquire")
                kept = b.append_basic_block("kept")
                b.cbranch(b.extract_value(swap, 1), kept, retry)
                b.position_at_end(kept)
                with b.if_then(b.icmp_signed("==", b.field(entry, KEY), key)):
                    b.ret(entry)
                b.atomic_rmw("sub", b.at(entry, 8 * USERS), word(1), "acq_rel")
        b.branch(more)
        b.position_at_end(more)
        entry.add_incoming(b.field(entry, NEXT, PTR), more)
        b.branch(head)
        b.position_at_end(failed)
        b.ret(null)
        return function

    def _deleter(self) -> None:
        """An executable is gone: its entry has one user less."""
        _, b, (entry,) = self._function("veenv_delete_state", VOID, [PTR])
        b.atomic_rmw("sub", b.at(entry, 8 * USERS), word(1), "acq_rel")
        b.ret_void()

    def _retire(self) -> None:
        """Marks an entry without users as free; says whether it did."""
        _, b, (entry,) = self._function("veenv_retire", I32, [PTR])
        swap = b.cmpxchg(b.at(entry, 8 * USERS), word(0), word(-1), "acq_rel", "acquire")
        b.ret(b.zext(b.extract_value(swap, 1), I32))

    def _execute(self) -> None:
        _, b, (frame,) = self._function("veenv_execute", PTR, [PTR])
        self._metadata(b, frame, stateful=False)
        null = ir.Constant(PTR, None)
        api = b.load(b.at(frame, _FRAME["api"]), typ=PTR)
        record = self._state_record(b, frame, null)
        get_state = b.load(b.at(api, _API["state_get"]), typ=PTR)
        error = b.call(_typed(b, get_state, ir.FunctionType(PTR, [PTR])), [record])
        with b.if_then(b.icmp_unsigned("!=", error, null)):
            b.ret(error)
        entry = b.field(record, 5, PTR)
        shared = self._shared(b, frame, entry)
        batch, least = b.field(shared, SHARED_BATCH), b.field(entry, CHUNK)
        threads = b.words(1)
        b.store(word(1), threads)
        with b.if_then(b.icmp_signed(">=", batch, b.mul(least, word(2)))):
            self._ask_threads(b, frame, threads)
        count = b.most(b.load(threads, typ=I64), word(1))
        chunk = b.udiv(batch, b.mul(count, word(4)))
        chunk = b.select(b.icmp_signed("==", count, word(1)), batch, b.most(chunk, least))
        tile = b.field(entry, TILE)
        chunk = b.mul(b.udiv(b.sub(b.add(chunk, tile), word(1)), tile), tile)
        chunk = b.most(chunk, tile)
        chunks = b.udiv(b.sub(b.add(batch, chunk), word(1)), chunk)
        b.put(shared, SHARED_CHUNK, chunk)
        b.put(shared, SHARED_CHUNKS, chunks)
        with b.if_then(b.icmp_signed(">", chunks, word(0))):
            helpers = b.sub(b.least(count, chunks), word(1))
            b.call(self.parallel, [frame, shared, helpers])
        b.call(self.release, [shared])
        b.ret(null)

    def _ask_threads(self, b: Code, frame: Any, threads: Any) -> None:
        """How many threads the pool has; an error means one."""
        api = b.load(b.at(frame, _FRAME["api"]), typ=PTR)
        record = b.words(4)
        b.put(record, 0, word(32))
        b.put(record, 1, word(0))
        b.put(record, 2, b.load(b.at(frame, _FRAME["ctx"]), typ=PTR))
        b.put(record, 3, threads)
        ask = b.load(b.at(api, _API["num_threads"]), typ=PTR)
        error = b.call(_typed(b, ask, ir.FunctionType(PTR, [PTR])), [record])
        with b.if_then(b.icmp_unsigned("!=", error, ir.Constant(PTR, None))):
            destroy = b.load(b.at(api, _API["error_destroy"]), typ=PTR)
            b.put(record, 0, word(24))
            b.put(record, 2, error)
            b.call(_typed(b, destroy, ir.FunctionType(VOID, [PTR])), [record])
            b.store(word(1), threads)

    def _shared(self, b: Code, frame: Any, entry: Any) -> Any:
        """A record of the call: the buffers, and what the chunks need."""
        num_in, num_out = b.field(entry, NUM_IN), b.field(entry, NUM_OUT)
        words = b.add(b.add(num_in, num_in), b.add(num_out, word(_SHARED_WORDS)))
        shared = b.call(self.malloc, [b.mul(words, word(8))])
        ins = b.at(shared, 8 * _SHARED_WORDS)
        steps = b.gep(ins, [num_in], source_etype=I64)
        outs = b.gep(steps, [num_in], source_etype=I64)
        args = b.load(b.at(frame, _FRAME["args"]), typ=PTR)
        rets = b.load(b.at(frame, _FRAME["rets"]), typ=PTR)
        with b.loop(word(0), num_in) as k:
            buffer = b.item(args, k, PTR)
            record = self._record(b, entry, INS, k)
            size = b.field(record, _SIZE)
            b.put(ins, k, b.field(buffer, 3, PTR))
            batched = b.icmp_signed(">", b.field(buffer, 4), b.field(record, _RANK))
            b.put(steps, k, b.select(batched, size, word(0)))
        with b.loop(word(0), num_out) as k:
            b.put(outs, k, b.field(b.item(rets, k, PTR), 3, PTR))
        result = b.load(rets, typ=PTR)
        dims = b.field(result, 5, PTR)
        front = b.sub(b.field(result, 4), b.field(b.field(entry, OUTS, PTR), _RANK))
        batch = b.words(1)
        b.store(word(1), batch)
        with b.loop(word(0), front) as k:
            b.store(b.mul(b.load(batch, typ=I64), b.item(dims, k)), batch)
        b.put(shared, SHARED_NEXT, word(0))
        b.put(shared, SHARED_DONE, word(0))
        b.put(shared, SHARED_USERS, word(1))
        b.put(shared, SHARED_BATCH, b.load(batch, typ=I64))
        b.put(shared, SHARED_ENTRY, entry)
        return shared


class _Callee:
    """A pointer that is called as a function of a type, which opaque pointers do not say."""

    def __init__(self, pointer: Any, kind: ir.FunctionType):
        self.function_type = kind
        self.type = PTR
        self.get_reference = pointer.get_reference


def _typed(b: Code, pointer: Any, kind: ir.FunctionType) -> Any:
    """A function pointer that can be called as a function of a type."""
    del b
    return _Callee(pointer, kind)
