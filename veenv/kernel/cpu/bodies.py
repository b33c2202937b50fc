"""Operations of a scalar program as instructions of LLVM IR, for vectors of points."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from veenv.kernel.cpu.arrays import ALIGNED, Stored, memory, table
from veenv.kernel.cpu.emitter import Emitter, element, literal, memory_element, suffix
from veenv.kernel.cpu.layout import Leaves
from veenv.kernel.cpu.loop_code import LoopCode, Scope
from veenv.kernel.cpu.outputs import writes_of
from veenv.kernel.cpu.trigonometry import Trigonometry
from veenv.kernel.ordering import entries
from veenv.kernel.program import FLOATS, FREE, ROUNDED, Op, ScalarProgram
from veenv.rules.operations import OPERATIONS

_EQUAL = 16
"""Equal entries from which on a loop stores them: it is no longer than they are."""


class Instructions(Emitter):
    """The instructions of operations that follow one another, at one vector of points.

    They read and write through `%ins` and `%outs` (see `veenv.kernel.cpu.sections`), of the vector
    with the number `%step`; values of operations before these are in `%kept`, at places in bytes
    that `kept` says by operation, and from `base` on arrays.
    """

    memory, tables = "ptr %kept", ""  # a pointer with its type, and a space of addresses

    def __init__(
        self,
        program: ScalarProgram,
        lanes: int,
        span: range,
        kept: Mapping[int, int],
        base: int = 0,
    ):
        super().__init__(lanes)
        self.program, self.span, self.kept = program, span, kept
        self.scope = Scope(program, memory(program, lanes, base)[0])
        self.scope.calls = {op for op in program.ops[span.start : span.stop] if op.name == "call"}
        self.leaves = Leaves(self)
        self.trigonometry = Trigonometry(self)

    def text(self) -> str:
        """Blocks of LLVM IR; they need a block `exit` and a condition `%never`, which is false."""
        writes = writes_of(self.program)
        for position in self.span:
            self.run(position)
            if position in self.kept:
                dtype, value = self.program.ops[position].dtype, self.scope.names[position]
                self.put(Stored(self.memory, dtype, self.kept[position]), 0, value)
            for number, made, value, count in writes.get(position, ()):
                if value is None:
                    self.leaves.store(number, made.stored, [self.operand(i) for i in made.ids])
                elif count > 1:
                    source = self._address(self.stored(position), 0)
                    self.leaves.copy(number, made.stored, value, count, source)
                else:
                    self.leaves.store_value(number, made.stored, value, self.operand(position))
        return "\n".join(self.lines)

    def run(self, position: int) -> None:
        """Writes an operation of the scope."""
        op = self.scope.program.ops[position]
        if op.name == "loop":
            LoopCode(self, position).write()
        elif op.name == "array":
            self._fill_array(position, op)
        elif op.name == "write":
            self._write(position, op)
        elif op.name == "input" and op.attr[1] is None and not self.scope.inputs:
            self._unweave(position, op)
        elif op.name not in FREE:
            self.scope.names[position] = self._operation(op)

    def operand(self, i: int) -> str:
        """The name of a number."""
        names = self.scope.names
        known = names.get(i)
        if known is not None:
            return known
        op = self.scope.program.ops[i]
        if op.name == "const":
            name = f"splat ({element(op.dtype)} {literal(op.attr)})"
        elif op.name == "entry":
            name = self.load(self.stored(op.args[0]), op.attr)
        elif op.name == "input" and self.scope.inputs:
            number, entry = op.attr
            given = self.scope.inputs[number]
            if isinstance(given, Stored):
                name = self.load(given, entry)
            else:
                name = given if isinstance(given, str) else given()
        elif op.name == "input":
            name = self._input(*op.attr)
        else:
            name = self.load(Stored(self.memory, op.dtype, self.kept[i]), 0)
        names[i] = name
        return name

    def _input(self, number: int, entry: int) -> str:
        """An entry of an input leaf."""
        return self.leaves.load(number, self.program.inputs[number], entry)

    def stored(self, i: int) -> Stored:
        """Where an array is, or the array that an entry is the first of."""
        scope = self.scope
        op = scope.program.ops[i]
        if op.name == "view":
            return self.stored(op.args[0]).view(*op.attr[:2])
        if op.name == "entry":
            return self.stored(op.args[0]).view(op.attr, 1)
        if op.name == "input" and scope.inputs:
            given = scope.inputs[op.attr[0]]
            assert isinstance(given, Stored)
            return given
        if op.name == "write" and (i, 0) in scope.in_place:
            return self.stored(op.args[0])
        if op.name == "part" and op.attr < scope.program.ops[op.args[0]].attr.carries:
            return self.carried(op.args[0], op.attr)
        constant = table(scope.program, i, self.tables)
        if constant is not None:
            self.declare(*constant)
            return Stored(f"ptr{self.tables} {constant[0]}", op.dtype, shared=True)
        return Stored(self.memory, op.dtype, scope.places[i, 0 if op.name == "write" else None])

    def carried(self, loop: int, k: int) -> Stored:
        """Where an array is that a loop carries."""
        scope = self.scope
        if (loop, k) in scope.in_place:
            return self.stored(scope.program.ops[loop].args[k])
        dtype = scope.program.ops[loop].attr.body.inputs[k].dtype
        return Stored(self.memory, dtype, scope.places[loop, k])

    def _address(self, array: Stored, index: str | int) -> str:
        """Where an entry of an array is, with its type, by its number, which may be an i64."""
        width, kind = array.width(self.lanes), array.pointer.rpartition(" ")[0]
        offset, near = array.offset + width * array.start, array.pointer
        if isinstance(index, int):
            offset += width * array.stride * index
        else:
            moved = self.emit(f"mul i64 {index}, {width * array.stride}")
            near = f"{kind} {self.emit(f'getelementptr i8, {near}, i64 {moved}')}"
        return f"{kind} {self.emit(f'getelementptr i8, {near}, i64 {offset}')}"

    def load(self, array: Stored, index: str | int) -> str:
        """An entry of an array, by its number, which may be an i64."""
        of = memory_element(array.dtype)
        place = self._address(array, index)
        kind = f"<{self.lanes} x {of}>"
        if array.shared:
            one = self.emit(f"load {of}, {place}{array.loads}")
            first = self.emit(f"insertelement {kind} poison, {of} {one}, i64 0")
            value = self.emit(
                f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> zeroinitializer"
            )
        else:
            aligned = f"align {self._alignment(array)}{array.loads}"
            value = self.emit(f"load {kind}, {place}, {aligned}")
        return self.from_memory(array.dtype, value)

    def put(self, array: Stored, index: str | int, value: str) -> None:
        """Writes an entry of an array."""
        self._store(array, index, self.to_memory(array.dtype, value))

    def _store(self, array: Stored, index: str | int, value: str) -> None:
        """The same, of a vector as memory has it."""
        kind, place = f"<{self.lanes} x {memory_element(array.dtype)}>", self._address(array, index)
        self.lines.append(f"store {kind} {value}, {place}, align {self._alignment(array)}")

    def copy(self, source: Stored, target: Stored, count: int, mask: str | None = None) -> None:
        """Copies the entries of an array, in the lanes of a mask."""

        def step(k: str) -> None:
            value = self.load(source, k)
            if mask is not None:
                value = self.select(self.vector(source.dtype), mask, value, self.load(target, k))
            self.put(target, k, value)

        self.each(count, step)

    def _write(self, position: int, op: Op) -> None:
        """Writes an entry of an array at a place that is computed, where the loop goes on."""
        array, mask = self.stored(position), self.scope.mask
        place, value = (self.operand(a) for a in op.args[1:])
        if (position, 0) not in self.scope.in_place:
            count = entries(self.scope.program, position)
            self.copy(self.stored(op.args[0]), array, count)
        if self.lanes == 1 or self.scope.same[op.args[1]]:
            index = self._index(place)
            if mask is not None:
                value = self.select(self.vector(op.dtype), mask, value, self.load(array, index))
            self.put(array, index, value)
            return
        of, lanes = memory_element(array.dtype), self.lanes
        kind, every = f"<{lanes} x {of}>", f"<{lanes} x i1>"
        pointers = self._pointers(array, place)
        name = f"llvm.masked.scatter.{suffix(kind)}.v{lanes}p0"
        self.declare(name, f"declare void @{name}({kind}, <{lanes} x ptr>, i32 immarg, {every})")
        value, aligned = self.to_memory(array.dtype, value), np.dtype(array.dtype).itemsize
        self.lines.append(
            f"call void @{name}({kind} {value}, <{lanes} x ptr> {pointers}, i32 {aligned}, "
            f"{every} {mask or 'splat (i1 true)'})"
        )

    def _alignment(self, array: Stored) -> int:
        return min(ALIGNED, array.width(self.lanes))

    def _fill_array(self, position: int, op: Op) -> None:
        """Stores the entries of an array that is no table."""
        array, k = self.stored(position), 0
        if array.shared:
            return
        for a, equal in groupby(op.args):
            count, value = sum(1 for _ in equal), self.operand(a)
            if count < _EQUAL:
                for e in range(k, k + count):
                    self.put(array, e, value)
            else:
                self.each(count, functools.partial(self.put, array.view(k, 1), value=value))
            k += count

    def _unweave(self, position: int, op: Op) -> None:
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

    def _read(self, op: Op) -> str:
        """The entry of an array at a place that is computed."""
        array, place = self.stored(op.args[0]), self.operand(op.args[1])
        if self.lanes == 1 or self.scope.same[op.args[1]]:
            return self.load(array, self._index(place))
        of, lanes = memory_element(array.dtype), self.lanes
        kind = f"<{lanes} x {of}>"
        pointers = self._pointers(array, place)
        name = f"llvm.masked.gather.{suffix(kind)}.v{lanes}p0"
        every = f"<{lanes} x i1>"
        self.declare(name, f"declare {kind} @{name}(<{lanes} x ptr>, i32 immarg, {every}, {kind})")
        aligned = np.dtype(array.dtype).itemsize
        value = self.emit(
            f"call {kind} @{name}(<{lanes} x ptr> {pointers}, i32 {aligned}, "
            f"{every} splat (i1 true), {kind} poison)"
        )
        return self.from_memory(array.dtype, value)

    def _index(self, place: str) -> str:
        """The place, an i64, that is the same in all lanes."""
        one = self.emit(f"extractelement <{self.lanes} x i32> {place}, i64 0")
        return self.emit(f"sext i32 {one} to i64")

    def _pointers(self, array: Stored, place: str) -> str:
        """The addresses of each lane's own entry."""
        of, lanes = memory_element(array.dtype), self.lanes
        places = f"<{lanes} x i32>"
        if array.stride != 1:
            place = self.emit(f"mul {places} {place}, splat (i32 {array.stride})")
        if not array.shared:
            place = self.emit(f"mul {places} {place}, splat (i32 {lanes})")
            own = ", ".join(f"i32 {k}" for k in range(lanes))
            place = self.emit(f"add {places} {place}, <{own}>")
        base = self._address(array.view(0, 1), 0)
        return self.emit(f"getelementptr {of}, {base}, {places} {place}")

    def _operation(self, op: Op) -> str:
        if op.name == "read":
            return self._read(op)
        args = [self.operand(a) for a in op.args]
        of = self.scope.program.ops[op.args[0]].dtype
        name, kind = op.name, self.vector(of)
        if name == "call" and op.attr in ("sin", "cos"):
            needed = [f for f in ("sin", "cos") if op._replace(attr=f) in self.scope.calls]
            return self.trigonometry.value(op.attr, op.dtype, args[0], needed)
        if name == "call":
            return self.call(op.attr, op.dtype, args)
        if name == "select":
            rest = ", ".join(f"{self.vector(op.dtype)} {a}" for a in args[1:])
            return self.emit(f"select {kind} {args[0]}, {rest}")
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
        return self.emit(
            f"select {self.vector('bool')} {better}, {kind} {args[0]}, {kind} {args[1]}"
        )

    def _convert(self, of: str, to: str, x: str) -> str:
        source, target = self.vector(of), self.vector(to)
        if of in FLOATS and to in FLOATS:
            return self.emit(
                f"{'fpext' if to == 'float64' else 'fptrunc'} {source} {x} to {target}"
            )
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
