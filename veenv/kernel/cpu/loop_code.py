"""The code of a loop: carries in registers, what comes and goes by steps in memory.

A loop of known length runs so many times. Others run until the condition is false in all lanes; a
lane in which it is false keeps what it carries, so that it stays false.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from veenv.kernel.cpu.arrays import Stored, memory
from veenv.kernel.ordering import Place, in_place, replacing
from veenv.kernel.program import Loop, Op, ScalarProgram


def uniform(program: ScalarProgram, given: Sequence[bool]) -> list[bool]:
    """Of each operation whether it is the same at all points, given the same of input leaves."""
    found: list[bool] = []
    results: dict[int, list[bool]] = {}
    for position, op in enumerate(program.ops):
        args = [found[a] for a in op.args]
        same = given[op.attr[0]] if op.name == "input" else all(args) and op.name != "write"
        if op.name == "loop":
            results[position] = _results(op.attr, args)
        elif op.name == "part":
            same = results[op.args[0]][op.attr]
        found.append(same)
    return found


def within(loop: Loop, args: Sequence[bool]) -> list[bool]:
    """Of each input leaf of a loop's body whether it is the same at all points, given arguments."""
    arrays = [bool(leaf.shape) for leaf in loop.body.inputs[: loop.carries]]
    given = [flag and not any(arrays[k : k + 1]) for k, flag in enumerate(args)]
    while True:
        found = uniform(loop.body, given)
        ends = all(found[i] for i in loop.body.results[-1]) if loop.length is None else True
        carried = [
            flag and ends and found[ids[0]]
            for flag, ids in zip(given[: loop.carries], loop.body.results, strict=False)
        ]
        if carried == given[: loop.carries]:
            return given
        given[: loop.carries] = carried


def _results(loop: Loop, args: Sequence[bool]) -> list[bool]:
    given = within(loop, args)
    found = uniform(loop.body, given)
    stacked = loop.body.results[loop.carries :]
    return [*given[: loop.carries], *(found[ids[0]] for ids in stacked)]


class Scope:
    """A program or the body of a loop, while its instructions are written.

    Attributes:
      program: it.
      places: where in memory its arrays are (`veenv.kernel.cpu.arrays.memory`).
      inputs: of a body what stands for its inputs: a name, an array, or what loads an entry.
      mask: in which lanes a loop still runs; None for all.
      in_place: the arrays that are written where they are (`veenv.kernel.ordering.in_place`).
      same: of each operation whether it is the same in all lanes.
      names: values of operations.
      parts: of each loop the operations of its results.
    """

    def __init__(
        self,
        program: ScalarProgram,
        places: Mapping[Place | int, int],
        inputs: Sequence[str | Stored | Callable[[], str]] = (),
        mask: str | None = None,
        given: Sequence[bool] | None = None,
        carries: int = 0,
    ):
        self.program, self.places, self.inputs, self.mask = program, places, inputs, mask
        self.in_place = in_place(program, carries)
        self.same = uniform(program, given or [False] * len(program.inputs))
        self.names: dict[int, str] = {}
        self.parts: dict[int, dict[int, int]] = {}
        for position, op in enumerate(program.ops):
            if op.name == "part":
                self.parts.setdefault(op.args[0], {})[op.attr] = position

    @functools.cached_property
    def calls(self) -> set[Op]:
        """Its calls of functions."""
        return {op for op in self.program.ops if op.name == "call"}


class LoopCode:
    """Writes a loop of the scope that instructions are in."""

    def __init__(self, to: Any, position: int):
        self._to, self._outer = to, to.scope
        op = self._outer.program.ops[position]
        self._loop: Loop = op.attr
        self._body, self._parts = self._loop.body, self._outer.parts[position]
        self._places = memory(self._body, to.lanes, self._outer.places[position], self._loop)[0]
        self._given = within(self._loop, [self._outer.same[a] for a in op.args])
        carries, first = self._loop.carries, self._loop.carries + self._loop.stacked
        self._carried = {k: to.carried(position, k) for k in replacing(op)}
        for k, array in self._carried.items():
            if (position, k) not in self._outer.in_place:
                to.copy(to.stored(op.args[k]), array, self._body.inputs[k].size)
        self._numbers = [k for k in range(carries) if k not in self._carried]
        self._kinds = [to.vector(self._body.inputs[k].dtype) for k in self._numbers]
        self._starts = [to.operand(op.args[k]) for k in self._numbers]
        self._columns = [to.stored(a) for a in op.args[carries:first]]
        self._captured = [
            to.stored(a) if leaf.shape else to.operand(a)
            for a, leaf in zip(op.args[first:], self._body.inputs[first:], strict=True)
        ]
        self._arrays = {k: to.stored(i) for k, i in self._parts.items() if k >= carries}

    def write(self) -> None:
        """Writes it; its results have names then, or are in memory."""
        to, known = self._to, self._to.trigonometry.known
        to.trigonometry.known = dict(known)  # what is computed inside is not there in all blocks
        if self._loop.length is None:
            found = to.repeat_while(self._kinds, self._starts, self._test, self._masked)
        else:
            found = to.repeat(self._loop.length, self._kinds, self._starts, self._step)
        to.scope, to.trigonometry.known = self._outer, known
        for k, value in zip(self._numbers, found, strict=True):
            if k in self._parts:
                self._outer.names[self._parts[k]] = value

    def _enter(self, carries: Sequence[str], index: str = "") -> None:
        entries = [functools.partial(self._to.load, column, index) for column in self._columns]
        known = {**self._carried, **dict(zip(self._numbers, carries, strict=True))}
        inputs = [*(known[k] for k in range(self._loop.carries)), *entries, *self._captured]
        self._to.scope = Scope(
            self._body, self._places, inputs, self._outer.mask, self._given, self._loop.carries
        )

    def _run(self, first: int, end: int) -> list[str]:
        """Writes some operations of the body; returns the next carries."""
        for k in range(first, end):
            self._to.run(k)
        if end < len(self._body.ops):
            return []
        results = [ids[0] for ids in self._body.results]
        values = {k: self._to.operand(i) for k, i in enumerate(results) if k not in self._carried}
        for k, array in self._carried.items():
            written = self._to.stored(results[k])
            if written != array:
                self._to.copy(written, array, self._body.inputs[k].size, self._to.scope.mask)
        return [values[k] for k in self._numbers]

    def _step(self, number: str, carries: list[str]) -> list[str]:
        last = (self._loop.length or 0) - 1
        index = self._to.emit(f"sub i64 {last}, {number}") if self._loop.reverse else number
        self._enter(carries, index)
        ahead = self._run(0, len(self._body.ops))
        for k, array in self._arrays.items():
            self._to.put(array, index, self._to.operand(self._body.results[k][0]))
        return ahead

    def _test(self, carries: list[str]) -> str:
        """Whether any lane goes on; the lanes that do are the scope's mask then."""
        self._enter(carries)
        self._run(0, self._loop.tested)
        condition, kind = self._body.results[-1][0], self._to.vector("bool")
        mask = self._to.operand(condition)
        if self._to.scope.same[condition]:
            return self._to.emit(f"extractelement {kind} {mask}, i64 0")
        if self._outer.mask is not None:
            mask = self._to.emit(f"and {kind} {mask}, {self._outer.mask}")
        self._to.scope.mask = mask
        bits = self._to.emit(f"bitcast {kind} {mask} to i{self._to.lanes}")
        return self._to.emit(f"icmp ne i{self._to.lanes} {bits}, 0")

    def _masked(self, carries: list[str]) -> list[str]:
        mask = self._to.scope.mask
        ahead = self._run(self._loop.tested, len(self._body.ops))
        if mask is None or self._to.scope.same[self._body.results[-1][0]]:
            return ahead
        rows = zip(self._kinds, ahead, carries, strict=True)
        return [self._to.select(kind, mask, new, old) for kind, new, old in rows]
