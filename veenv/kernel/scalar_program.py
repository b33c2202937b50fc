"""Scalar programs: a function of one point as operations on single numbers, one after the other.

This is what the backends share: `veenv.kernel.cpu` makes machine code of it, `veenv.export.to_c` a
C file. It is plain data: no JAX, no NumPy arrays except in constants.

Operations, by name; ``x y z`` stand for arguments, and a result has the dtype that `Op.dtype` says:

| name | meaning |
| --- | --- |
| ``input`` | entry ``attr[1]`` (row-major) of input leaf ``attr[0]`` |
| ``const`` | the NumPy scalar ``attr`` |
| ``add sub mul div neg abs`` | arithmetic; integers wrap, integer ``div`` truncates |
| ``max min`` | NaN where one of both is, as in XLA |
| ``sqrt floor ceil round trunc`` | of floats; ``round`` to even; ``sqrt`` correctly rounded |
| ``rem`` | sign of the first argument, as C's ``fmod`` and ``%`` |
| ``eq ne lt le gt ge`` | comparisons, false for NaN except ``ne``; the result is a bool |
| ``and or xor not`` | of bools or the bits of integers |
| ``shl shr_a shr_l`` | shifts of integers by less than their width |
| ``select`` | ``y if x else z``, x a bool |
| ``convert`` | to `Op.dtype`; float to integer truncates, saturates and takes NaN to 0 |
| ``bitcast`` | the same bits as a dtype of the same width |
| ``call`` | the function of libm that ``attr`` names, such as ``sin`` or ``atan2`` |
| ``array`` | the array of its arguments; an ``input`` with ``attr[1]`` None is a whole leaf |
| ``view`` | ``attr = start, stride, length`` of an array |
| ``entry`` | entry ``attr`` of an array |
| ``read`` | the entry of array x at place y, an int32 that is inside while its loops go on |
| ``write`` | array x with z at place y, an int32 that is inside while its loops go on |
| ``loop`` | a `Loop` |
| ``part`` | result ``attr`` of a loop: a last carry, which may be an array, or what it stacks |

Integer ``div`` and ``rem`` are only emitted where the divisor is neither 0 nor overflows.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from veenv import limits
from veenv.rules.operations import OPERATIONS, SHARED, weight

P = ParamSpec("P")
T = TypeVar("T")
FLOATS = frozenset({"float32", "float64"})
DTYPES = FLOATS | {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
}  # fmt: skip
COMPLEX = {"complex64": "float32", "complex128": "float64"}
"""Dtypes that are pairs of floats while a program is built, and in none that is finished."""
PAIRS = {**COMPLEX, "key<fry>": "uint32"}
"""All dtypes that are pairs: keys of random numbers, too."""
ROUNDED = "rounded"
"""The `attr` of a product that is rounded before it is added, or of a sum that is done with 0."""
COMMUTATIVE = frozenset(name for name, op in OPERATIONS.items() if op.commutative)
FREE = frozenset({"input", "const", "view", "entry", "part"})
"""Operations that compute nothing."""
INDEX = "int32"
"""Dtype of counters and places."""
_OTHER = FREE | {"array", "loop"}


NARROW = {"float16": (5, 10), "bfloat16": (8, 7)}
"""Dtypes that are computed in float32: bits of their exponent and of their mantissa."""


@functools.cache
def dtype_name(dtype: Any) -> str:
    """The name of a dtype that a kernel computes in: NumPy's, or of one of JAX's own.

    NumPy makes it anew each time.
    """
    name = getattr(dtype, "name", str(dtype))
    return "float32" if name in NARROW else name


def remembered(
    fun: Callable[Concatenate[ScalarProgram, P], T],
) -> Callable[Concatenate[ScalarProgram, P], T]:
    """`fun`, computed once for each program that is alive, and for numbers or tuples of them."""
    known: WeakKeyDictionary[ScalarProgram, dict[Any, T]] = WeakKeyDictionary()

    @functools.wraps(fun)
    def computed(program: ScalarProgram, *numbers: P.args, **named: P.kwargs) -> T:
        results, key = known.setdefault(program, {}), (numbers, *named.items())
        if key not in results:
            results[key] = fun(program, *numbers, **named)
        return results[key]

    return computed


class CannotFuseError(ValueError):
    """A function that cannot be one kernel; the message names the primitive and the line.

    Attributes:
      primitive: name of the primitive that has no scalar form; empty where it is not about one.
      reason: why, without the line.
      source: the line; empty if unknown.
    """

    def __init__(self, reason: str, primitive: str = "", source: str = ""):
        where = f" ({source})" if source else ""
        super().__init__(f"{reason}{where}; see errors.html#{type(self).__name__.lower()}")
        self.reason = reason
        self.primitive = primitive
        self.source = source

    def at(self, source: str) -> CannotFuseError:
        """The same of this line, where none is known yet."""
        return type(self)(self.reason, self.primitive, self.source or source)


class TooLongError(CannotFuseError):
    """There are more operations than a program, or a step of a loop, may have."""


class LongStepError(TooLongError):
    """A step of a loop is long for one function, which one core compiles."""


class LongLoopError(CannotFuseError):
    """A loop can neither stay one nor be written out, whatever is around it."""


class Op(NamedTuple):
    """One scalar operation."""

    name: str  # which one; see the module's table
    dtype: str  # dtype of the result, a NumPy name
    args: tuple[int, ...] = ()  # numbers of the operations that its arguments are results of
    attr: Any = None  # what else it needs; None for most


made = functools.partial(tuple.__new__, Op)
"""The operation of a tuple of all its fields, in a quarter of the time."""


@dataclass(frozen=True)
class Strided:
    """Entries of an array at equal distances; subclasses say where the array is."""

    _: KW_ONLY
    start: int = 0  # number of the first one in the array
    stride: int = 1  # how many entries it is to the next one

    def view(self, start: int, stride: int) -> Self:
        """Entries of these at equal distances."""
        return replace(self, start=self.place(start), stride=self.stride * stride)

    def place(self, k: Any) -> Any:
        """The number of its entry k in the array."""
        return self.start + self.stride * k


class Leaf(NamedTuple):
    """Shape and dtype of an input or output at one point."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)


def _plain(attr: Any) -> Any:
    """Returns a hashable form of an operation's `attr`."""
    if isinstance(attr, Loop):
        return attr.digest()
    return attr.tobytes() if isinstance(attr, (np.generic, np.ndarray)) else attr


class Buffer(NamedTuple):
    """A routine's view of an argument of a loop: contiguous entries, with strides along axes."""

    argument: int  # its number; carried ones are written, too
    start: int  # the first entry
    shape: tuple[int, ...]  # number of entries along each axis, the last one first in memory
    strides: tuple[int, ...]  # distances of entries along them


class Workspace(NamedTuple):
    """Memory for a routine alone."""

    dtype: str  # of its numbers
    size: int  # how many there are


class Routine(NamedTuple):
    """The routine of LAPACK or BLAS that does for one point what a loop of one step does."""

    name: str  # with the letter of its dtype
    # each is an address there: of a character, an integer, a number of the dtype, or a matrix
    arguments: tuple[str | int | float | Buffer | Workspace, ...]
    dtype: str  # of its numbers


@dataclass(frozen=True, eq=False)
class Loop:
    """The body and lengths of an operation ``loop``.

    Its arguments are first carries, arrays of which a step gets one entry, and what is the same in
    all steps. Each is a leaf of the body's inputs; the body's results are one operation each. A
    carry is a number, or an array whose next value is it after writes, or another array.
    """

    # from the arguments at a step to the next carries and to what is stacked; without a length the
    # last result is whether this step is done at all
    body: ScalarProgram
    carries: int  # how many arguments are carried
    stacked: int = 0  # how many arguments come by entries
    # number of steps, at least one; None while a condition holds, which then each point has of its
    # own: what it carries stays when it no longer holds
    length: int | None = None
    reverse: bool = False  # the last step comes first
    tested: int = 0  # how many of the body's operations come before the condition is known
    usual: int = limits.UNKNOWN_STEPS  # about how many steps there are without a length
    # what a back end may call instead, for each point; all arguments are arrays then
    routine: Routine | None = None

    @property
    def steps(self) -> int:
        """Returns the number of steps, or its upper bound."""
        return self.length or self.usual

    def entries(self, result: int) -> int | None:
        """Counts the entries of a result; None for a number."""
        if result >= self.carries:
            return self.length
        return self.body.inputs[result].size if self.body.inputs[result].shape else None

    def digest(self) -> str:
        """A hash of all of it."""
        settings = self.carries, self.stacked, self.length, self.reverse, self.tested, self.routine
        return f"{settings} {self.body.digest()}"


@dataclass(frozen=True, eq=False)
class ScalarProgram:
    """Scalar operations, one after the other; some are loops."""

    inputs: tuple[Leaf, ...]  # shape and dtype of each input leaf
    ops: tuple[Op, ...]  # the operations in an order in which each follows its arguments
    outputs: tuple[Leaf, ...]  # shape and dtype of each output leaf
    # for each output leaf the operation of every entry, row-major
    results: tuple[tuple[int, ...], ...]
    # output leaves whose derivative is by a rule, whatever their values: they are written
    ruled: frozenset[int] = frozenset()

    @functools.cached_property
    def is_constant(self) -> np.ndarray:
        """Tells which operations are constants: bool [operations]."""
        return np.array([op.name == "const" for op in self.ops], bool)

    def parts(self) -> Iterator[tuple[ScalarProgram, int]]:
        """The program and the bodies of its loops, each with how often it runs for a point."""
        yield self, 1
        for op in self.ops:
            if op.name == "loop":
                yield from ((part, n * op.attr.steps) for part, n in op.attr.body.parts())

    @functools.cached_property
    def dtypes(self) -> frozenset[str]:
        """The dtypes of all operations."""
        return frozenset(op.dtype for part, _ in self.parts() for op in part.ops)

    @property
    def stacked(self) -> int:
        """Counts the numbers that its loops stack or carry in arrays, those of inner loops once."""
        return sum(sum(dict(part._arrays(part is self)).values()) for part, _ in self.parts())

    def _arrays(self, outside: bool) -> Iterator[tuple[int, int]]:
        """What its loops stack and carry, and of how many entries.

        In a body without what lies where the loop around it has it.
        """
        for k, op in enumerate(self.ops):
            if op.name == "part":
                i = written_in(self.ops, k)
                if outside or self.ops[i].name != "input":
                    yield i, self.ops[op.args[0]].attr.entries(op.attr) or 0

    @functools.cached_property
    def placed(self) -> int:
        """Counts the entries of stacks and arrays that its loops read and leave, each time."""
        total = 0
        for part, times in self.parts():
            loops = (op.attr for op in part.ops if op.name == "loop")
            total += times * sum(loop.steps * loop.stacked for loop in loops)
            total += times * sum(entries for _, entries in part._arrays(part is self))
        return total

    @functools.cached_property
    def size(self) -> int:
        """Counts the operations that compute something, those of a loop's body once."""
        return sum(part._computing for part, _ in self.parts())

    @functools.cached_property
    def executed(self) -> int:
        """Counts the operations that compute something at a point, those of a loop at each step."""
        return sum(part._computing * times for part, times in self.parts())

    @property
    def _computing(self) -> int:
        return self._filled + sum(op.name not in _OTHER for op in self.ops)

    @property
    def _filled(self) -> int:
        """Counts the entries of arrays that are written one by one."""
        return sum(len(op.args) for op in self.ops if op.name == "array")

    @functools.cached_property
    def work(self) -> int:
        """Computes the cost of a point, in multiplications: the sum of the operations' weights.

        A sine and a cosine of one number share most of their work. Places are computed once for all
        points, beside the numbers. An addition is free where one of
        its operands is a product that nothing else needs: processors do both in one instruction.
        """
        return sum(part._work() * times for part, times in self.parts())

    @functools.cached_property
    def called(self) -> list[tuple[ScalarProgram, int]]:
        """The loops in whose place a library can be called: their bodies, and how often each is."""
        loops = ((op.attr, n) for part, n in self.parts() for op in part.ops if op.name == "loop")
        return [(loop.body, n) for loop, n in loops if loop.routine]

    def _work(self) -> int:
        names = Counter((op.name, op.attr) for op in self.ops if op.dtype != INDEX)
        total = self._filled
        total += sum(n * weight(*of) for of, n in names.items() if of[0] not in _OTHER)
        calls = {(op.attr, op.args) for op in self.ops if op.name == "call"}
        shared = sum(name == "sin" and ("cos", args) in calls for name, args in calls)
        return total - SHARED * shared - self._joined()

    def _joined(self) -> int:
        """Counts the sums that are done with a product that nothing else needs."""
        uses = Counter(itertools.chain(*(op.args for op in self.ops), *self.results))
        floats = [(k, op) for k, op in enumerate(self.ops) if op.dtype in FLOATS]
        alone = {k for k, op in floats if op.name == "mul" and uses[k] == 1 and op.attr != ROUNDED}
        sums = [op for _, op in floats if op.name in ("add", "sub")]
        return sum(not alone.isdisjoint(op.args) for op in sums)

    @remembered
    def digest(self) -> str:
        """A hash of everything that decides what the program computes."""
        names, dtypes, args, attrs = zip(*self.ops, strict=True) if self.ops else ((),) * 4
        known = [_plain(attr) for attr in attrs]
        every = self.inputs, self.outputs, " ".join(names), " ".join(dtypes), known
        every += (sorted(self.ruled),) * bool(self.ruled)
        digest = hashlib.sha256(repr(every).encode())
        for rows in (args, self.results):
            digest.update(np.array([len(row) for row in rows], np.int64).tobytes())
            digest.update(np.fromiter(itertools.chain(*rows), np.int64).tobytes())
        return digest.hexdigest()

    def constant_leaf(self, output: int) -> np.ndarray | None:
        """The value of an output leaf that does not depend on the inputs; None for others."""
        ids = self.results[output]
        if output in self.ruled or not self.is_constant[list(ids)].all():
            return None
        leaf = self.outputs[output]
        values = [self.ops[i].attr for i in ids]
        return np.array(values, leaf.dtype).reshape(leaf.shape)

    def copied_leaf(self, output: int) -> int | None:
        """Number of the input leaf that an output leaf is a plain copy of; None for others."""
        first = self.ops[self.results[output][0]] if self.results[output] else None
        if first is None or first.name != "input" or output in self.ruled:
            return None
        source, leaf = first.attr[0], self.outputs[output]
        if self.inputs[source].size != leaf.size or self.inputs[source].dtype != leaf.dtype:
            return None
        for position, i in enumerate(self.results[output]):
            if self.ops[i].name != "input" or self.ops[i].attr != (source, position):
                return None
        return source

    @remembered
    def written(self) -> tuple[int, ...]:
        """The output leaves that a kernel has to write: neither constant nor copied."""
        some = (k for k, leaf in enumerate(self.outputs) if leaf.size)
        computed = (k for k in some if self.constant_leaf(k) is None)
        return tuple(k for k in computed if self.copied_leaf(k) is None)


def written_in(ops: Sequence[Op], i: int) -> int:
    """The array that an array was before something was written in it."""
    while True:
        op = ops[i]
        if op.name == "part" and op.attr < ops[op.args[0]].attr.carries:
            i = ops[op.args[0]].args[op.attr]
        elif op.name == "write":
            i = op.args[0]
        else:
            return i


class Adds(Protocol):
    """An interface to add operations to a program, as `veenv.kernel.building.builder.Builder`."""

    ops: list[Op]

    def op(self, name: str, dtype: str, *args: int, attr: Any = None) -> int:
        """An operation."""
        ...

    def number(self, value: float, dtype: str) -> int:
        """A constant."""
        ...


class Scalars:
    """Operations with results of one dtype, as methods of their names.

    Attributes:
      b: what they are added to.
      dtype: of the results.
      of: dtype of the first operand of what is computed.
      params: parameters of the primitive that is computed.
    """

    def __init__(
        self, b: Adds, dtype: str, of: str = "", params: Mapping[str, Any] = MappingProxyType({})
    ):
        self.b, self.dtype, self.of, self.params = b, dtype, of or dtype, params

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: self.op(name, *args)

    def op(self, name: str, *args: int) -> int:
        """An operation."""
        return self.b.op(name, self.dtype, *args)

    def call(self, function: str, *args: int) -> int:
        """A function of libm."""
        return self.b.op("call", self.dtype, *args, attr=function)

    def number(self, value: float) -> int:
        """A constant."""
        return self.b.number(value, self.dtype)

    def is_(self, name: str, x: int, y: int) -> int:
        """A comparison."""
        return self.b.op(name, "bool", x, y)

    def both(self, x: int, y: int) -> int:
        """Returns the conjunction of two conditions."""
        return self.b.op("and", "bool", x, y)

    def either(self, x: int, y: int) -> int:
        """Returns the disjunction of two conditions."""
        return self.b.op("or", "bool", x, y)

    def square(self, x: int) -> int:
        """x²."""
        return self.mul(x, x)
