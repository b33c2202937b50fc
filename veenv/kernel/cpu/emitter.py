"""LLVM IR as text: how dtypes, constants and modules are written, and instructions one by one.

Functions of whole vectors are those of glibc's libmvec (2.22 and later; 2.35 has them all), which
takes SSE, AVX2 and AVX-512 vectors, with errors of at most 4 units in the last place. Where it is
not, each lane calls libm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from veenv.kernel.cpu.compile import host, is_known
from veenv.kernel.scalar_program import FLOATS

_STACK = 16  # bytes to which every function's stack is aligned
_TYPES = {"float32": "float", "float64": "double", "bool": "i1"}
_BLOCK = 250  # instructions of a basic block: the code generator takes more than linear time in it
PURE = "nounwind willreturn memory(none)"
"""LLVM's attributes of a function of mathematics."""
_LEVELS = {64: "e", 32: "d", 16: "b"}  # how libmvec calls vectors of so many bytes


def element(dtype: str) -> str:
    """The LLVM type of one number in a register."""
    return _TYPES.get(dtype) or f"i{dtype.lstrip('uint')}"


def memory_element(dtype: str) -> str:
    """The LLVM type of one number in memory."""
    return "i8" if dtype == "bool" else element(dtype)


def suffix(kind: str) -> str:
    """An LLVM vector type as it stands in the name of an intrinsic."""
    count, _, of = kind.strip("<>").split()
    return f"v{count}{ {'float': 'f32', 'double': 'f64'}.get(of, of) }"


def literal(value: Any) -> str:
    """A NumPy scalar as an LLVM constant; floats by their bits in double precision."""
    if value.dtype == np.bool_:
        return "true" if value else "false"
    if value.dtype.name in FLOATS:
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return str(int(value))


def module(lanes: int, declarations: Iterable[str], function: str) -> str:
    """A module of one function, which has the attributes `#0`.

    Its stack begins at a multiple of a vector: what does not fit the registers is kept there, and a
    vector in two lines of the cache takes two accesses.
    """
    width, aligned = lanes * 32, host().vector_bytes
    stack = f"alignstack={aligned} " if aligned > _STACK else ""
    tuned = f' "tune-cpu"="{host().tuned}"' if host().tuned else ""
    vectors = f'"prefer-vector-width"="512" "min-legal-vector-width"="{width}"{tuned}'
    return f"""\
{chr(10).join(declarations)}

{function}

!0 = !{{}}
!1 = !{{!"branch_weights", i32 1, i32 1000000}}
attributes #0 = {{ nounwind {stack}{vectors} }}
"""


class Emitter:
    """The instructions of a function that follow one another, in basic blocks that are not long.

    The function needs a block `exit` and a condition `%never`, which is false, where they are many.

    Attributes:
      lanes: width of the vectors.
      lines: the instructions so far.
      declared: what they call and read, by symbol.
      joins: whether the processor multiplies and adds in one instruction.
    """

    def __init__(self, lanes: int):
        self.lanes, self.joins = lanes, host().fma
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self._fresh = -1
        self._block, self._start = "first", 0
        self._block_has: dict[str, str] = {}
        self._open: dict[str, int] = {}

    def vector(self, dtype: str) -> str:
        """The type of a vector in registers."""
        return f"<{self.lanes} x {element(dtype)}>"

    def number(self, dtype: str, value: float) -> str:
        """A vector of equal constants."""
        return f"splat ({element(dtype)} {literal(np.dtype(dtype).type(value))})"

    def emit(self, text: str) -> str:
        """Adds an instruction; returns the name of its result."""
        self._divide()
        return self._instruction(text)

    def once(self, text: str) -> str:
        """An instruction without operands, whose result this block may have already."""
        self._divide()
        if text not in self._block_has:
            self._block_has[text] = self._instruction(text)
        return self._block_has[text]

    def declare(self, symbol: str, text: str) -> None:
        """Declares what is called or read."""
        self.declared.setdefault(symbol, text)

    def intrinsic(self, name: str, kind: str, args: Sequence[str], flag: str = "") -> str:
        """Calls an intrinsic, such as "fma", of vectors of one type; some take a flag, too."""
        symbol = f"llvm.{name}.{suffix(kind)}"
        types = [kind] * len(args) + ["i1"] * bool(flag)
        self.declare(symbol, f"declare {kind} @{symbol}({', '.join(types)})")
        values = [*args, flag] if flag else args
        pairs = ", ".join(f"{t} {v}" for t, v in zip(types, values, strict=True))
        return self.emit(f"call {kind} @{symbol}({pairs})")

    def fma(self, kind: str, x: str, y: str, z: str) -> str:
        """x · y + z, rounded once."""
        return self.intrinsic("fma", kind, [x, y, z])

    def select(self, kind: str, where: str, x: str, y: str) -> str:
        """x in the lanes of a mask, y in others."""
        return self.emit(f"select <{self.lanes} x i1> {where}, {kind} {x}, {kind} {y}")

    def from_memory(self, dtype: str, value: str) -> str:
        """A vector as registers have it: bools are bytes in memory."""
        if dtype != "bool":
            return value
        return self.emit(f"icmp ne <{self.lanes} x i8> {value}, zeroinitializer")

    def to_memory(self, dtype: str, value: str) -> str:
        """A vector as memory has it."""
        if dtype != "bool":
            return value
        return self.emit(f"zext <{self.lanes} x i1> {value} to <{self.lanes} x i8>")

    def call(self, function: str, dtype: str, args: Sequence[str]) -> str:
        """Calls a function of libm for each lane: for all at once, for halves, or one by one."""
        half, count = self.lanes // 2, len(args)
        whole = vector_symbol(function, dtype, self.lanes, count)
        if whole or not vector_symbol(function, dtype, half, count):
            return self._call(function, dtype, self.lanes, args)
        kind, results, part = self.vector(dtype), list[str](), f"<{half} x {element(dtype)}>"
        for first in (0, half):
            mask = int_vector(range(first, first + half))
            parts = [self.emit(f"shufflevector {kind} {x}, {kind} poison, {mask}") for x in args]
            results.append(f"{part} {self._call(function, dtype, half, parts)}")
        return self.emit(f"shufflevector {', '.join(results)}, {int_vector(range(self.lanes))}")

    def _call(self, function: str, dtype: str, lanes: int, args: Sequence[str]) -> str:
        kind = f"<{lanes} x {element(dtype)}>"
        symbol = vector_symbol(function, dtype, lanes, len(args))
        if symbol is not None:
            types = ", ".join([kind] * len(args))
            self.declare(symbol, f"declare {kind} @{symbol}({types}) {PURE}")
        else:
            symbol = f"lanes_{function}_{dtype}"
            self.declare(symbol, _lanewise(symbol, function, dtype, lanes, len(args)))
        values = ", ".join(f"{kind} {a}" for a in args)
        return self.emit(f"call {kind} @{symbol}({values}) {PURE}")

    def branch(
        self, condition: str, kind: str, values: Sequence[str], rare: Callable[[], list[str]]
    ) -> list[str]:
        """The values, or where a condition is true, which is rare, those of other code."""
        before, label = self._block, condition.lstrip("%")
        after = f"after_{label}"
        jump = f"br i1 {condition}, label %rare_{label}, label %{after}, !prof !1"
        self._begin(f"rare_{label}", jump)
        rare_value, end = rare(), self._block
        self._begin(after, f"br label %{after}")
        pairs = zip(values, rare_value, strict=True)
        return [
            self._instruction(f"phi {kind} [ {x}, %{before} ], [ {y}, %{end} ]") for x, y in pairs
        ]

    def either(self, condition: str, first: Callable[[], Any], second: Callable[[], Any]) -> None:
        """Runs one of two pieces of code, by an i1; values of neither are used later."""
        label = condition.lstrip("%")
        self._begin(f"if_{label}", f"br i1 {condition}, label %if_{label}, label %else_{label}")
        first()
        self._begin(f"else_{label}", f"br label %fi_{label}")
        second()
        self._begin(f"fi_{label}", f"br label %fi_{label}")

    def emit_loop(
        self,
        count: int | str,
        kinds: Sequence[str],
        starts: Sequence[str],
        step: Callable[[str, list[str]], list[str]],
    ) -> list[str]:
        """Runs `step` so many times, at least once; returns what is carried out of the last.

        A step goes from its number, an i64, and what is carried to what is carried on; `kinds` are
        LLVM types of what is carried.
        """
        before, label = self._block, f"loop{self._fresh}"
        self._begin(label, f"br label %{label}")
        number, values = self._later(), [self._later() for _ in kinds]
        ahead = step(number, values)
        following = self._instruction(f"add i64 {number}, 1")
        more = self._instruction(f"icmp slt i64 {following}, {count}")
        sources = f"%{before}", f"%{self._block}"
        rows = zip(("i64", *kinds), ("0", *starts), (following, *ahead), strict=True)
        self._fill((number, *values), rows, sources)
        self._begin(f"end_{label}", f"br i1 {more}, label %{label}, label %end_{label}")
        return ahead

    def each(self, count: int | str, do: Callable[[str], None]) -> None:
        """Does something with the number, an i64, of each of so many steps.

        LLVM does not see that it counts: it would look for cheaper addresses for a long time.
        """

        def step(number: str, _: list[str]) -> list[str]:
            return do(self.emit(f'call i64 asm "", "=r,0"(i64 {number})')) or []

        self.emit_loop(count, [], [], step)

    def emit_while(
        self,
        kinds: Sequence[str],
        starts: Sequence[str],
        test: Callable[[list[str]], str],
        step: Callable[[list[str]], list[str]],
    ) -> list[str]:
        """Runs `step` while `test`, an i1, is true; arguments and result as of `emit_loop`."""
        before, label = self._block, f"loop{self._fresh}"
        self._begin(label, f"br label %{label}")
        values = [self._later() for _ in kinds]
        goes_on = test(values)
        self._begin(f"in_{label}", f"br i1 {goes_on}, label %in_{label}, label %end_{label}")
        ahead = step(values)
        sources = f"%{before}", f"%{self._block}"
        self._fill(values, zip(kinds, starts, ahead, strict=True), sources)
        self._begin(f"end_{label}", f"br label %{label}")
        return values

    def _later(self) -> str:
        """The name of a value that comes together of two blocks, to be filled in."""
        name = self._instruction("phi")
        self._open[name] = len(self.lines) - 1
        return name

    def _fill(
        self, names: Sequence[str], rows: Iterable[tuple[str, str, str]], sources: tuple[str, str]
    ) -> None:
        """Says of values of `_later` their type, and what they are from each of two blocks."""
        first, second = sources
        for name, (kind, x, y) in zip(names, rows, strict=True):
            line = f"{name} = phi {kind} [ {x}, {first} ], [ {y}, {second} ]"
            self.lines[self._open.pop(name)] = line

    def _divide(self) -> None:
        """Begins another basic block where this one is long."""
        if len(self.lines) > self._start + _BLOCK:
            label = f"part{self._fresh}"  # a plain jump would be removed, and the blocks be one
            self._begin(label, f"br i1 %never, label %exit, label %{label}, !prof !1")

    def append(self, text: str, length: int) -> None:
        """An instruction without a value, which becomes so many."""
        self.lines.append(text)
        self._start -= length

    def _instruction(self, text: str) -> str:
        self._fresh += 1  # LLVM numbers values without a name so; names take it longer to read
        name = f"%{self._fresh}"
        self.lines.append(f"{name} = {text}")
        return name

    def _begin(self, label: str, jump: str) -> None:
        """Ends the basic block with a jump and begins another."""
        self.lines += [jump, f"{label}:"]
        self._block, self._start, self._block_has = label, len(self.lines), {}


def int_vector(numbers: Iterable[int]) -> str:
    """A constant vector of int32, such as the lanes that a shuffle takes."""
    entries = [f"i32 {k}" for k in numbers]
    return f"<{len(entries)} x i32> <{', '.join(entries)}>"


def scalar_symbol(function: str, dtype: str) -> str:
    """The name of a function of libm for one number."""
    return function + ("f" if dtype == "float32" else "")


def vector_symbol(function: str, dtype: str, lanes: int, count: int) -> str | None:
    """The name of a function of libm for vectors; None where none fits the registers."""
    width = lanes * np.dtype(dtype).itemsize
    if width not in _LEVELS or width > host().vector_bytes:
        return None
    symbol = f"_ZGV{_LEVELS[width]}N{lanes}{'v' * count}_{scalar_symbol(function, dtype)}"
    return symbol if is_known(symbol) else None


def _lanewise(symbol: str, function: str, dtype: str, lanes: int, count: int) -> str:
    """LLVM IR of a function of vectors that calls a scalar function for each lane."""
    of = element(dtype)
    kind, scalar = f"<{lanes} x {of}>", scalar_symbol(function, dtype)
    types = ", ".join([of] * count)
    arguments = ", ".join(f"{kind} %x{k}" for k in range(count))
    parts = "\n".join(f"  %e{k} = extractelement {kind} %x{k}, i64 %i" for k in range(count))
    values = ", ".join(f"{of} %e{k}" for k in range(count))
    return f"""\
declare {of} @{scalar}({types}) {PURE}
define internal {kind} @{symbol}({arguments}) noinline {PURE} {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %n, %loop ]
  %r = phi {kind} [ zeroinitializer, %entry ], [ %s, %loop ]
{parts}
  %y = call {of} @{scalar}({values})
  %s = insertelement {kind} %r, {of} %y, i64 %i
  %n = add i64 %i, 1
  %done = icmp eq i64 %n, {lanes}
  br i1 %done, label %exit, label %loop
exit:
  ret {kind} %s
}}"""
