"""What XLA calls, as LLVM IR: the handlers of its FFI, which all kernels share.

A kernel is a `body` function and an *entry*, a record in a list. *Instantiate* runs when an
executable is made: it finds the entry by the key in the call's attributes, counts itself as a user
and leaves the entry as the call's state; when the executable goes, XLA deletes the state and the
entry has a user less. *Execute* splits the batch into chunks for the runtime's thread pool.

The list has a lock of its own, which is held for a few instructions and by nobody who runs Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from veenv.kernel.cpu import ffi, tiles
from veenv.kernel.cpu.ffi import CallFrame, Metadata, Metadata_Extension, Version
from veenv.kernel.cpu.memory import LARGE_PAGE, MADV_HUGEPAGE, OWN_MAPPING, may_advise
from veenv.kernel.cpu.tiles import I1, I32, I64, NULL, PTR, VOID, Callee, Code, word

SHARED_TAKEN, SHARED_DONE, SHARED_USERS, SHARED_CHUNKS, SHARED_CHUNK, SHARED_BATCH = range(6)
SHARED_ENTRY, SHARED_SHARES, SHARED_HELPERS, SHARED_ASKED = range(6, 10)
SHARED_STEPS, SHARED_OUTS, SHARED_MEMORY = range(10, 13)
SHARED_WORDS = 13
LINE = 64
"""Bytes of a line of the cache."""


class Sharing(tiles.Tiles):
    """Builds ``veenv_parallel``.

    Attributes:
      parallel: ``parallel(frame, shared, helpers, memory)``: computes a batch, with so many tasks;
        the caller's own buffer is freed.
      release: ``release(shared)``: one user less of a shared record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.malloc = self.extern("malloc", PTR, [I64])
        self.lines = self.extern("aligned_alloc", PTR, [I64, I64])
        self.free = self.extern("free", VOID, [PTR])
        self.sched_yield = self.extern("sched_yield", I32, [])
        self.work = self._work()
        self.release = self._release()
        self.task = self._task()
        self.parallel = self._parallel()

    def _work(self) -> ir.Function:
        """``work(shared, own, memory)``: takes chunks until none is left, first its own."""
        function, b, (shared, own, memory) = self.function("veenv_work", VOID, [PTR, I64, PTR])
        entry = b.field(shared, SHARED_ENTRY, PTR)
        chunks, chunk = b.field(shared, SHARED_CHUNKS), b.field(shared, SHARED_CHUNK)
        batch, shares = b.field(shared, SHARED_BATCH), b.field(shared, SHARED_SHARES)
        ins = b.at(shared, 8 * SHARED_WORDS)
        steps, outs = b.field(shared, SHARED_STEPS, PTR), b.field(shared, SHARED_OUTS, PTR)
        asked = b.field(shared, SHARED_ASKED, PTR)
        with b.loop(own, b.add(own, shares)) as turn:
            share = b.urem(turn, shares)
            begin = b.udiv(b.mul(share, chunks), shares)
            end = b.udiv(b.mul(b.add(share, word(1)), chunks), shares)
            next_ = b.gep(asked, [share], source_etype=I64)
            take, taken = b.append_basic_block("take"), b.append_basic_block("taken")
            doing = b.append_basic_block("doing")
            b.branch(take)
            b.position_at_end(take)
            number = b.add(begin, b.atomic_rmw("add", next_, word(1), "acq_rel"))
            b.cbranch(b.icmp_signed("<", number, end), doing, taken)
            b.position_at_end(doing)
            b.atomic_rmw("add", b.at(shared, 8 * SHARED_TAKEN), word(1), "acq_rel")
            first = b.mul(number, chunk)
            last = b.least(b.add(first, chunk), batch)
            b.call(self.run, [entry, ins, steps, outs, first, last, memory])
            b.atomic_rmw("add", b.at(shared, 8 * SHARED_DONE), word(1), "acq_rel")
            b.branch(take)
            b.position_at_end(taken)
        b.call(self.free, [memory])
        b.ret_void()
        return function

    def memory(self, b: Code, bytes_: Any) -> Any:
        """The memory of one who works; null where there is none."""
        return b.call(self.lines, [word(LINE), bytes_])

    def _release(self) -> ir.Function:
        """One user less of a shared record; the last one frees it."""
        function, b, (shared,) = self.function("veenv_release", VOID, [PTR])
        before = b.atomic_rmw("sub", b.at(shared, 8 * SHARED_USERS), word(1), "acq_rel")
        with b.if_then(b.icmp_signed("==", before, word(1))):
            b.call(self.free, [shared])
        b.ret_void()
        return function

    def _task(self) -> ir.Function:
        """What the thread pool runs. One that starts late finds no chunk and touches no code."""
        function, b, (shared,) = self.function("veenv_task", VOID, [PTR])
        taken = b.load_atomic(b.at(shared, 8 * SHARED_TAKEN), "acquire", 8, typ=I64)
        with b.if_then(b.icmp_signed("<", taken, b.field(shared, SHARED_CHUNKS))):
            memory = self.memory(b, b.field(shared, SHARED_MEMORY))
            with b.if_then(b.icmp_unsigned("!=", memory, NULL)):  # the caller has its own
                others = b.atomic_rmw("add", b.at(shared, 8 * SHARED_HELPERS), word(1), "acq_rel")
                b.call(self.work, [shared, b.add(others, word(1)), memory])
        b.call(self.release, [shared])
        b.ret_void()
        return function

    def _parallel(self) -> ir.Function:
        """``parallel(frame, shared, helpers, memory)``: works on the batch, the pool's tasks help.

        The caller takes chunks itself and in the end waits only for chunks that running tasks have
        taken, so that it never waits for a task that has not started.
        """
        types = [PTR, PTR, I64, PTR]
        function, b, (frame, shared, helpers, memory) = self.function("veenv_parallel", VOID, types)
        ctx, task = b.read(frame, CallFrame.ctx), Callee(self.task, self.task.function_type)
        with b.loop(word(0), helpers):
            b.atomic_rmw("add", b.at(shared, 8 * SHARED_USERS), word(1), "acq_rel")
            error, _ = b.ask(frame, "ThreadPool_Schedule", ctx=ctx, task=task, data=shared)
            with b.if_then(b.not_(b.is_fine(frame, error))):
                b.call(self.release, [shared])
        b.call(self.work, [shared, word(0), memory])
        look, wait, end = (b.append_basic_block(name) for name in ("look", "wait", "end"))
        b.branch(look)
        b.position_at_end(look)
        done = b.load_atomic(b.at(shared, 8 * SHARED_DONE), "acquire", 8, typ=I64)
        b.cbranch(b.icmp_signed("<", done, b.field(shared, SHARED_CHUNKS)), wait, end)
        b.position_at_end(wait)
        b.call(self.sched_yield, [])
        b.branch(look)
        b.position_at_end(end)
        b.ret_void()
        return function


_UNKNOWN = (
    "the code of a fused veenv kernel is not in this process: it was compiled in another one, or "
    "its program was lowered long ago; trace and lower the function again (jax.clear_caches())"
)
_NO_MEMORY = "no memory is left for the buffers of a fused veenv kernel"


class Driver(Sharing):
    """Builds the module."""

    def __init__(self) -> None:
        super().__init__()
        self.head = self.variable("veenv_entries", PTR, NULL)
        self.lock = self.variable("veenv_lock", I64, word(0))
        self.type_id = self.variable("veenv_type_id", I64, word(0))
        self.version = self.variable("veenv_version", I64, word(-1))
        self.unknown = self.text("veenv_unknown", _UNKNOWN)
        self.no_memory = self.text("veenv_no_memory", _NO_MEMORY)
        self.advise = self._advise() if may_advise() else None
        self.find = self._find()
        self._insert()
        self._remove()
        self._delete()
        self._instantiate()
        self._execute()

    def _metadata(self, b: Code, frame: Any, stateful: bool) -> None:
        """Answers the query for the API version; returns from the handler where it is one."""
        extension = b.read(frame, CallFrame.extension_start)
        with b.if_then(b.icmp_unsigned("!=", extension, NULL)):
            kind = b.read(extension, Metadata_Extension.type, I32)
            with b.if_then(b.icmp_signed("==", kind, word(ffi.METADATA, I32))):
                asked = b.at(b.read(frame, CallFrame.api), ffi.Api.api_version.offset)
                major = b.read(asked, Version.major_version, I32)
                minor = b.read(asked, Version.minor_version, I32)
                both = b.or_(b.shl(b.zext(major, I64), word(32)), b.zext(minor, I64))
                b.store(both, self.version)
                known: Any = word(0, I1)
                for one, other in ffi.TESTED:
                    known = b.or_(known, b.icmp_signed("==", both, word(one << 32 | other)))
                metadata = b.read(extension, Metadata_Extension.metadata)
                said = b.at(metadata, Metadata.api_version.offset)
                b.store(major, b.at(said, Version.major_version.offset))
                minor = b.select(known, minor, word(-1, I32))  # which XLA refuses
                b.store(minor, b.at(said, Version.minor_version.offset))
                b.store(word(0, I32), b.at(metadata, Metadata.traits.offset))
                if stateful:
                    state = b.at(metadata, Metadata.state_type_id.offset)
                    b.store(b.load(self.type_id, typ=I64), state)
                b.ret(NULL)

    def _error(self, b: Code, frame: Any, message: Any, code: int) -> None:
        """Returns from a handler with an error."""
        b.ret(b.ask(frame, "Error_Create", message=message, errc=word(code, I32))[0])

    @contextmanager
    def _locked(self, b: Code) -> Iterator[None]:
        """Holds the list's lock."""
        wait, go = b.append_basic_block("wait"), b.append_basic_block("go")
        b.branch(wait)
        b.position_at_end(wait)
        b.call(self.sched_yield, [])
        before = b.atomic_rmw("xchg", self.lock, word(1), "acquire")
        b.cbranch(b.icmp_signed("==", before, word(0)), go, wait)
        b.position_at_end(go)
        yield
        b.atomic_rmw("xchg", self.lock, word(0), "release")

    def _find(self) -> ir.Function:
        """``find(key)``: where the address of an entry is in the list, or would be."""
        function, b, (key,) = self.function("veenv_find", PTR, [I64])
        look, more, end = (b.append_basic_block(name) for name in ("look", "more", "end"))
        start = b.block
        b.branch(look)
        b.position_at_end(look)
        place = b.phi(PTR)
        place.add_incoming(self.head, start)
        entry = b.load(place, typ=PTR)
        b.cbranch(b.icmp_unsigned("==", entry, NULL), end, more)
        b.position_at_end(more)
        place.add_incoming(b.at(entry, 8 * tiles.NEXT), more)
        b.cbranch(b.icmp_signed("==", b.field(entry, tiles.KEY), key), end, look)
        b.position_at_end(end)
        b.ret(place)
        return function

    def _insert(self) -> None:
        """``insert(entry)``: puts an entry in the list if none is there with its key."""
        _, b, (entry,) = self.function("veenv_insert", VOID, [PTR])
        with self._locked(b):
            place = b.call(self.find, [b.field(entry, tiles.KEY)])
            with b.if_then(b.icmp_unsigned("==", b.load(place, typ=PTR), NULL)):
                b.put(entry, tiles.NEXT, word(0))
                b.store(entry, place)
        b.ret_void()

    def _remove(self) -> None:
        """``remove(entry)``: takes an entry without users from the list; says whether it is out."""
        _, b, (entry,) = self.function("veenv_remove", I32, [PTR])
        with self._locked(b):
            users = b.load_atomic(b.at(entry, 8 * tiles.USERS), "acquire", 8, typ=I64)
            unused = b.icmp_signed("==", users, word(0))
            with b.if_then(unused):
                place = b.call(self.find, [b.field(entry, tiles.KEY)])
                with b.if_then(b.icmp_unsigned("==", b.load(place, typ=PTR), entry)):
                    b.store(b.field(entry, tiles.NEXT, PTR), place)
        b.ret(b.zext(unused, I32))

    def _delete(self) -> None:
        """An executable is gone: its entry has one user less."""
        _, b, (entry,) = self.function("veenv_delete_state", VOID, [PTR])
        b.atomic_rmw("sub", b.at(entry, 8 * tiles.USERS), word(1), "acq_rel")
        b.ret_void()

    def _instantiate(self) -> None:
        _, b, (frame,) = self.function("veenv_instantiate", PTR, [PTR])
        self._metadata(b, frame, stateful=True)
        attributes = b.read(b.at(frame, CallFrame.attrs.offset), ffi.Attrs.attrs)
        key = b.load(b.field(b.load(attributes, typ=PTR), 1, PTR), typ=I64)
        with self._locked(b):
            entry = b.load(b.call(self.find, [key]), typ=PTR)
            with b.if_then(b.icmp_unsigned("!=", entry, NULL)):
                b.atomic_rmw("add", b.at(entry, 8 * tiles.USERS), word(1), "acq_rel")
        with b.if_then(b.icmp_unsigned("==", entry, NULL)):
            self._error(b, frame, self.unknown, ffi.NOT_FOUND)
        b.ret(b.ask(frame, "State_Set", **self._state(b, frame, entry))[0])

    def _state(self, b: Code, frame: Any, state: Any) -> dict[str, Any]:
        """What names the state that instantiating leaves."""
        ctx, stage = b.read(frame, CallFrame.ctx), word(0, I32)
        return {"ctx": ctx, "stage": stage, "type_id": self.type_id, "state": state}

    def _execute(self) -> None:
        _, b, (frame,) = self.function("veenv_execute", PTR, [PTR])
        self._metadata(b, frame, stateful=False)
        error, found = b.ask(frame, "State_Get", **self._state(b, frame, NULL))
        with b.if_then(b.icmp_unsigned("!=", error, NULL)):
            b.ret(error)
        entry = b.read(found, ffi.CALLS["State_Get"].state)
        batch, least = self._batch(b, frame, entry), b.field(entry, tiles.CHUNK)
        threads = b.words(1)
        b.store(word(1), threads)
        with b.if_then(b.icmp_signed(">=", batch, b.mul(least, word(2)))):
            ctx = b.read(frame, CallFrame.ctx)
            error, _ = b.ask(frame, "ThreadPool_NumThreads", ctx=ctx, num_threads=threads)
            with b.if_then(b.not_(b.is_fine(frame, error))):
                b.store(word(1), threads)
        count = b.most(b.load(threads, typ=I64), word(1))
        chunk = b.udiv(batch, b.mul(count, word(4)))
        chunk = b.select(b.icmp_signed("==", count, word(1)), batch, b.most(chunk, least))
        lanes = b.field(entry, tiles.LANES)
        chunk = b.mul(b.udiv(b.sub(b.add(chunk, lanes), word(1)), lanes), lanes)
        chunks = b.udiv(b.sub(b.add(batch, chunk), word(1)), chunk)
        shares = b.least(count, chunks)
        with b.if_then(b.icmp_signed(">", shares, word(0))):
            shared = self._shared(b, frame, entry, batch, shares)
            memory = self.memory(b, b.field(entry, tiles.MEMORY))
            with b.if_then(b.icmp_unsigned("==", memory, NULL)):
                b.call(self.free, [shared])
                self._error(b, frame, self.no_memory, ffi.RESOURCE_EXHAUSTED)
            b.put(shared, SHARED_BATCH, batch)
            b.put(shared, SHARED_CHUNK, chunk)
            b.put(shared, SHARED_CHUNKS, chunks)
            b.call(self.parallel, [frame, shared, b.sub(shares, word(1)), memory])
            b.call(self.release, [shared])
        b.ret(NULL)

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
        rets = b.read(b.at(frame, CallFrame.rets.offset), ffi.Rets.rets)
        result = b.load(rets, typ=PTR)
        dims = b.read(result, ffi.Buffer.dims)
        rank = b.field(b.field(entry, tiles.OUTS, PTR), tiles.RANK)
        front = b.sub(b.read(result, ffi.Buffer.rank, I64), rank)
        batch = b.words(1)
        b.store(word(1), batch)
        with b.loop(word(0), front) as k:
            b.store(b.mul(b.load(batch, typ=I64), b.item(dims, k)), batch)
        return b.load(batch, typ=I64)

    def _shared(self, b: Code, frame: Any, entry: Any, batch: Any, shares: Any) -> Any:
        """A record of the call: the buffers, and what the chunks need."""
        num_in, num_out = b.field(entry, tiles.NUM_IN), b.field(entry, tiles.NUM_OUT)
        before = b.add(b.add(num_in, num_in), b.add(num_out, word(SHARED_WORDS)))
        shared = b.call(self.malloc, [b.mul(b.add(before, shares), word(8))])
        with b.if_then(b.icmp_unsigned("==", shared, NULL)):
            self._error(b, frame, self.no_memory, ffi.RESOURCE_EXHAUSTED)
        ins = b.at(shared, 8 * SHARED_WORDS)
        steps = b.gep(ins, [num_in], source_etype=I64)
        outs = b.gep(steps, [num_in], source_etype=I64)
        args = b.read(b.at(frame, CallFrame.args.offset), ffi.Args.args)
        rets = b.read(b.at(frame, CallFrame.rets.offset), ffi.Rets.rets)
        with b.loop(word(0), num_in) as k:
            buffer = b.item(args, k, PTR)
            record = self.record(b, entry, tiles.INS, k)
            b.put(ins, k, b.read(buffer, ffi.Buffer.data))
            rank = b.read(buffer, ffi.Buffer.rank, I64)
            b.put(steps, k, b.zext(b.icmp_signed(">", rank, b.field(record, tiles.RANK)), I64))
        with b.loop(word(0), num_out) as k:
            data = b.read(b.item(rets, k, PTR), ffi.Buffer.data)
            b.put(outs, k, data)
            if self.advise is not None:
                bytes_ = b.mul(batch, b.field(self.record(b, entry, tiles.OUTS, k), tiles.BYTES))
                b.call(self.advise, [data, bytes_])
        asked = b.gep(shared, [before], source_etype=I64)
        with b.loop(word(0), shares) as k:
            b.put(asked, k, word(0))
        memory = b.field(entry, tiles.MEMORY)
        for number, value in {
            SHARED_TAKEN: word(0), SHARED_DONE: word(0),
            SHARED_HELPERS: word(0), SHARED_USERS: word(1),
            SHARED_SHARES: shares, SHARED_ENTRY: entry,
            SHARED_STEPS: steps, SHARED_OUTS: outs, SHARED_ASKED: asked,
            SHARED_MEMORY: memory,
        }.items():  # fmt: skip
            b.put(shared, number, value)
        return shared
