"""What XLA calls, as LLVM IR: the handlers of its FFI, which all kernels share.

A kernel is a `body` function and an *entry*, a record in memory that does not move. *Instantiate*
runs when an executable is made: it finds the entry by the key in the call's attributes, counts
itself as a user and leaves the entry as the call's state; when the executable goes, XLA deletes the
state and the entry has a user less. *Execute* splits the batch into chunks for the runtime's
thread pool.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from veenv.kernel.cpu import sharing, tiles
from veenv.kernel.cpu.ffi import API, FRAME
from veenv.kernel.cpu.memory import LARGE_PAGE, MADV_HUGEPAGE, OWN_MAPPING, may_advise
from veenv.kernel.cpu.module import I32, I64, PTR, VOID, Code, typed, word

_METADATA = 1
_NOT_FOUND = 5

_MESSAGE = (
    "the code of a fused veenv kernel is not in this process: it was compiled in another one, or "
    "its program was lowered long ago; trace and lower the function again (jax.clear_caches())"
)


class Driver(sharing.Sharing):
    """Builds the module."""

    def __init__(self) -> None:
        super().__init__()
        self.head = self.variable("veenv_entries", PTR, ir.Constant(PTR, None))
        self.type_id = self.variable("veenv_type_id", I64, word(0))
        self.message = self.text("veenv_message", _MESSAGE)
        self.advise = self._advise() if may_advise() else None
        self._instantiate()
        self._deleter()
        self._retire()
        self._execute()

    def _metadata(self, b: Code, frame: Any, stateful: bool) -> None:
        """Answers the query for the API version; returns from the handler where it is one."""
        extension = b.load(b.at(frame, FRAME["extension"]), typ=PTR)
        null = ir.Constant(PTR, None)
        with b.if_then(b.icmp_unsigned("!=", extension, null)):
            kind = b.load(b.at(extension, 8), typ=I32)
            with b.if_then(b.icmp_signed("==", kind, word(_METADATA, I32))):
                metadata = b.load(b.at(extension, 24), typ=PTR)
                api = b.load(b.at(frame, FRAME["api"]), typ=PTR)
                b.store(b.load(b.at(api, API["major"]), typ=I32), b.at(metadata, 24))
                b.store(b.load(b.at(api, API["minor"]), typ=I32), b.at(metadata, 28))
                b.store(word(0, I32), b.at(metadata, 32))
                if stateful:
                    b.store(b.load(self.type_id, typ=I64), b.at(metadata, 40))
                b.ret(null)

    def _instantiate(self) -> None:
        _, b, (frame,) = self.function("veenv_instantiate", PTR, [PTR])
        self._metadata(b, frame, stateful=True)
        attrs = b.load(b.at(frame, FRAME["attrs"]), typ=PTR)
        value = b.load(b.at(b.load(attrs, typ=PTR), 8), typ=PTR)
        key = b.load(value, typ=I64)
        found = b.call(self._acquire(), [key])
        null = ir.Constant(PTR, None)
        api = b.load(b.at(frame, FRAME["api"]), typ=PTR)
        with b.if_then(b.icmp_unsigned("==", found, null)):
            record = b.words(4)
            b.put(record, 0, word(28))
            b.put(record, 1, word(0))
            b.put(record, 2, self.message)
            b.put(record, 3, word(_NOT_FOUND))
            create = b.load(b.at(api, API["error_create"]), typ=PTR)
            b.ret(b.call(typed(b, create, ir.FunctionType(PTR, [PTR])), [record]))
        record = self._state_record(b, frame, found)
        set_state = b.load(b.at(api, API["state_set"]), typ=PTR)
        b.ret(b.call(typed(b, set_state, ir.FunctionType(PTR, [PTR])), [record]))

    def _state_record(self, b: Code, frame: Any, state: Any) -> Any:
        record = b.words(6)
        b.put(record, 0, word(48))
        b.put(record, 1, word(0))
        b.put(record, 2, b.load(b.at(frame, FRAME["ctx"]), typ=PTR))
        b.put(record, 3, word(0))  # the stage: instantiate
        b.put(record, 4, self.type_id)
        b.put(record, 5, state)
        return record

    def _acquire(self) -> ir.Function:
        """The entry with a key, with one user more; null where there is none."""
        function, b, (key,) = self.function("veenv_acquire", PTR, [I64])
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
        with b.if_then(b.icmp_signed("==", b.field(entry, tiles.KEY), key)):
            retry = b.append_basic_block("retry")
            b.branch(retry)
            b.position_at_end(retry)
            users = b.load_atomic(b.at(entry, 8 * tiles.USERS), "acquire", 8, typ=I64)
            with b.if_then(b.icmp_signed(">=", users, word(0))):
                new = b.add(users, word(1))
                swap = b.cmpxchg(b.at(entry, 8 * tiles.USERS), users, new, "acq_rel", "acquire")
                kept = b.append_basic_block("kept")
                b.cbranch(b.extract_value(swap, 1), kept, retry)
                b.position_at_end(kept)
                with b.if_then(b.icmp_signed("==", b.field(entry, tiles.KEY), key)):
                    b.ret(entry)
                b.atomic_rmw("sub", b.at(entry, 8 * tiles.USERS), word(1), "acq_rel")
        b.branch(more)
        b.position_at_end(more)
        entry.add_incoming(b.field(entry, tiles.NEXT, PTR), more)
        b.branch(head)
        b.position_at_end(failed)
        b.ret(null)
        return function

    def _deleter(self) -> None:
        """An executable is gone: its entry has one user less."""
        _, b, (entry,) = self.function("veenv_delete_state", VOID, [PTR])
        b.atomic_rmw("sub", b.at(entry, 8 * tiles.USERS), word(1), "acq_rel")
        b.ret_void()

    def _retire(self) -> None:
        """Marks an entry without users as free; says whether it did."""
        _, b, (entry,) = self.function("veenv_retire", I32, [PTR])
        swap = b.cmpxchg(b.at(entry, 8 * tiles.USERS), word(0), word(-1), "acq_rel", "acquire")
        b.ret(b.zext(b.extract_value(swap, 1), I32))

    def _execute(self) -> None:
        _, b, (frame,) = self.function("veenv_execute", PTR, [PTR])
        self._metadata(b, frame, stateful=False)
        null = ir.Constant(PTR, None)
        api = b.load(b.at(frame, FRAME["api"]), typ=PTR)
        record = self._state_record(b, frame, null)
        get_state = b.load(b.at(api, API["state_get"]), typ=PTR)
        error = b.call(typed(b, get_state, ir.FunctionType(PTR, [PTR])), [record])
        with b.if_then(b.icmp_unsigned("!=", error, null)):
            b.ret(error)
        entry = b.field(record, 5, PTR)
        batch, least = self._batch(b, frame, entry), b.field(entry, tiles.CHUNK)
        threads = b.words(1)
        b.store(word(1), threads)
        with b.if_then(b.icmp_signed(">=", batch, b.mul(least, word(2)))):
            self._ask_threads(b, frame, threads)
        count = b.most(b.load(threads, typ=I64), word(1))
        chunk = b.udiv(batch, b.mul(count, word(4)))
        chunk = b.select(b.icmp_signed("==", count, word(1)), batch, b.most(chunk, least))
        lanes = b.field(entry, tiles.LANES)
        chunk = b.mul(b.udiv(b.sub(b.add(chunk, lanes), word(1)), lanes), lanes)
        chunks = b.udiv(b.sub(b.add(batch, chunk), word(1)), chunk)
        shares = b.least(count, chunks)
        with b.if_then(b.icmp_signed(">", shares, word(0))):
            shared = self._shared(b, frame, entry, batch, shares)
            b.put(shared, sharing.SHARED_BATCH, batch)
            b.put(shared, sharing.SHARED_CHUNK, chunk)
            b.put(shared, sharing.SHARED_CHUNKS, chunks)
            b.call(self.parallel, [frame, shared, b.sub(shares, word(1))])
            b.call(self.release, [shared])
        b.ret(null)

    def _ask_threads(self, b: Code, frame: Any, threads: Any) -> None:
        """How many threads the pool has; an error means one."""
        api = b.load(b.at(frame, FRAME["api"]), typ=PTR)
        record = b.words(4)
        b.put(record, 0, word(32))
        b.put(record, 1, word(0))
        b.put(record, 2, b.load(b.at(frame, FRAME["ctx"]), typ=PTR))
        b.put(record, 3, threads)
        ask = b.load(b.at(api, API["num_threads"]), typ=PTR)
        error = b.call(typed(b, ask, ir.FunctionType(PTR, [PTR])), [record])
        with b.if_then(b.icmp_unsigned("!=", error, ir.Constant(PTR, None))):
            destroy = b.load(b.at(api, API["error_destroy"]), typ=PTR)
            b.put(record, 0, word(24))
            b.put(record, 2, error)
            b.call(typed(b, destroy, ir.FunctionType(VOID, [PTR])), [record])
            b.store(word(1), threads)

    def _advise(self) -> ir.Function:
        """``advise(data, bytes)``: a result that is a mapping of its own gets large pages."""
        function, b, (data, bytes_) = self.function("veenv_advise", VOID, [PTR, I64])
        madvise = self.extern("madvise", I32, [PTR, I64, I32])
        with b.if_then(b.icmp_unsigned(">=", bytes_, word(OWN_MAPPING))):
            start = b.ptrtoint(data, I64)
            first = b.and_(b.add(start, word(LARGE_PAGE - 1)), word(-LARGE_PAGE))
            end = b.and_(b.add(start, bytes_), word(-LARGE_PAGE))
            b.call(madvise, [b.inttoptr(first, PTR), b.sub(end, first), word(MADV_HUGEPAGE, I32)])
        b.ret_void()
        return function

    def _batch(self, b: Code, frame: Any, entry: Any) -> Any:
        """The number of points, which the first result has in front of its own axes."""
        result = b.load(b.load(b.at(frame, FRAME["rets"]), typ=PTR), typ=PTR)
        dims = b.field(result, 5, PTR)
        front = b.sub(b.field(result, 4), b.field(b.field(entry, tiles.OUTS, PTR), tiles.RANK))
        batch = b.words(1)
        b.store(word(1), batch)
        with b.loop(word(0), front) as k:
            b.store(b.mul(b.load(batch, typ=I64), b.item(dims, k)), batch)
        return b.load(batch, typ=I64)

    def _shared(self, b: Code, frame: Any, entry: Any, batch: Any, shares: Any) -> Any:
        """A record of the call: the buffers, and what the chunks need."""
        num_in, num_out = b.field(entry, tiles.NUM_IN), b.field(entry, tiles.NUM_OUT)
        before = b.add(b.add(num_in, num_in), b.add(num_out, word(sharing.SHARED_WORDS)))
        shared = b.call(self.malloc, [b.mul(b.add(before, shares), word(8))])
        ins = b.at(shared, 8 * sharing.SHARED_WORDS)
        steps = b.gep(ins, [num_in], source_etype=I64)
        outs = b.gep(steps, [num_in], source_etype=I64)
        args = b.load(b.at(frame, FRAME["args"]), typ=PTR)
        rets = b.load(b.at(frame, FRAME["rets"]), typ=PTR)
        with b.loop(word(0), num_in) as k:
            buffer = b.item(args, k, PTR)
            record = self.record(b, entry, tiles.INS, k)
            b.put(ins, k, b.field(buffer, 3, PTR))
            batched = b.icmp_signed(">", b.field(buffer, 4), b.field(record, tiles.RANK))
            b.put(steps, k, b.zext(batched, I64))
        with b.loop(word(0), num_out) as k:
            data = b.field(b.item(rets, k, PTR), 3, PTR)
            b.put(outs, k, data)
            if self.advise is not None:
                bytes_ = b.mul(batch, b.field(self.record(b, entry, tiles.OUTS, k), tiles.BYTES))
                b.call(self.advise, [data, bytes_])
        asked = b.gep(shared, [before], source_etype=I64)
        b.put(shared, sharing.SHARED_ASKED, asked)
        with b.loop(word(0), shares) as k:
            b.put(asked, k, word(0))
        for number in (sharing.SHARED_TAKEN, sharing.SHARED_DONE, sharing.SHARED_HELPERS):
            b.put(shared, number, word(0))
        b.put(shared, sharing.SHARED_USERS, word(1))
        b.put(shared, sharing.SHARED_SHARES, shares)
        b.put(shared, sharing.SHARED_ENTRY, entry)
        return shared
