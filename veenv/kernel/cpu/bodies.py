"""Operations of a scalar program as instructions of LLVM IR, for vectors of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from veenv.kernel.cpu.emitter import Emitter, element, literal, memory_element, suffix
from veenv.kernel.cpu.layout import Leaves
from veenv.kernel.cpu.outputs import writes_of
from veenv.kernel.cpu.trigonometry import Trigonometry
from veenv.kernel.program import FLOATS, FREE, ROUNDED, Op, ScalarProgram
from veenv.rules.operations import OPERATIONS

ALIGNED = 64
"""Bytes of a cache line, at whose start each value lies that sections keep."""


class Instructions(Emitter):
    """The instructions of operations that follow one another, at one vector of points.

    They read and write through `%ins` and `%outs` (see `veenv.kernel.cpu.sections`), of the vector
    with the number `%step`; values of operations before these come from `%kept`.

    Args:
      program: what to compute.
      lanes: width of the vectors.
      span: the positions of the operations.
      kept: for each operation that is kept its place in that memory, in bytes.
    """

    def __init__(self, program: ScalarProgram, lanes: int, span: range, kept: Mapping[int, int]):
        super().__init__(lanes)
        self.program, self.span, self.kept = program, span, kept
        self._names: dict[int, str] = {}
        self.leaves = Leaves(self)
        self.trigonometry = Trigonometry(self)
        self._calls = {program.ops[i] for i in span if program.ops[i].name == "call"}

    def text(self) -> str:
        """Blocks of LLVM IR; they need a block `exit` and a condition `%never`, which is false."""
        writes = writes_of(self.program)
        for position in self.span:
            op = self.program.ops[position]
            if op.name not in FREE:
                self._names[position] = self._operation(op)
            if position in self.kept:
                self._keep(position, op.dtype)
            for number, made, value in writes.get(position, ()):
                if value is None:
                    self.leaves.store(number, made.stored, [self._operand(i) for i in made.ids])
                else:
                    self.leaves.store_value(number, made.stored, value, self._operand(position))
        return "\n".join(self.lines)

    def _operand(self, i: int) -> str:
        known = self._names.get(i)
        if known is not None:
            return known
        op = self.program.ops[i]
        if op.name == "const":
            name = f"splat ({element(op.dtype)} {literal(op.attr)})"
        elif op.name == "input":
            number, entry = op.attr
            name = self.leaves.load(number, self.program.inputs[number], entry)
        else:
            name = self._kept(i, op.dtype)
        self._names[i] = name
        return name

    def _keep(self, position: int, dtype: str) -> None:
        """Stores a value for later sections."""
        value, kind = self._names[position], f"<{self.lanes} x {memory_element(dtype)}>"
        if dtype == "bool":
            value = self.emit(f"zext {self.vector(dtype)} {value} to {kind}")
        place = self.emit(f"getelementptr i8, ptr %kept, i64 {self.kept[position]}")
        self.lines.append(f"store {kind} {value}, ptr {place}, align {ALIGNED}")

    def _kept(self, position: int, dtype: str) -> str:
        """A value that an earlier section stored."""
        kind = f"<{self.lanes} x {memory_element(dtype)}>"
        place = self.emit(f"getelementptr i8, ptr %kept, i64 {self.kept[position]}")
        value = self.emit(f"load {kind}, ptr {place}, align {ALIGNED}")
        if dtype == "bool":
            return self.emit(f"icmp ne {kind} {value}, zeroinitializer")
        return value

    def _operation(self, op: Op) -> str:
        args = [self._operand(a) for a in op.args]
        of = self.program.ops[op.args[0]].dtype
        name, kind = op.name, self.vector(of)
        if name == "call" and op.attr in ("sin", "cos"):
            needed = [f for f in ("sin", "cos") if op._replace(attr=f) in self._calls]
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
