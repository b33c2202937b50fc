"""Shared parts of back ends: the walk over a scalar program, its arrays, bodies of its loops."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from veenv.kernel.ordering import Place, entries, in_place, replacing
from veenv.kernel.scalar_program import FREE, Loop, Op, ScalarProgram, Strided

A = TypeVar("A", bound=Strided)


class Scope:
    """A program or the body of a loop, while it is walked.

    Attributes:
      program: it.
      inputs: what stands for its inputs: a number, an array, or what loads a number.
      where: what else a back end keeps of it.
      mask: at which points the loops around it still run; None for all.
      in_place: the arrays that are written where they are (`veenv.kernel.ordering.in_place`).
      names: values of operations so far.
      arrays: the arrays that are not another's memory, so far.
      parts: of each loop the operations of its results.
    """

    def __init__(
        self,
        program: ScalarProgram,
        inputs: Sequence[Any],
        where: Any,
        mask: Any = None,
        carries: int = 0,
    ):
        self.program, self.inputs, self.where, self.mask = program, inputs, where, mask
        self.in_place = in_place(program, carries)
        self.names: dict[int, Any] = {}
        self.arrays: dict[Place, Any] = {}
        self.parts: dict[int, dict[int, int]] = {}
        for position, op in enumerate(program.ops):
            if op.name == "part":
                self.parts.setdefault(op.args[0], {})[op.attr] = position


class Backend(ABC, Generic[A]):
    """Walks a scalar program and the bodies of its loops; a back end says how each is written.

    Numbers are whatever stands for one there: a name, or a JAX array. What is `READ` is read where
    it stands in the program, other numbers in memory where they are needed.

    Attributes:
      scope: the program or body that is walked now.
    """

    READ: frozenset[str] = frozenset()
    scope: Scope

    @abstractmethod
    def compute(self, op: Op) -> Any:
        """The number that an operation computes."""

    @abstractmethod
    def const(self, op: Op) -> Any:
        """A constant."""

    @abstractmethod
    def memory(self, place: Place) -> A:
        """The array that is not another's memory."""

    @abstractmethod
    def fill(self, position: int, args: Sequence[int]) -> None:
        """Writes the entries of an array of its own."""

    @abstractmethod
    def load(self, array: A, index: Any) -> Any:
        """An entry of an array."""

    @abstractmethod
    def put(self, array: A, index: Any, value: Any) -> None:
        """Writes an entry of an array."""

    @abstractmethod
    def copy(self, source: A, target: A, count: int, mask: Any = None) -> None:
        """Copies so many entries of an array, where a mask is true."""

    def write(self, op: Op, array: A, place: Any, value: Any) -> None:
        """Writes the entry at a place that is computed, where the loops still run."""
        self.put(array, place, value)

    @abstractmethod
    def repeat(self, loop: InLoop[A]) -> Sequence[Any]:
        """Writes a loop; returns what it carries in numbers at its end."""

    @abstractmethod
    def inside(self, position: int) -> Any:
        """Returns the record of a loop's body."""

    def named(self, position: int, value: Any) -> Any:
        """A number that is computed or read, with a name of its own."""
        return value

    def run(self, positions: Iterable[int]) -> None:
        """Walks operations of the scope."""
        for position in positions:
            op, names = self.scope.program.ops[position], self.scope.names
            if op.name == "loop":
                self._loop(position)
            elif op.name == "array":
                self.fill(position, op.args)
            elif op.name == "write":
                place, value = (self.operand(a) for a in op.args[1:])
                self.write(op, self.writable(position, 0), place, value)
            elif op.name not in FREE:
                names[position] = self.named(position, self.compute(op))
            elif op.name in self.READ and not (op.name == "input" and op.attr[1] is None):
                names[position] = self.named(position, self.operand(position))

    def _loop(self, position: int) -> None:
        """Its results have names then, or are in memory."""
        outer, loop = self.scope, InLoop(self, position)
        body = self.repeat(loop)
        self.scope = outer
        parts = outer.parts[position]
        pairs = zip(loop.numbers, body, strict=True)
        outer.names.update((parts[k], value) for k, value in pairs if k in parts)

    def operand(self, i: int) -> Any:
        """A number."""
        names, op = self.scope.names, self.scope.program.ops[i]
        if i not in names:
            names[i] = self.const(op) if op.name == "const" else self.read(i, op)
        return names[i]

    def read(self, i: int, op: Op) -> Any:
        """A number that is in memory, or comes from outside."""
        if op.name == "entry":
            return self.load(self.stored(op.args[0]), op.attr)
        number, entry = op.attr
        leaf = self.scope.inputs[number]
        if isinstance(leaf, Strided):
            return self.load(leaf, entry)  # pyright: ignore[reportArgumentType]
        return leaf() if isinstance(leaf, functools.partial) else leaf

    def stored(self, i: int) -> A:
        """Returns the place of an array, or of the array that an entry is the first of."""
        scope, ops, views = self.scope, self.scope.program.ops, list[tuple[int, int]]()
        while True:  # along what is written in one array, which may be thousands of times
            op, place = ops[i], (i, None)
            if op.name in ("view", "entry"):
                views.append(op.attr[:2] if op.name == "view" else (op.attr, 1))
                i = op.args[0]
                continue
            if op.name == "write":
                place = i, 0
            elif op.name == "part" and op.attr < ops[op.args[0]].attr.carries:
                place = op.args[0], op.attr
            if place not in scope.in_place:
                break
            i = ops[place[0]].args[place[1] or 0]
        is_given = op.name == "input" and scope.inputs
        array = scope.inputs[op.attr[0]] if is_given else self._own(place)
        for view in reversed(views):
            array = array.view(*view)
        return array

    def _own(self, place: Place) -> A:
        if place not in self.scope.arrays:
            self.scope.arrays[place] = self.memory(place)
        return self.scope.arrays[place]

    def writable(self, position: int, k: int) -> A:
        """The array that an operation writes in: its argument, or a copy of that."""
        program = self.scope.program
        source = program.ops[position].args[k]
        if (position, k) in self.scope.in_place:
            return self.stored(source)
        array = self._own((position, k))
        self.copy(self.stored(source), array, entries(program, source))
        return array


class InLoop(Generic[A]):
    """A loop that is walked: what goes into a step, and what comes out.

    Attributes:
      loop: what is repeated.
      position: where it is in the scope.
      numbers: which of its carries are numbers; the others are arrays, in memory.
      starts: the first values of these.
    """

    def __init__(self, to: Backend[A], position: int):
        self._to, self._outer, self.position = to, to.scope, position
        op = to.scope.program.ops[position]
        self.loop: Loop = op.attr
        carries, first = self.loop.carries, self.loop.carries + self.loop.stacked
        self._arrays = {k: to.writable(position, k) for k in replacing(op)}
        self.numbers = [k for k in range(carries) if k not in self._arrays]
        self.starts = [to.operand(op.args[k]) for k in self.numbers]
        self._columns = [to.stored(a) for a in op.args[carries:first]]
        rest = zip(op.args[first:], self.loop.body.inputs[first:], strict=True)
        self._captured = [to.stored(a) if leaf.shape else to.operand(a) for a, leaf in rest]
        parts = self._outer.parts[position].items()
        self._stacks = {k: to.stored(i) for k, i in parts if k >= carries}
        self.where = to.inside(position)

    @property
    def dtypes(self) -> list[str]:
        """The dtypes of the numbers that are carried."""
        return [self.loop.body.inputs[k].dtype for k in self.numbers]

    def argument(self, k: int) -> Any:
        """An argument of the loop: an array, or a number that is the same in all steps."""
        return self._arrays[k] if k in self._arrays else self._captured[k - self.loop.carries]

    @property
    def condition(self) -> int:
        """Returns the operation that says whether a step of a loop without a length is done."""
        return self.loop.body.results[-1][0]

    def begin(self, carries: Sequence[Any], index: Any = None) -> None:
        """Walks a step, of that number if it has one, until its condition is known."""
        known = self._arrays | dict(zip(self.numbers, carries, strict=True))
        columns = [functools.partial(self._to.load, column, index) for column in self._columns]
        inputs = [*(known[k] for k in range(self.loop.carries)), *columns, *self._captured]
        mask, self._index = self._outer.mask, index
        self._to.scope = Scope(self.loop.body, inputs, self.where, mask, self.loop.carries)
        self._to.run(range(self.loop.tested))

    def finish(self) -> list[Any]:
        """Walks the rest of it; returns the next numbers, before arrays are brought back."""
        to, results = self._to, [ids[0] for ids in self.loop.body.results]
        to.run(range(self.loop.tested, len(self.loop.body.ops)))
        ahead = [to.operand(results[k]) for k in self.numbers]
        for k, array in self._stacks.items():
            to.put(array, self._index, to.operand(results[k]))
        return ahead

    def bring(self) -> None:
        """Copies arrays that a step has written elsewhere to where the next one reads them."""
        for k, array in self._arrays.items():
            written = self._to.stored(self.loop.body.results[k][0])
            if written is not array:
                self._to.copy(written, array, self.loop.body.inputs[k].size, self._to.scope.mask)
