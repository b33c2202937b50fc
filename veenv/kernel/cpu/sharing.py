"""A batch is shared: chunks of it are taken by the caller and by tasks of XLA's thread pool.

Each begins with a share of successive chunks, the caller always with the first, so that with two
threads a core finds in its cache what it wrote before. Who has none left takes those of the others.

A shared record describes a call: how many chunks were taken and done, who still uses the record,
and after these words the addresses of the arguments, whether each is batched,
the addresses of the results, and how many chunks of each share were asked for. A task that has
taken no chunk reads nothing else: the call may be over, and the kernel's record gone.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from veenv.kernel.cpu import tiles
from veenv.kernel.cpu.ffi import CallFrame
from veenv.kernel.cpu.module import I32, I64, NULL, PTR, VOID, Callee, Code, word

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
