"""Loops of a scalar program: what a step computes, apart from what is the same in all of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from veenv import limits
from veenv.kernel.building import complex_numbers, loop_tables
from veenv.kernel.building.builder import (
    CARRY,
    COLUMN,
    OUTER,
    Builder,
    Ids,
    choose,
    entry,
    reals,
    refuse_stacked,
)
from veenv.kernel.cpu.size import body_size
from veenv.kernel.ordering import depth_first
from veenv.kernel.scalar_program import (
    PAIRS,
    Leaf,
    LongStepError,
    Loop,
    Op,
    ScalarProgram,
    written_in,
)

SHORT = limits.BODY
"""Operations of all steps up to which a loop is unrolled: they fit one function of the code."""
Trace = Callable[[Builder, Callable[[Ids], Ids], list[Ids], list[Ids]], list[Ids]]
"""From a body's builder, what takes values in from outside, carries and entries to results."""


def _array(b: Builder, parts: Iterator[int], like: Ids, of: Builder) -> Ids:
    """The array whose `reals` come next: of the shape, and of complex numbers, as one of `of`."""
    is_complex = like.size > 0 and of.ops[int(like.flat[0])].dtype in PAIRS
    entries = [*itertools.islice(parts, like.size << is_complex)]
    if is_complex:
        pairs = zip(entries[::2], entries[1::2], strict=True)
        entries = [complex_numbers.pair(b, *pair) for pair in pairs]
    return np.array(entries, np.int64).reshape(like.shape)


class _Body:
    """The body of a loop in a builder of its own; loop-invariant operations are moved out."""

    def __init__(self, outer: Builder):
        self.outer, self.inner = outer, Builder(outer.limit, outer.longest, outer.stored)
        self._out: dict[int, int] = {}
        """For operations that are the same in all steps their number outside."""
        self._new: list[Op] = []
        self._leaves: list[Leaf] = []
        self._number: dict[Any, int] = {}
        self._entries: dict[int, tuple[int, int]] = {}
        """For entries of carried arrays the number of the carry, and which entry."""
        self._captured: list[int] = []

    def capture(self, ids: Ids) -> Ids:
        """Operations outside, in here."""
        few, places = np.unique(ids, return_inverse=True)
        captured = np.array([self.captured_one(i) for i in few.tolist()], np.int64)
        return captured[places].reshape(ids.shape)

    def captured_one(self, i: int) -> int:
        op, inner = self.outer.ops[i], self.inner
        if op.name == "const":
            return inner.const(op.attr)
        if op.name == "complex":
            return complex_numbers.pair(inner, *map(self.captured_one, op.args))
        return inner.op(OUTER, op.dtype, attr=i)

    def divide(self, results: Sequence[int], same: dict[int, int]) -> None:
        """Finds what the results need, and what of it is the same in all steps.

        `same` are carries that stay what they are, with their numbers outside.
        """
        ops = self.inner.ops
        self.used, self._same, self._fixed = {*depth_first(ops, results)}, same, bytearray(len(ops))
        for i, op in enumerate(ops):
            known = op.name in ("const", OUTER) or i in same
            args = bool(op.args) and all(self._fixed[a] for a in op.args)
            self._fixed[i] = i in self.used and (known or args)

    def outside(self, i: int) -> int | None:
        """The number outside of what is the same in all steps, moved there; None for others."""
        if not self._fixed[i]:
            return None
        waiting = [i]
        while waiting:
            k = waiting.pop()
            op = self.inner.ops[k]
            missing = [a for a in op.args if a not in self._out]
            if k in self._out:
                continue
            if missing:
                waiting += [k, *missing]
                continue
            args = [self._out[a] for a in op.args]
            self._out[k] = self._moved(k, op, args)
        return self._out[i]

    def _moved(self, k: int, op: Op, args: Sequence[int]) -> int:
        if k in self._same:
            return self._same[k]
        if op.name == OUTER:
            return op.attr
        if op.name == "const":
            return self.outer.const(op.attr)
        if op.name == "array":
            return self.outer.array(args)
        if op.name == "entry":
            return entry(self.outer, args[0], op.attr)
        return self.outer.op(op.name, op.dtype, *args, attr=op.attr)

    def program(
        self, carries: Sequence[int], columns: Sequence[int], results: Sequence[int]
    ) -> tuple[ScalarProgram, list[int]]:
        """The body, and what it takes from outside besides carries and columns.

        All arguments are numbers of operations: the carries as the loop has them, entries of
        arrays, results.
        """
        ops = self.inner.ops
        for k, i in enumerate((*carries, *columns)):
            entries = ops[i].args  # of a carry that is an array
            self._number[i] = self._input(ops[i].dtype, len(entries) or None)
            self._entries.update((a, (k, e)) for e, a in enumerate(entries))
        for i, op in enumerate(ops):
            given = i in self._number or i in self._entries
            if i in self.used and not self._fixed[i] and not given:
                args = tuple(map(self._inside, op.args))
                self._number[i] = self._add(op._replace(args=args))
        places = tuple((self._inside(i),) for i in results)
        outputs = tuple(Leaf((), ops[i].dtype) for i in results)
        program = ScalarProgram(tuple(self._leaves), tuple(self._new), outputs, places)
        return program, self._captured

    def _inside(self, i: int) -> int:
        """The number in the body of an operation."""
        outer = self.outside(i)
        if outer is None:
            if i not in self._number:  # of an array that is carried
                op = Op("input", self.inner.ops[i].dtype, (), self._entries[i])
                self._number[i] = self._add(op)
            return self._number[i]
        key = "outside", outer
        if key not in self._number:
            op = self.outer.ops[outer]
            if op.name == "const":
                self._number[key] = self._add(op)
            else:
                self._captured.append(outer)
                self._number[key] = self._input(op.dtype, self.outer.entries(outer))
        return self._number[key]

    def _input(self, dtype: str, length: int | None) -> int:
        """The number in the body of one more argument: an array, or without a length a number."""
        attr = len(self._leaves), 0 if length is None else None
        self._leaves.append(Leaf(() if length is None else (length,), dtype))
        return self._add(Op("input", dtype, (), attr))

    def _add(self, op: Op) -> int:
        self._new.append(op)
        return len(self._new) - 1


def scan(
    b: Builder,
    trace: Trace,
    carry: Sequence[Ids],
    stacks: Sequence[Ids],
    turns: range,
    read: Sequence[bool] = (),
) -> list[Ids] | None:
    """The results of a `scan` as a loop; None where it is better unrolled.

    `trace` is what a step computes; `stacks` come by steps, in the order of `turns`; `read` says of
    what is stacked whether anything surely needs it.
    """
    length = len(turns)
    body = _Body(b)
    inputs, entering = _carried(body, carry)
    entries, columns = _entries(body, stacks, length)
    outs = trace(body.inner, body.capture, entering, entries)
    slots = _slots(body, carry, inputs, outs[: len(carry)])
    stacked = [i for ids in outs[len(carry) :] for i in reals(body.inner, ids)]
    known = _tabulated(body, slots, stacked, columns, turns)
    same = {slot.input: slot.start for slot in slots if slot.input == slot.ahead}
    carried = [slot for slot in slots if slot.input not in same and slot not in known]
    body.divide([*(slot.ahead for slot in carried), *same, *stacked], same)
    wanted = [i for i in dict.fromkeys(stacked) if body.outside(i) is None and i not in columns]
    _refuse_stacks(body, outs[len(carry) :], read, wanted, length)
    results = [*(slot.ahead for slot in carried), *wanted]
    program, captured = body.program([slot.input for slot in carried], [*columns], results)
    if body_size(program) * length <= SHORT:
        return None
    repeated = Loop(program, len(carried), len(columns), length, turns.step < 0)
    arrays = [array for array, _ in columns.values()]
    parts = _parts(b, repeated, [*(slot.start for slot in carried), *arrays, *captured])
    last = {
        slot: part if (out := body.outside(slot.ahead)) is None else out
        for slot, part in zip(carried, parts, strict=False)
    }
    arrays_of = dict(zip(wanted, parts[len(carried) :], strict=True))

    by_step = [_by_steps(body, i, columns, arrays_of, length) for i in stacked]
    ends = iter(_final(b, slots, {**last, **known}))
    carried_out = [_array(b, ends, ids, b) for ids in carry]
    return [*carried_out, *_stacked(body, outs[len(carry) :], by_step, length)]


def _by_steps(
    body: _Body,
    i: int,
    columns: Mapping[int, tuple[int, list[int]]],
    arrays_of: Mapping[int, int],
    length: int,
) -> Sequence[int]:
    """Returns an operation of a body as an array over steps, outside of the loop."""
    out = body.outside(i)
    if out is not None:
        return [out] * length
    if i in columns:
        return columns[i][1]
    dtype = body.inner.ops[i].dtype
    return [body.outer.op("entry", dtype, arrays_of[i], attr=t) for t in range(length)]


def _refuse_stacks(
    body: _Body, outs: Sequence[Ids], read: Sequence[bool], wanted: Sequence[int], length: int
) -> None:
    """Refuses a loop before anything is made of its steps, if what is surely read is too much."""
    several = [set(reals(body.inner, ids)) for ids, flag in zip(outs, read, strict=False) if flag]
    count = length * len(set().union(*several).intersection(wanted))
    refuse_stacked(count, body.outer.most_stacked)


def _tabulated(
    body: _Body,
    slots: Sequence[_Slot],
    stacked: Sequence[int],
    columns: dict[int, tuple[int, list[int]]],
    order: Sequence[int],
) -> dict[_Slot, int]:
    """Makes columns of what depends on the step's number alone; carries that do, and their ends."""
    b, ops = body.outer, body.inner.ops
    numbers = {s.input: s for s in slots if len(s.order) == 1 and b.value(s.start) is not None}
    tables, last = loop_tables.tables(
        ops,
        [slot.ahead for slot in slots],
        stacked,
        {i: (slot.start, slot.ahead) for i, slot in numbers.items()},
        {i: entries for i, (_, entries) in columns.items()},
        order,
        b,
    )
    for i, entries in tables.items():
        if i not in columns:
            if i not in stacked:
                entries = loop_tables.divided_by(ops, i, entries, b)
            ops[i] = Op(COLUMN, ops[i].dtype, (), len(columns))
            columns[i] = b.array(entries), entries
    return {numbers[i]: value for i, value in last.items()}


def while_loop(b: Builder, test: Trace, trace: Trace, carry: Sequence[Ids]) -> list[Ids]:
    """The results of a `while` as a loop; arguments as of `scan`, and what tells to go on."""
    body = _Body(b)
    inputs, entering = _carried(body, carry)
    (condition,) = test(body.inner, body.capture, entering, [])
    outs = trace(body.inner, body.capture, entering, [])
    if condition.shape:  # of a `vmap` inside: each of its points goes on as long as it wants
        pairs = zip(outs, entering, strict=True)
        outs = [_where(body.inner, condition, new, old) for new, old in pairs]
        either = functools.partial(body.inner.op, "or", "bool")
        condition = np.array(functools.reduce(either, condition.ravel().tolist()), np.int64)
    slots = _slots(body, carry, inputs, outs)
    same = {slot.input: slot.start for slot in slots if slot.input == slot.ahead}
    goes_on = int(condition[()])
    body.divide([*(slot.ahead for slot in slots), goes_on], same)
    carried = [slot for slot in slots if slot.input not in same]
    results = [*(slot.ahead for slot in carried), goes_on]
    program, captured = body.program([slot.input for slot in carried], [], results)
    repeated = Loop(program, len(carried))
    parts = _parts(b, repeated, [*(slot.start for slot in carried), *captured])
    ends = iter(_final(b, slots, dict(zip(carried, parts, strict=True))))
    return [_array(b, ends, ids, b) for ids in carry]


def _where(b: Builder, condition: Ids, new: Ids, old: Ids) -> Ids:
    """Selects between carries by conditions on their leading axes."""
    rest = (1,) * (new.ndim - condition.ndim)
    return choose(b, condition.reshape((*condition.shape, *rest)), new, old)


def _parts(b: Builder, repeated: Loop, args: Sequence[int]) -> list[int]:
    """The results of a loop, which is known if an equal one is."""
    size = body_size(repeated.body)
    if size > b.longest:
        raise LongStepError(
            f"a step takes {size:,} scalar operations, what it reads and writes included, of "
            f"{b.longest:,} that one function of machine code may have"
        )
    loop = b.op("loop", "bool", *args, attr=b.loops.setdefault(repeated.digest(), repeated))
    outputs = repeated.body.outputs[: len(repeated.body.outputs) - (repeated.length is None)]
    return [b.op("part", leaf.dtype, loop, attr=k) for k, leaf in enumerate(outputs)]


def _carried(body: _Body, carry: Sequence[Ids]) -> tuple[list[list[int]], list[Ids]]:
    """Returns the operations of a carry inside the loop, and those of its arrays."""
    inputs, arrays, numbers = [], [], itertools.count()
    for ids in carry:
        dtypes = [body.outer.ops[i].dtype for i in reals(body.outer, ids)]
        inputs.append([body.inner.op(CARRY, dtype, attr=next(numbers)) for dtype in dtypes])
        arrays.append(_array(body.inner, iter(inputs[-1]), ids, body.outer))
    return inputs, arrays


class _Slot(NamedTuple):
    """A carry of a loop: a number, or an array in which a step writes.

    `start` is the operation outside, `input` that inside (of an array the operation that joins its
    entries), `ahead` the next one; `order` says where a carry's entries are among all.
    """

    start: int
    input: int
    ahead: int
    order: tuple[int, ...]


def _slots(
    body: _Body, carry: Sequence[Ids], inputs: Sequence[list[int]], outs: Sequence[Ids]
) -> list[_Slot]:
    """Lists the carries: numbers, and arrays in which a step writes, or which inner loops make.

    Of the latter, and of arrays that become constants, those that a step reads as arrays, too.
    """
    slots, count = [], 0
    read = {op.args for op in body.inner.ops if op.name == "array"}
    for before, inside, after in zip(carry, inputs, outs, strict=True):
        start, ahead = reals(body.outer, before), reals(body.inner, after)
        for written, places in _whole(body.inner, ahead, inside, read):
            inner_array = tuple(inside[k] for k in places)
            array = -1 if written is None else written_in(body.inner.ops, written)
            order = tuple(count + k for k in places)
            if written is not None and (
                body.inner.ops[array].args == inner_array
                or (body.inner.ops[array].name in ("part", "array") and inner_array in read)
            ):
                starts = body.outer.array([start[k] for k in places])
                slots.append(_Slot(starts, body.inner.array(inner_array), written, order))
            else:
                slots += [_Slot(start[k], inside[k], ahead[k], (count + k,)) for k in places]
        count += len(start)
    return slots


def _whole(
    b: Builder, ids: Sequence[int], inside: Sequence[int], read: Collection[tuple[int, ...]]
) -> Iterator[tuple[int | None, list[int]]]:
    """Arrays of which all entries are among operations, with their places there; then the others.

    An array is one in which something is written, that a loop has made, or constants in the place
    of what is `given` and `read` as an array.
    """
    entries: dict[int, list[int]] = {}
    for k, i in enumerate(ids):
        if b.ops[i].name == "entry":
            entries.setdefault(b.ops[i].args[0], []).append(k)
    outside = {*range(len(ids))}
    for array, places in entries.items():
        places.sort(key=lambda k: b.ops[ids[k]].attr)
        if [b.ops[ids[k]].attr for k in places] == [*range(b.entries(array) or 0)]:
            outside.difference_update(places)
            yield array, places
    constants = {inside[k]: k for k in outside if b.ops[ids[k]].name == "const"}
    for args in read:
        if constants.keys() >= {*args}:
            places = [constants.pop(a) for a in args]
            outside.difference_update(places)
            yield b.array([ids[k] for k in places]), places
    yield None, sorted(outside)


def _final(b: Builder, slots: Sequence[_Slot], last: Mapping[_Slot, int]) -> list[int]:
    """The numbers that are carried out of a loop, one by one; `last` are those that moved."""
    entry_of: dict[int, int] = {}
    for slot in slots:
        out = last.get(slot, slot.start)
        single = len(slot.order) == 1 and b.entries(out) is None
        entry_of |= {k: out if single else entry(b, out, e) for e, k in enumerate(slot.order)}
    return [entry_of[k] for k in range(len(entry_of))]


def _entries(
    body: _Body, stacks: Sequence[Ids], length: int
) -> tuple[list[Ids], dict[int, tuple[int, list[int]]]]:
    """A step's entries of stacked arrays, and for those that differ the array and its entries."""
    columns: dict[int, tuple[int, list[int]]] = {}
    known: dict[int, int] = {}
    entries = []
    for ids in stacks:
        rows = np.array([reals(body.outer, row) for row in ids], np.int64).reshape(length, -1)
        inside = []
        for column in rows.T:
            if (column == column[0]).all():
                inside.append(body.captured_one(int(column[0])))
                continue
            entries_of = column.tolist()
            array = body.outer.array(entries_of)
            if array not in known:
                dtype = body.outer.ops[array].dtype
                known[array] = body.inner.op(COLUMN, dtype, attr=len(columns))
                columns[known[array]] = array, entries_of
            inside.append(known[array])
        entries.append(_array(body.inner, iter(inside), ids[0], body.outer))
    return entries, columns


def _stacked(
    body: _Body, outs: Sequence[Ids], columns: Sequence[Sequence[int]], length: int
) -> list[Ids]:
    """Stacked results, given the steps of each number that a step stacks."""
    rest, results = iter(columns), []
    for ids in outs:
        count = len(reals(body.inner, ids))
        rows = np.array([*itertools.islice(rest, count)], np.int64).reshape(count, length)
        like = np.broadcast_to(ids, (length, *ids.shape))
        results.append(_array(body.outer, iter(rows.T.ravel().tolist()), like, body.inner))
    return results
