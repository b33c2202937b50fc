"""Two threads of a call on one core: a task that begins where its caller runs goes elsewhere.

Linux looks for an idle core when it wakes a thread, but not where all of them have been busy a
moment ago: right after a program on all cores it may wake the pool's thread on the caller's core,
call after call, while the others have nothing to do. Two threads on one core take longer than one.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir

from veenv.kernel.cpu.module import I8, I32, I64, PTR, VOID, Code, SharedModule, word

NO_CORE = -1
"""Where nobody is, on systems that do not tell."""
_SET = 128
"""Bytes of glibc's set of cores."""


class Cores:
    """Emits which core a thread is on, and how it leaves it.

    On other systems than Linux there is nothing to ask, and nobody leaves.

    Args:
      module: what it is part of.
    """

    def __init__(self, module: SharedModule):
        self._module = module
        self._ask: ir.Function | None = None
        if sys.platform.startswith("linux"):
            self._ask = module.extern("sched_getcpu", I32, [])
            self._leave = self._leaving()

    def current(self, b: Code) -> Any:
        """The number of the core that this runs on."""
        return word(NO_CORE) if self._ask is None else b.sext(b.call(self._ask, []), I64)

    def leave(self, b: Code, core: Any) -> None:
        """Goes to another core, if this runs on that one and may run on others."""
        if self._ask is not None:
            with b.if_then(b.icmp_signed("==", self.current(b), core)):
                b.call(self._leave, [core])

    def _leaving(self) -> ir.Function:
        """``leave(core)``: forbids the core, so that the thread is moved, and allows it again."""
        kind = I32, [I32, I64, PTR]
        read = self._module.extern("sched_getaffinity", *kind)
        write = self._module.extern("sched_setaffinity", *kind)
        function, b, (core,) = self._module.function("veenv_leave", VOID, [I64])
        allowed, others = b.words(_SET // 8), b.words(_SET // 8)
        this, size = word(0, I32), word(_SET)
        first, second = (b.call(read, [this, size, cores]) for cores in (allowed, others))
        failed = b.or_(first, second)
        known = b.icmp_signed("==", failed, word(0, I32))
        with b.if_then(b.and_(known, b.icmp_unsigned("<", core, word(8 * _SET)))):
            place = b.far(others, b.udiv(core, word(8)))
            bit = b.shl(word(1, I8), b.trunc(b.urem(core, word(8)), I8))
            b.store(b.and_(b.load(place, typ=I8), b.not_(bit)), place)
            b.call(write, [this, size, others])  # refused where there is no other core
            b.call(write, [this, size, allowed])
        b.ret_void()
        return function
