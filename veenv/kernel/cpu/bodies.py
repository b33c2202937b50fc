"""Operations of a scalar program as instructions of LLVM IR, for vectors of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from veenv.kernel.cpu.functions import PURE, lanewise, lanewise_name, vector_symbol
from veenv.kernel.cpu.leaves import Leaves
from veenv.kernel.cpu.outputs import writes_of
from veenv.kernel.cpu.trigonometry import Trigonometry
from veenv.kernel.cpu.types import element, intrinsic, literal, memory_element, suffix
from veenv.kernel.program import FLOATS, FREE, ROUNDED, Op, ScalarProgram

_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
_INTRINSICS = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
}
_INTEGER_OPS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "shl": "shl",
    "shr_a": "ashr",
    "shr_l": "lshr",
}
ALIGNED = 64
"""Bytes of a cache line, at whose start each value lies that sections keep."""
_BLOCK = 250
"""Instructions of a basic block: the code generator takes more than linear time in it."""


class Instructions:
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
        self.program = program
        self.lanes = lanes
        self.span, self.kept = span, kept
        self.declared: dict[str, str] = {}
        self.lines: list[str] = []
        self._fresh = -1
        self._block_has: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self.leaves = Leaves(lanes, self.lines, self._emit, self._once, self._declare)
        self.trigonometry = Trigonometry(lanes, self._emit, self._declare, self._call, self._branch)
        self._block, self._start = "first", 0
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

    def _vector(self, dtype: str) -> str:
        return f"<{self.lanes} x {element(dtype)}>"

    def _emit(self, text: str) -> str:
        if len(self.lines) > self._start + _BLOCK:
            self._divide()
        return self._instruction(text)

    def _once(self, text: str) -> str:
        """An instruction without operands, whose result this block may have already."""
        if len(self.lines) > self._start + _BLOCK:
            self._divide()
        if text not in self._block_has:
            self._block_has[text] = self._instruction(text)
        return self._block_has[text]

    def _divide(self) -> None:
        """Begins another basic block."""
        label = f"part{self._fresh}"  # a plain jump would be removed, and the blocks be one
        self._begin(label, f"br i1 %never, label %exit, label %{label}, !prof !1")

    def _instruction(self, text: str) -> str:
        self._fresh += 1  # LLVM numbers values without a name so; names take it longer to read
        name = f"%{self._fresh}"
        self.lines.append(f"{name} = {text}")
        return name

    def _begin(self, label: str, jump: str) -> None:
        """Ends the basic block with a jump and begins another."""
        self.lines += [jump, f"{label}:"]
        self._block, self._start, self._block_has = label, len(self.lines), {}

    def _branch(
        self, condition: str, kind: str, values: list[str], rare: Callable[[], list[str]]
    ) -> list[str]:
        """The values, or where a condition is true, which is rare, those of other code."""
        before, label = self._block, condition.lstrip("%")
        after = f"after_{label}"
        jump = f"br i1 {condition}, label %rare_{label}, label %{after}, !prof !1"
        self._begin(f"rare_{label}", jump)
        others, end = rare(), self._block
        self._begin(after, f"br label %{after}")
        pairs = zip(values, others, strict=True)
        return [
            self._instruction(f"phi {kind} [ {x}, %{before} ], [ {y}, %{end} ]") for x, y in pairs
        ]

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
            value = self._emit(f"zext {self._vector(dtype)} {value} to {kind}")
        place = self._emit(f"getelementptr i8, ptr %kept, i64 {self.kept[position]}")
        self.lines.append(f"store {kind} {value}, ptr {place}, align {ALIGNED}")

    def _kept(self, position: int, dtype: str) -> str:
        """A value that an earlier section stored."""
        kind = f"<{self.lanes} x {memory_element(dtype)}>"
        place = self._emit(f"getelementptr i8, ptr %kept, i64 {self.kept[position]}")
        value = self._emit(f"load {kind}, ptr {place}, align {ALIGNED}")
        if dtype == "bool":
            return self._emit(f"icmp ne {kind} {value}, zeroinitializer")
        return value

    def _operation(self, op: Op) -> str:
        args = [self._operand(a) for a in op.args]
        of = self.program.ops[op.args[0]].dtype
        name, kind = op.name, self._vector(of)
        if name == "call" and op.attr in ("sin", "cos"):
            needed = [f for f in ("sin", "cos") if op._replace(attr=f) in self._calls]
            return self.trigonometry.value(op.attr, op.dtype, args[0], needed)
        if name == "call":
            return self._call(op.attr, op.dtype, args)
        if name == "select":
            rest = ", ".join(f"{self._vector(op.dtype)} {a}" for a in args[1:])
            return self._emit(f"select {kind} {args[0]}, {rest}")
        if name == "convert":
            return self._convert(of, op.dtype, args[0])
        if name == "bitcast":
            return self._emit(f"bitcast {kind} {args[0]} to {self._vector(op.dtype)}")
        if name == "not":
            return self._emit(f"xor {kind} {args[0]}, splat ({element(of)} -1)")
        if name in _PREDICATES:
            return self._compare(name, of, args)
        if name in ("max", "min"):
            return self._extreme(name, of, args)
        if of in FLOATS:
            return self._float(op, kind, args)
        return self._integer(op, kind, args)

    def _float(self, op: Op, kind: str, args: Sequence[str]) -> str:
        if op.name in _FLOAT_OPS:
            contract = "" if op.attr == ROUNDED else "contract "
            return self._emit(f"{_FLOAT_OPS[op.name]} {contract}{kind} {args[0]}, {args[1]}")
        if op.name == "div":
            return self._emit(f"fdiv {kind} {args[0]}, {args[1]}")
        if op.name == "neg":
            return self._emit(f"fneg {kind} {args[0]}")
        if op.name == "rem":
            return self._call("fmod", op.dtype, args)
        return self._intrinsic("fabs" if op.name == "abs" else _INTRINSICS[op.name], kind, args)

    def _integer(self, op: Op, kind: str, args: Sequence[str]) -> str:
        unsigned = op.dtype.startswith("u")
        if op.name == "neg":
            return self._emit(f"sub {kind} zeroinitializer, {args[0]}")
        if op.name == "abs":
            return self._intrinsic("abs", kind, args, "false")
        if op.name in ("div", "rem"):
            return self._emit(f"{'u' if unsigned else 's'}{op.name} {kind} {args[0]}, {args[1]}")
        return self._emit(f"{_INTEGER_OPS[op.name]} {kind} {args[0]}, {args[1]}")

    def _compare(self, name: str, of: str, args: Sequence[str]) -> str:
        kind = self._vector(of)
        if of in FLOATS:
            return self._emit(f"fcmp {_PREDICATES[name]} {kind} {args[0]}, {args[1]}")
        sign = "" if name in ("eq", "ne") else "u" if of.startswith("u") or of == "bool" else "s"
        return self._emit(f"icmp {sign}{name} {kind} {args[0]}, {args[1]}")

    def _extreme(self, name: str, of: str, args: Sequence[str]) -> str:
        """The greater or lesser; of floats NaN where the first is, else what comparing gives."""
        kind = self._vector(of)
        better = self._compare({"max": "ge", "min": "le"}[name], of, args)
        if of in FLOATS:
            nan = self._emit(f"fcmp uno {kind} {args[0]}, {args[0]}")
            better = self._emit(f"or {self._vector('bool')} {better}, {nan}")
        return self._emit(
            f"select {self._vector('bool')} {better}, {kind} {args[0]}, {kind} {args[1]}"
        )

    def _convert(self, of: str, to: str, x: str) -> str:
        source, target = self._vector(of), self._vector(to)
        if of in FLOATS and to in FLOATS:
            return self._emit(
                f"{'fpext' if to == 'float64' else 'fptrunc'} {source} {x} to {target}"
            )
        if of in FLOATS:
            kind = "fptoui" if to.startswith("u") else "fptosi"
            symbol = f"llvm.{kind}.sat.{suffix(target)}.{suffix(source)}"
            self._declare(symbol, f"declare {target} @{symbol}({source})")
            return self._emit(f"call {target} @{symbol}({source} {x})")
        signed = not (of.startswith("u") or of == "bool")
        if to in FLOATS:
            return self._emit(f"{'sitofp' if signed else 'uitofp'} {source} {x} to {target}")
        if element(of) == element(to):
            return x
        wide, narrow = np.dtype(to).itemsize, np.dtype(of).itemsize
        grows = of == "bool" or wide > narrow
        kind = ("sext" if signed else "zext") if grows else "trunc"
        return self._emit(f"{kind} {source} {x} to {target}")

    def _intrinsic(self, name: str, kind: str, args: Sequence[str], flag: str = "") -> str:
        return intrinsic(self._emit, self._declare, name, kind, args, flag)

    def _call(self, function: str, dtype: str, args: Sequence[str]) -> str:
        kind = self._vector(dtype)
        symbol = vector_symbol(function, dtype, self.lanes)
        types = ", ".join([kind] * len(args))
        if symbol is not None:
            self._declare(symbol, f"declare {kind} @{symbol}({types}) {PURE}")
        else:
            symbol = lanewise_name(function, dtype)
            self._declare(symbol, lanewise(function, dtype, self.lanes))
        values = ", ".join(f"{kind} {a}" for a in args)
        return self._emit(f"call {kind} @{symbol}({values}) {PURE}")

    def _declare(self, symbol: str, text: str) -> None:
        self.declared.setdefault(symbol, text)
