"""A scalar program as a function in LLVM IR, and its machine code: vectors of points in a loop."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from veenv import limits
from veenv.kernel.backend import Backend, InLoop, Scope
from veenv.kernel.cpu import routines
from veenv.kernel.cpu.arrays import ALIGNED, Stored, memory, table, uniform, within
from veenv.kernel.cpu.compile import LIBRARY, Objects, is_known, objects_of
from veenv.kernel.cpu.emitter import Emitter, element, literal, memory_element, module, suffix
from veenv.kernel.cpu.layout import Leaves
from veenv.kernel.cpu.size import FEW, runs, writes_of
from veenv.kernel.cpu.trigonometry import Trigonometry
from veenv.kernel.ordering import Place
from veenv.kernel.scalar_program import FLOATS, ROUNDED, Loop, Op, ScalarProgram
from veenv.rules.operations import OPERATIONS

_COUNTING = frozenset("add sub mul eq ne lt le gt ge".split())
"""Operations of counters, which one number has for all lanes."""


class _Where(NamedTuple):
    """The record of a program or of a loop's body while its code is emitted."""

    places: Mapping[Place | int, int]  # where its arrays are (`veenv.kernel.cpu.arrays.memory`)
    same: Sequence[bool]  # of each operation whether it is the same in all lanes
    calls: frozenset[Op]  # its calls of functions
    inputs: Sequence[bool] = ()  # of each input leaf of a body whether it is the same in all lanes


def _calls(ops: Iterable[Op]) -> frozenset[Op]:
    return frozenset(op for op in ops if op.name == "call")


class Instructions(Emitter, Backend[Stored]):
    """The instructions of a program at one vector of points.

    They read and write through `%ins` and `%outs` (see `body`), of the vector with the number
    `%step`; its arrays are in `%kept`.
    """

    def __init__(self, program: ScalarProgram, lanes: int):
        super().__init__(lanes)
        self.program = program
        places, calls = memory(program, lanes)[0], _calls(program.ops)
        same = uniform(program, (False,) * len(program.inputs))
        self.scope = Scope(program, (), _Where(places, same, calls))
        self._numbers: dict[str, str] = {}
        """Numbers that all lanes of vectors are."""
        self.leaves = Leaves(self)
        self.trigonometry = Trigonometry(self)

    def text(self) -> str:
        """Blocks of LLVM IR; they need a block `exit` and a condition `%never`, which is false."""
        writes = writes_of(self.program)
        for position, op in enumerate(self.program.ops):
            if op.name == "input" and op.attr[1] is None:
                self._deinterleave(position, op)
            self.run([position])
            for number, leaf, value, count in writes.get(position, ()):
                if value is None:
                    self.leaves.store(number, leaf.stored, [self.operand(i) for i in leaf.ids])
                elif count > 1:
                    source = self._address(self.stored(position), 0)
                    self.leaves.copy(number, leaf.stored, value, count, source)
                else:
                    self.leaves.store_value(number, leaf.stored, value, self.operand(position))
        return "\n".join(self.lines)

    def const(self, op: Op) -> str:
        """A vector of equal numbers."""
        return f"splat ({element(op.dtype)} {literal(op.attr)})"

    def read(self, i: int, op: Op) -> str:
        """A vector from a leaf or an array."""
        if op.name == "entry" or self.scope.inputs:
            return super().read(i, op)
        number, entry = op.attr
        return self.leaves.load(number, self.program.inputs[number], entry)

    def memory(self, place: Place) -> Stored:
        """A table of constants, or vectors in `%kept`."""
        program, (position, k) = self.scope.program, place
        op = program.ops[position]
        dtype = op.dtype if k is None else program.ops[op.args[k]].dtype
        constant = table(program, position)
        if constant is not None:
            self.declare(*constant)
            return Stored(constant[0], dtype, shared=True)
        return Stored("%kept", dtype, self.scope.where.places[place])

    def inside(self, position: int) -> _Where:
        """Returns the record of a loop's body."""
        op, where = self.scope.program.ops[position], self.scope.where
        loop: Loop = op.attr
        base = where.places[position]
        places = memory(loop.body, self.lanes, base, loop.carries)[0]
        inputs = within(loop, [where.same[a] for a in op.args])
        return _Where(places, uniform(loop.body, tuple(inputs)), _calls(loop.body.ops), inputs)

    def repeat(self, loop: InLoop[Stored]) -> list[str]:
        """A loop, or for a few points calls of a library that does the same."""
        routine, lanes = loop.loop.routine, self.lanes
        if routine is None or not is_known(LIBRARY + routine.name):
            return self._repeated(loop)
        base = self.scope.where.places[loop.position]
        run = functools.partial(routines.call, self, loop, routine, base)
        if lanes == 1:
            run()
        else:
            few = self.emit(f"icmp sle i64 %filled, {lanes // FEW}")
            self.either(few, run, lambda: self._repeated(loop))
        return []

    def _repeated(self, loop: InLoop[Stored]) -> list[str]:
        """A loop of so many steps, or as long as any lane goes on.

        Counters that are the same in all lanes are carried as one number.
        """
        known = self.trigonometry.known
        self.trigonometry.known = dict(known)  # what is computed inside is not there in all blocks
        pairs = zip(loop.numbers, loop.dtypes, strict=True)
        single = [d == "int32" and loop.where.inputs[k] for k, d in pairs]
        pairs = zip(loop.dtypes, single, strict=True)
        kinds = [element(d) if one else self.vector(d) for d, one in pairs]

        def spread(values: Sequence[str]) -> list[str]:
            pairs = zip(values, single, strict=True)
            return [self._spread("i32", x) if one else x for x, one in pairs]

        def joined(values: Sequence[str]) -> list[str]:
            pairs = zip(values, single, strict=True)
            return [self._one("int32", x) if one else x for x, one in pairs]

        starts = joined(loop.starts)
        if loop.loop.length is None:
            shared: list[list[str]] = []

            def test(carries: list[str]) -> str:
                shared.append(spread(carries))
                return self._test(loop, shared[-1])

            last = self.emit_while(
                kinds, starts, test, lambda _: joined(self._masked(loop, shared[-1]))
            )
        else:
            last = self.emit_loop(
                loop.loop.length, kinds, starts,
                lambda number, carries: joined(self._step(loop, number, spread(carries))),
            )  # fmt: skip
        self.trigonometry.known = known
        return spread(last)

    def _step(self, loop: InLoop[Stored], number: str, carries: list[str]) -> list[str]:
        last = (loop.loop.length or 0) - 1
        index = self.emit(f"sub i64 {last}, {number}") if loop.loop.reverse else number
        loop.begin(carries, index)
        ahead = loop.finish()
        loop.bring()
        return ahead

    def _spread(self, of: str, value: str) -> str:
        """A vector of a number of an LLVM type, which is known by it from now on."""
        kind, places = f"<{self.lanes} x {of}>", f"<{self.lanes} x i32> zeroinitializer"
        first = self.emit(f"insertelement {kind} poison, {of} {value}, i64 0")
        vector = self.emit(f"shufflevector {kind} {first}, {kind} poison, {places}")
        self._numbers[vector] = value
        return vector

    def _known_one(self, value: str) -> str | None:
        """The number of which all lanes of a vector are known to be."""
        if value.startswith("splat (i32 "):
            return value[len("splat (i32 ") : -1]
        return self._numbers.get(value)

    def _one(self, dtype: str, value: str) -> str:
        """The number that all lanes of a vector have."""
        known = self._known_one(value)
        return known or self.emit(f"extractelement {self.vector(dtype)} {value}, i64 0")

    def _test(self, loop: InLoop[Stored], carries: list[str]) -> str:
        """Tests whether any lane goes on; the lanes that do become the scope's mask."""
        loop.begin(carries)
        scope, kind = self.scope, self.vector("bool")
        mask = self.operand(loop.condition)
        if scope.where.same[loop.condition]:
            return self._one("bool", mask)
        scope.mask = mask if scope.mask is None else self.emit(f"and {kind} {mask}, {scope.mask}")
        bits = self.emit(f"bitcast {kind} {scope.mask} to i{self.lanes}")
        return self.emit(f"icmp ne i{self.lanes} {bits}, 0")

    def _masked(self, loop: InLoop[Stored], carries: list[str]) -> list[str]:
        ahead, mask = loop.finish(), self.scope.mask
        loop.bring()
        if mask is None or self.scope.where.same[loop.condition]:
            return ahead
        rows = zip(map(self.vector, loop.dtypes), ahead, carries, strict=True)
        return [self.select(kind, mask, new, old) for kind, new, old in rows]

    def _address(self, array: Stored, index: str | int) -> str:
        """Computes the address of an array's entry from its number, which may be an i64."""
        width = array.width(self.lanes)
        offset, near = array.offset + width * array.start, array.pointer
        if isinstance(index, int):
            offset += width * array.stride * index
        else:
            distance = self.emit(f"mul i64 {index}, {width * array.stride}")
            near = self.emit(f"getelementptr i8, ptr {near}, i64 {distance}")
        return self.emit(f"getelementptr i8, ptr {near}, i64 {offset}")

    def view_of(self, array: Stored, entry: int, lane: str) -> str:
        """The address of an entry in a lane, by that lane's number."""
        place = self._address(array, entry)
        if array.shared:
            return place
        return self.emit(f"getelementptr {memory_element(array.dtype)}, ptr {place}, i64 {lane}")

    def load(self, array: Stored, index: str | int) -> str:
        """An entry, by its number, which may be an i64."""
        of = memory_element(array.dtype)
        place = self._address(array, index)
        if array.shared:
            value = self._spread(of, self.emit(f"load {of}, ptr {place}"))
        else:
            aligned = f"align {self._alignment(array)}"
            value = self.emit(f"load <{self.lanes} x {of}>, ptr {place}, {aligned}")
        return self.from_memory(array.dtype, value)

    def put(self, array: Stored, index: str | int, value: str) -> None:
        """Writes an entry, by its number, which may be an i64."""
        self._store(array, index, self.to_memory(array.dtype, value))

    def _store(self, array: Stored, index: str | int, value: str) -> None:
        """The same, of a vector as memory has it."""
        kind, place = f"<{self.lanes} x {memory_element(array.dtype)}>", self._address(array, index)
        self.lines.append(f"store {kind} {value}, ptr {place}, align {self._alignment(array)}")

    def copy(self, source: Stored, target: Stored, count: int, mask: str | None = None) -> None:
        """Copies entries one by one, in the lanes of a mask."""

        def step(k: str) -> None:
            value = self.load(source, k)
            if mask is not None:
                value = self.select(self.vector(source.dtype), mask, value, self.load(target, k))
            self.put(target, k, value)

        self.each(count, step)

    def write(self, op: Op, array: Stored, place: str, value: str) -> None:
        """Writes each lane's own entry, or that of all."""
        mask = self.scope.mask
        if self.scope.where.same[op.args[1]]:
            index = self._index(place)
            if mask is not None:
                value = self.select(self.vector(op.dtype), mask, value, self.load(array, index))
            self.put(array, index, value)
            return
        lanes, every = self.lanes, self.vector("bool")
        kind, where = f"<{lanes} x {memory_element(array.dtype)}>", mask or "splat (i1 true)"
        pointers = self._pointers(array, place)
        name = f"llvm.masked.scatter.{suffix(kind)}.v{lanes}p0"
        self.declare(name, f"declare void @{name}({kind}, <{lanes} x ptr>, i32 immarg, {every})")
        value = self.to_memory(array.dtype, value)
        self.lines.append(f"call void @{name}({kind} {value}, {pointers}, {every} {where})")

    def _alignment(self, array: Stored) -> int:
        return min(ALIGNED, array.width(self.lanes))

    def fill(self, position: int, args: Sequence[int]) -> None:
        """Writes entries that are in no table."""
        array = self.stored(position)
        if array.shared:
            return
        for start, count, distance in runs(self.scope.program, args):
            first, target = args[start], array.view(start, 1)
            if count < limits.FEW:
                for k, i in enumerate(args[start : start + count]):
                    self.put(target, k, self.operand(i))
            elif distance:
                self.copy(self.stored(first).view(0, distance), target, count)
            else:
                self.each(count, functools.partial(self.put, target, value=self.operand(first)))

    def _deinterleave(self, position: int, op: Op) -> None:
        """Stores a vector for each entry of an input leaf."""
        number, array = op.attr[0], self.stored(position)
        leaf = self.program.inputs[number]
        if leaf.size < self.lanes:
            for k in range(leaf.size):
                self.put(array, k, self.leaves.load(number, leaf, k))
            return
        last = leaf.size - self.lanes

        def square(step: str) -> None:
            first = self.emit(f"mul i64 {step}, {self.lanes}")
            over = self.emit(f"icmp sgt i64 {first}, {last}")
            first = self.emit(f"select i1 {over}, i64 {last}, i64 {first}")
            values = self.leaves.square(start, leaf, first)
            row = Stored(self._address(array, first), leaf.dtype)
            for k, value in enumerate(values):
                self._store(row, k, value)

        start = self.leaves.start(number)
        self.each(-(-leaf.size // self.lanes), square)

    def _entry(self, op: Op) -> str:
        """The entry of an array at a place that is computed."""
        array, place = self.stored(op.args[0]), self.operand(op.args[1])
        if self.scope.where.same[op.args[1]]:
            return self.load(array, self._index(place))
        lanes, every = self.lanes, self.vector("bool")
        kind = f"<{lanes} x {memory_element(array.dtype)}>"
        pointers = self._pointers(array, place)
        name = f"llvm.masked.gather.{suffix(kind)}.v{lanes}p0"
        self.declare(name, f"declare {kind} @{name}(<{lanes} x ptr>, i32 immarg, {every}, {kind})")
        value = self.emit(
            f"call {kind} @{name}({pointers}, {every} splat (i1 true), {kind} poison)"
        )
        return self.from_memory(array.dtype, value)

    def _index(self, place: str) -> str:
        """The place, an i64, that is the same in all lanes."""
        return self.emit(f"sext i32 {self._one('int32', place)} to i64")

    def _pointers(self, array: Stored, place: str) -> str:
        """The addresses of each lane's own entry, and their alignment, as intrinsics take them."""
        of, lanes = memory_element(array.dtype), self.lanes
        places = f"<{lanes} x i32>"
        if array.stride != 1:
            place = self.emit(f"mul {places} {place}, splat (i32 {array.stride})")
        if not array.shared:
            place = self.emit(f"mul {places} {place}, splat (i32 {lanes})")
            indices = ", ".join(f"i32 {k}" for k in range(lanes))
            place = self.emit(f"add {places} {place}, <{indices}>")
        base = self._address(array.view(0, 1), 0)
        pointers = self.emit(f"getelementptr {of}, ptr {base}, {places} {place}")
        return f"<{lanes} x ptr> {pointers}, i32 {np.dtype(array.dtype).itemsize}"

    def compute(self, op: Op) -> str:
        """The vector that an operation computes."""
        if op.name == "read":
            return self._entry(op)
        args = [self.operand(a) for a in op.args]
        of = self.scope.program.ops[op.args[0]].dtype
        name, kind = op.name, self.vector(of)
        if of == "int32" and name in _COUNTING:
            ones = [one for one in map(self._known_one, args) if one is not None]
            if len(ones) == len(args):
                text = OPERATIONS[name].llvm_int.format(*ones, t="i32", e="i32", s="s", j="")
                return self._spread(element(op.dtype), self.emit(text))
        if name == "call" and op.attr in ("sin", "cos"):
            needed = [f for f in ("sin", "cos") if op._replace(attr=f) in self.scope.where.calls]
            return self.trigonometry.value(op.attr, op.dtype, args[0], needed)
        if name == "call":
            return self.call(op.attr, op.dtype, args)
        if name == "select":
            return self.select(self.vector(op.dtype), *args)
        if name == "convert":
            return self._convert(of, op.dtype, args[0])
        if name == "bitcast":
            return self.emit(f"bitcast {kind} {args[0]} to {self.vector(op.dtype)}")
        if name in ("max", "min"):
            return self._extreme(name, of, args)
        if name == "rem" and of in FLOATS:
            return self.call("fmod", op.dtype, args)
        return self._plain(name, of, args, "" if op.attr == ROUNDED else " contract")

    def _plain(self, name: str, of: str, args: Sequence[str], contract: str = "") -> str:
        """One instruction, of arguments of a dtype."""
        known, kind = OPERATIONS[name], self.vector(of)
        text = known.llvm if of in FLOATS else known.llvm_int
        if text.startswith("@"):
            name, *flag = text[1:].split()
            return self.intrinsic(name, kind, args, *flag)
        sign = "u" if of.startswith("u") or of == "bool" else "s"
        return self.emit(text.format(*args, t=kind, e=element(of), s=sign, j=contract))

    def _extreme(self, name: str, of: str, args: Sequence[str]) -> str:
        """The greater or lesser; of floats NaN where the first is, else what comparing gives."""
        kind = self.vector(of)
        better = self._plain({"max": "ge", "min": "le"}[name], of, args)
        if of in FLOATS:
            nan = self.emit(f"fcmp uno {kind} {args[0]}, {args[0]}")
            better = self.emit(f"or {self.vector('bool')} {better}, {nan}")
        return self.select(kind, better, *args)

    def _convert(self, of: str, to: str, x: str) -> str:
        source, target = self.vector(of), self.vector(to)
        if of in FLOATS and to in FLOATS:
            kind = "fpext" if to == "float64" else "fptrunc"
            return self.emit(f"{kind} {source} {x} to {target}")
        if of in FLOATS:
            kind = "fptoui" if to.startswith("u") else "fptosi"
            symbol = f"llvm.{kind}.sat.{suffix(target)}.{suffix(source)}"
            self.declare(symbol, f"declare {target} @{symbol}({source})")
            return self.emit(f"call {target} @{symbol}({source} {x})")
        signed = not (of.startswith("u") or of == "bool")
        if to in FLOATS:
            return self.emit(f"{'sitofp' if signed else 'uitofp'} {source} {x} to {target}")
        if element(of) == element(to):
            return x
        wide, narrow = np.dtype(to).itemsize, np.dtype(of).itemsize
        grows = of == "bool" or wide > narrow
        kind = ("sext" if signed else "zext") if grows else "trunc"
        return self.emit(f"{kind} {source} {x} to {target}")


def objects(program: ScalarProgram, lanes: int) -> Objects:
    """The machine code of a program; its function `body` is as `body` says."""
    text, arrays = body(program, lanes), memory(program, lanes)[1]
    width = max(np.dtype(dtype).itemsize for dtype in program.dtypes)
    size = -(-width * lanes // ALIGNED) * ALIGNED  # of a kept vector, of any dtype
    return objects_of(text, stack=arrays + size * text.count(" = "))


def body(program: ScalarProgram, lanes: int) -> str:
    """A module with the function `body` of two tables of pointers and a number of points.

    `ins` is a table of two words for each input leaf, its address and the bytes from one vector of
    points to the next; `outs` is a table of the addresses of what is written of the output leaves
    (`veenv.kernel.cpu.size`). Points lie one after the other; the last vector is computed whole.
    """
    steps, arrays = Instructions(program, lanes), memory(program, lanes)[1]
    scratch = f"  %kept = alloca [{arrays} x i8], align {ALIGNED}\n" if arrays else ""
    function = f"""\
declare i64 @llvm.smin.i64(i64, i64)

define void @body(ptr noalias %ins, ptr noalias %outs, i64 %points) #0 {{
entry:
{scratch}  %none = icmp eq i64 %points, 0
  %never = icmp slt i64 %points, 0
  br i1 %none, label %exit, label %loop
loop:
  %step = phi i64 [ 0, %entry ], [ %next, %last ]
  %left = phi i64 [ %points, %entry ], [ %after, %last ]
  %filled = call i64 @llvm.smin.i64(i64 %left, i64 {lanes})
  br label %first
first:
{steps.text()}
  br label %last
last:
  %next = add i64 %step, 1
  %after = sub i64 %left, {lanes}
  %more = icmp sgt i64 %after, 0
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}"""
    return module(lanes, steps.declared.values(), function)
