"""How long straight-line code takes on a processor that runs ahead: an estimate of cycles.

Operations enter in order, each takes as long as its weight says, and a result is there some time
later.  A processor goes on meanwhile with what does not need it, but only as far ahead as its
window holds.  Values that do not fit the registers are stored and read again, and a function that
is called leaves none of them.  That is what decides between orders of one program: short lifetimes
spare the registers, and work that is independent fills the time until a result is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf

from veenv.kernel.program import FREE, Op
from veenv.kernel.weights import weight

_REGISTERS = 28
"""Values that are at hand."""
_WINDOW = 512
"""How much work may have been begun after the oldest operation that is not done."""
_LATENCY = 4.0
"""Cycles until the result of an addition or product is there."""
_SLOW = 3.0
"""Cycles until the result of a division, root or function is there, for each of its weight."""
_MOVED = 1.0
"""Cycles that storing a value, or reading it again, takes."""
_READ = 5.0
"""Cycles until a value that was read is there."""
_CHEAP = frozenset({"add", "sub", "mul"})
_INLINE = frozenset({"sin", "cos"})
"""Functions that are computed in place."""


def cycles(ops: Sequence[Op], order: Sequence[int], limit: float = inf) -> float:
    """Estimated cycles of operations in an order.

    Args:
      ops: the operations.
      order: those that are run, each after its arguments.
      limit: how many cycles are of interest; the estimate ends when there are more.

    Example:
      >>> sums = [Op("input", "float32", attr=(0, 0)), Op("add", "float32", (0, 0))]
      >>> cycles(sums, [0, 1])  # a value to be read, then one addition
      10.0
    """
    run = _Run(ops, order)
    for i in order:
        if ops[i].name in FREE:
            run.stored.add(i)
        else:
            run.step(i)
            if run.clock > limit:
                break
    return max(run.clock, run.end)


class _Run:
    """The state of a processor."""

    def __init__(self, ops: Sequence[Op], order: Sequence[int]):
        self.ops = ops
        self.uses: dict[int, list[int]] = {i: [] for i in order}
        """Positions where a value is still to be used, the next one last."""
        for position in range(len(order) - 1, -1, -1):
            for a in set(ops[order[position]].args):
                self.uses[a].append(position)
        self.clock = self.work = self.end = 0.0
        self.ready = dict.fromkeys(order, 0.0)
        self.held: set[int] = set()
        self.stored: set[int] = set()
        self._begun: deque[tuple[float, float]] = deque()
        self._later: list[tuple[int, int]] = []
        """A heap of (-position, value) for the next uses of values that are or were held."""

    def step(self, i: int) -> None:
        """Runs an operation."""
        op = self.ops[i]
        own = float(weight(op.name, op.attr if op.name == "call" else None))
        args, begin = set(op.args), 0.0
        for a in args:
            begin = max(begin, self._read(a))
            self.uses[a].pop()
            if self.ops[a].name != "const":
                self._hold(a)
        if op.name == "call" and op.attr not in _INLINE:
            for value in list(self.held):
                self._drop(value)
        self._spend(own)
        while self._begun and self._begun[0][0] < self.work - _WINDOW:
            self.clock = max(self.clock, self._begun.popleft()[1])
        latency = _LATENCY if op.name in _CHEAP else _SLOW * own
        self.ready[i] = max(self.clock, begin) + latency
        self.end = max(self.end, self.ready[i])
        self._begun.append((self.work, self.end))
        self._hold(i)
        if len(self.held) > _REGISTERS:
            self._drop(self._needed_last())

    def _read(self, a: int) -> float:
        """When an argument is there; it is read again if no register holds it."""
        if a in self.held or self.ops[a].name == "const":
            return self.ready[a]
        self._spend(_MOVED)
        return max(self.clock, self.ready[a]) + _READ

    def _hold(self, value: int) -> None:
        """Keeps a value in a register while it has uses."""
        if self.uses[value]:
            self.held.add(value)
            heappush(self._later, (-self.uses[value][-1], value))
        else:
            self.held.discard(value)

    def _drop(self, value: int) -> None:
        """Frees a register, and stores what it held if that is needed later."""
        self.held.discard(value)
        if value not in self.stored and self.uses[value]:
            self.stored.add(value)
            self._spend(_MOVED)

    def _needed_last(self) -> int:
        """The held value that is used last of all."""
        while True:
            position, value = heappop(self._later)
            if value in self.held and self.uses[value][-1] == -position:
                return value

    def _spend(self, amount: float) -> None:
        self.clock += amount
        self.work += amount
