"""Unrolls a jaxpr to a scalar program: arrays are unrolled, calls and short loops inlined."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from math import inf, prod
from typing import Any, TypeVar

import jax
import numpy as np

from veenv import _compat, limits
from veenv.kernel.building import (
    data_movement,
    decompositions,
    fourier,
    linear,
    loops,
    random_numbers,
    reductions,
)
from veenv.kernel.building.builder import (
    Builder,
    Ids,
    choose,
    constant,
    constants,
    refuse_stacked,
)
from veenv.kernel.building.elementwise import ELEMENTWISE, compute
from veenv.kernel.building.random_numbers import keys_of
from veenv.kernel.building.rerolling import Batches, Lazy
from veenv.kernel.cpu.size import size_of
from veenv.kernel.ordering import needed
from veenv.kernel.price import equations_of, kernel_size
from veenv.kernel.scalar_program import (
    DTYPES,
    FREE,
    PAIRS,
    CannotFuseError,
    Leaf,
    LongLoopError,
    LongStepError,
    ScalarProgram,
    TooLongError,
    dtype_name,
)
from veenv.rules import walk
from veenv.rules.base import has_symbols, is_key
from veenv.rules.definitions import definition_of
from veenv.rules.table import TABLE, facts

T = TypeVar("T")
MOVES = {
    **data_movement.RULES, **reductions.RULES, **linear.RULES, **fourier.RULES,
    **random_numbers.RULES,
}  # fmt: skip
"""Rules of what moves, sums, contracts and solves, by primitive."""
_KNOWN = frozenset({*MOVES, *ELEMENTWISE})


UNLIKE_XLA = frozenset({"eigh", "svd"})
"""What only a kernel that is asked for may hold: eigenvectors of its own signs."""


def called_by(eqn: Any) -> tuple[Any, Sequence[int]] | None:
    """A jaxpr that a call runs, and which of its operands are the arguments; None for others.

    A call may have a derivative rule of its own.
    """
    if facts(eqn.primitive.name).form == "solve":
        lengths = eqn.params["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        right = range(first + lengths.solve + lengths.transpose_solve, len(eqn.invars))
        return eqn.params["jaxprs"].solve, [*range(first, first + lengths.solve), *right]
    makers = _compat.inlinable, decompositions.body_of, _compat.formula, _called, definition_of
    body = next((body for make in makers if (body := make(eqn)) is not None), None)
    known = hasattr(_compat.open_jaxpr(body), "eqns")
    return (body, range(len(eqn.invars))) if known else None


def _called(eqn: Any) -> Any:
    return _compat.call_body(eqn.primitive.name, eqn.params)


def refuse_unknown(jaxpr: Any, within: Sequence[Any] = ()) -> None:
    """Refuses what has a primitive without scalar form, before anything is unrolled.

    `within` are the equations whose body the jaxpr is, the outer ones first. Branches are left for
    later: it may be known which one is taken.
    """
    for eqn in jaxpr.eqns:
        name, path = eqn.primitive.name, [*within, eqn]
        if name == "dim_as_value" or any(map(has_symbols, walk.in_avals(eqn))):
            raise CannotFuseError(
                "axes of symbolic size cannot be fused: for jax.export leave veenv.fuse away, "
                "and kernel at its default"
            )
        called = called_by(eqn)
        bodies = [called[0]] if called is not None else []
        loop = walk.loop_of(eqn)
        if loop is not None and loop.length != 0:
            bodies = [*_compat.bodies(eqn.params)]
        for body in bodies:
            refuse_unknown(_compat.open_jaxpr(body), path)
        if not bodies and facts(name).form != "loop":
            avals = [var.aval for var in (*eqn.invars, *eqn.outvars)]
            for dtype in {aval.dtype for aval in avals if hasattr(aval, "dtype")}:
                if dtype_name(dtype) not in {*DTYPES, *PAIRS}:
                    raise refused(dtype_name(dtype))
            if name not in _KNOWN:
                lines = map(_compat.source_line, reversed(path))
                line = next(filter(None, lines), "")
                raise _unknown(eqn).at(line)


def _unknown(eqn: Any) -> CannotFuseError:
    """The error for a primitive of which nobody has said what it means."""
    if (known := decompositions.refusal(eqn)) is not None:
        return known.at("")
    name = decompositions.name_of(eqn)
    what = "" if eqn.primitive.name in TABLE else "; veenv.register_rule says what it means"
    if name.startswith("debug_"):
        what = ": print what the kernel returns"
    return CannotFuseError(f"primitive {name!r} cannot be fused{what}", name)


def leaf_of(aval: Any) -> Leaf:
    """Shape and dtype of a variable of a kernel."""
    dtype = dtype_name(aval.dtype)
    if dtype not in DTYPES:
        raise refused(dtype)
    return Leaf(tuple(aval.shape), dtype)


def refused(dtype: Any) -> CannotFuseError:
    """The error for numbers that a kernel does not take."""
    return CannotFuseError(
        f"values of dtype {dtype} cannot be fused; a kernel takes floats of 16 to 64 bits, "
        "integers, bools, keys of Threefry, and complex numbers of two such floats"
    )


_LONG, _VERY_LONG = 4 * limits.BODY, 16 * limits.BODY
"""Operations that compile in half a second and in ten; half as many by a loop run about as fast."""
_TELLING = 2  # steps of a loop that tell what the others come to


@contextmanager
def _collected_later() -> Iterator[None]:
    """Puts off Python's search for cycles, which looks at every object of the process.

    Thousands of operations, none of which is in a cycle, would have it begin; where JAX is loaded
    it takes longer than to unroll them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collected_later()
def unroll(
    closed: Any, limit: int = limits.MAX_OPERATIONS, size: float = inf, *, axes: bool = True
) -> ScalarProgram:
    """The scalar program of a closed jaxpr, without what its outputs do not need.

    Args:
      closed: the jaxpr of a function of one point; its constants are folded.
      limit: the most operations the program may have.
      size: the largest `veenv.kernel.cpu.size.size_of` it may have.
      axes: whether axes of arrays may become loops where it would be too long.

    They do where its code would be very long, too; in the steps of a loop if the size is not
    limited: their time is known too badly to choose by.

    Raises:
      CannotFuseError: naming the primitive and its line.
    """
    jaxpr = _compat.open_jaxpr(closed)
    refuse_unknown(jaxpr)
    try:
        program = _program(closed, limit, size)
    except CannotFuseError as error:
        if not axes or (isinstance(error, LongLoopError) and size < inf):
            raise
        long, batches = isinstance(error, LongStepError), False
        try:
            return _program(closed, limit, size, batches=True)
        except LongStepError:
            long = batches = True
        except CannotFuseError:
            pass
        if long:
            return _program(closed, limit, size, batches=batches, longest=limit)
        raise
    length = size_of(program)
    if length > _LONG and length > min(_VERY_LONG, kernel_size(equations_of(closed))):
        with suppress(CannotFuseError):
            other = _program(closed, length, size, batches=True)
            if 2 * size_of(other) < length and other.executed < limits.FEWER * program.executed:
                return other
    return program


def _program(
    closed: Any, limit: int, size: float, batches: bool = False, longest: int | None = None
) -> ScalarProgram:
    """Does `unroll`; with `batches`, axes become loops whose steps are at most so large."""
    jaxpr = _compat.open_jaxpr(closed)
    read = walk.read_in(jaxpr, jaxpr.outvars)
    stored = any(linear.operations(e, each=True) > limits.SMALL for e in walk.every(jaxpr))
    builder = Builder(limit, longest, stored)
    walker = _Unroller(builder, read, deep=size == inf)
    if size < inf:
        builder.most_stacked = limits.STACKED_UNASKED
    inputs = [leaf_of(v.aval) for v in jaxpr.invars]
    if sum(leaf.size for leaf in inputs) > limit:
        raise CannotFuseError(
            f"the arguments of one point have more than {limit:,} entries; if an axis of them is a "
            "batch, write the function for one point, and put jax.vmap around its kernel or "
            "Jacobian"
        )
    ins = []
    for k, leaf in enumerate(inputs):
        entries = [builder.input(k, e, leaf.dtype) for e in range(leaf.size)]
        ins.append(np.array(entries, np.int64).reshape(leaf.shape))
    outs = (walker.with_batches if batches else walker.closed)(closed, ins)
    outputs = [leaf_of(v.aval) for v in jaxpr.outvars]
    results = [ids.ravel().tolist() for ids in outs]
    program = needed(builder.ops, inputs, outputs, results)
    if ruled := frozenset(_ruled(closed, program)):
        program = replace(program, ruled=ruled)
    if sum(op.name not in FREE for op in program.ops) > limit:
        raise builder.too_many()
    refuse_stacked(program.stacked, builder.most_stacked)
    if size < inf and size_of(program) > size:
        raise CannotFuseError("compiling the kernel would take longer than there is time")
    return program


def _ruled(closed: Any, program: ScalarProgram) -> Iterator[int]:
    """Yields the outputs that are copies or constants by value, and not by their derivative.

    A function may have a rule of its own or stop gradients: what it returns is no plain copy.
    """

    def has_rule(eqn: Any) -> bool:
        rule = _compat.own_rule(eqn.primitive, eqn.params)
        return rule is not None or facts(eqn.primitive.name).stops

    jaxpr = _compat.open_jaxpr(closed)
    if not any(map(has_rule, walk.every(jaxpr))):
        return
    written, active = program.written(), walk.dependent(jaxpr, jaxpr.invars)
    for k, result in enumerate(jaxpr.outvars):
        plain = k in written or walk.is_literal(result) or result not in active
        if not plain and any(map(has_rule, walk.every(walk.part_of(closed, [k])))):
            yield k


class _Unroller:
    """Interprets jaxprs on arrays of the numbers of scalar operations.

    `read` are variables that are surely needed; with `deep` axes of arrays may be loops in the body
    of a loop, too, with `axes` here.
    """

    def __init__(self, builder: Builder, read: Collection[Any], *, deep: bool, axes: bool = False):
        self.builder, self._read, self._deep, self._axes = builder, read, deep, axes
        self._most = limits.POINT * builder.limit  # each operation may be many equal entries
        self._entries = 0

    def constant(self, value: Any) -> Ids:
        """The numbers of a constant's entries."""
        if is_key(value):
            if dtype_name(value.dtype) not in PAIRS:
                raise refused(value.dtype)
            with jax.ensure_compile_time_eval():
                raw = jax.random.key_data(value)
            return keys_of(self.builder, self.constant(raw))
        value = np.asarray(value)
        if value.size > self._most:
            raise CannotFuseError(f"a constant of {value.size:,} entries is too large to be fused")
        return constants(self.builder, value)

    def closed(self, closed: Any, ins: Sequence[Ids]) -> list[Ids]:
        """The outputs of a closed jaxpr (or of one that closes over nothing)."""
        jaxpr = _compat.open_jaxpr(closed)
        values = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True))
        # A constant is looked at when it is read: most kernels are refused before.
        env = Lazy(zip(jaxpr.invars, ins, strict=True), lambda v: self.constant(values[v]))
        literal = lambda atom: self.constant(np.asarray(atom.val, atom.aval.dtype))  # noqa: E731
        read = walk.run(jaxpr, env, self._equation, literal)
        return [read(v) for v in jaxpr.outvars]

    def with_batches(self, closed: Any, ins: Sequence[Ids]) -> list[Ids]:
        """The same with loops over axes."""

        def evaluate(b: Builder, eqn: Any, operands: Sequence[Ids]) -> list[Ids]:
            walker = _Unroller(b, self._read, deep=self._deep, axes=self._deep)
            return walker._equation(eqn, operands)

        batches = Batches(self.builder, evaluate, _entered, self.constant)
        return batches.outputs(closed, ins)

    def _equation(self, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        try:
            return self._apply(eqn, ins)
        except CannotFuseError as error:
            raise error.at(_compat.source_line(eqn)) from None

    def _apply(self, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        name = eqn.primitive.name
        if name in ELEMENTWISE or name in MOVES:
            for var in eqn.outvars:
                if dtype_name(var.aval.dtype) not in {*DTYPES, *PAIRS}:
                    raise refused(var.aval.dtype)
                self._account(prod(var.aval.shape), name)
            if name in MOVES:
                return MOVES[name](self.builder, eqn, ins)
            return [compute(self.builder, eqn, ins)]
        if walk.branches_of(eqn):
            return self._cond(eqn, ins)
        loop = walk.loop_of(eqn)
        if loop is not None:
            return self._while(loop, ins) if loop.length is None else self._scan(loop, eqn, ins)
        called = called_by(eqn)
        if called is not None:
            inner, places = called
            return self.closed(inner, [ins[k] for k in places])
        raise _unknown(eqn)

    def _account(self, size: int, name: str) -> None:
        """Refuses what would take long to unroll, however few operations it comes to."""
        self._entries += size
        if self._entries > self._most:
            raise CannotFuseError(
                f"primitive {name!r} makes an array of {size:,} entries, {self._entries:,} with "
                f"those before it: too many for a kernel of {self.builder.limit:,} scalar "
                "operations",
                name,
            )

    def _cond(self, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        """Traces all branches and a choice between their results; one branch where it is known."""
        branches, b = walk.branches_of(eqn), self.builder
        index = constant(b, ins[0])
        if index is not None:
            chosen = min(max(int(index), 0), len(branches) - 1)
            return self.closed(branches[chosen], ins[1:])
        results = [self.closed(branch, ins[1:]) for branch in branches]
        which, dtype = int(ins[0][()]), dtype_name(eqn.invars[0].aval.dtype)
        chosen = results[-1]
        for number in reversed(range(len(branches) - 1)):
            here = b.op("le", "bool", which, b.number(number, dtype))
            pairs = zip(results[number], chosen, strict=True)
            chosen = [choose(b, here, one, other) for one, other in pairs]
        return chosen

    def _inside(self, closed: Any, consts: Sequence[Ids], nested: bool) -> loops.Trace:
        """Returns the tracer of a loop's body, whose first operands are the same in all steps.

        If `nested`, axes are loops in there.
        """

        def trace(
            b: Builder, capture: Callable[[Ids], Ids], carry: list[Ids], entries: list[Ids]
        ) -> list[Ids]:
            walker = _Unroller(b, self._read, deep=self._deep, axes=self._axes)
            run = walker.with_batches if nested else walker.closed
            return run(closed, [*map(capture, consts), *carry, *entries])

        return trace

    def _rolled(self, make: Callable[[bool], T]) -> T:
        """A loop, with loops over axes in its body where that is too long otherwise."""
        try:
            return make(False)
        except CannotFuseError as error:
            if not self._axes:
                raise
            try:
                return make(True)
            except CannotFuseError as other:
                raise (other if isinstance(other, LongStepError) else error) from None

    def _while(self, loop: walk.LoopParts, ins: Sequence[Ids]) -> list[Ids]:
        tested, consts, carry, _ = loop.split(ins)
        test = self._inside(loop.test, tested, nested=False)

        def make(nested: bool) -> list[Ids]:
            body = self._inside(loop.body, consts, nested)
            return loops.while_loop(self.builder, test, body, carry)

        return self._rolled(make)

    def _scan(self, loop: walk.LoopParts, eqn: Any, ins: Sequence[Ids]) -> list[Ids]:
        """A loop, or its steps one after the other where they are few."""
        _, consts, carry, stacks = loop.split(ins)
        length, refused = len(loop.turns), None
        read = [v in self._read for v in eqn.outvars[len(carry) :]]
        if length > 1:

            def make(nested: bool) -> list[Ids] | None:
                body = self._inside(loop.body, consts, nested)
                return loops.scan(self.builder, body, carry, stacks, loop.turns, read)

            try:
                rolled = self._rolled(make)
                if rolled is not None:
                    return rolled
            except CannotFuseError as error:  # where an index is known in each step, it is unrolled
                refused = error
        try:
            return self._written_out(loop, eqn, ins, refused)
        except CannotFuseError:
            if self._deep and isinstance(refused, LongStepError):
                raise refused from None  # a step may be one long function
            raise

    def _written_out(
        self, loop: walk.LoopParts, eqn: Any, ins: Sequence[Ids], refused: CannotFuseError | None
    ) -> list[Ids]:
        """The steps of a loop one after the other; `refused` says why it cannot stay a loop."""
        _, consts, carry, stacks = loop.split(ins)
        length, sizes = len(loop.turns), list[int]()
        if isinstance(refused, TooLongError):
            step = min(self.builder.limit, self.builder.longest) // limits.UNSURE
            self._refuse_long(step, length, refused)
        steps: list[list[Ids]] = [[] for _ in range(length)]
        for step in loop.turns:
            outs = self.closed(loop.body, [*consts, *carry, *(x[step] for x in stacks)])
            carry, steps[step] = outs[: len(carry)], outs[len(carry) :]
            sizes.append(self.builder.computing)
            if len(sizes) == _TELLING:
                self._estimate(sizes, length, refused)
        stacked = [
            np.stack([s[k] for s in steps]) if length else np.zeros(v.aval.shape, np.int64)
            for k, v in enumerate(eqn.outvars[len(carry) :])
        ]
        return [*carry, *stacked]

    def _estimate(self, sizes: Sequence[int], length: int, refused: CannotFuseError | None) -> None:
        """Refuses a loop that would come to far more operations than a kernel may have.

        `sizes` are the numbers of operations after its first steps; `refused` says why it cannot
        stay a loop.
        """
        least = min(later - earlier for earlier, later in pairwise(sizes))
        self._refuse_long(least, length, refused)
        if sizes[-1] + least * (length - len(sizes)) > self.builder.limit:
            raise CannotFuseError(*self._too_long(least, length, refused))

    def _refuse_long(self, step: int, length: int, refused: CannotFuseError | None) -> None:
        """Refuses a loop whose steps are too much by themselves, each of so many operations."""
        if step * length > self.builder.limit:
            raise LongLoopError(*self._too_long(step, length, refused))

    def _too_long(self, step: int, length: int, refused: CannotFuseError | None) -> tuple[str, str]:
        reason = "" if refused is None else f" cannot stay a loop ({refused.reason}), and"
        return (
            f"a loop of {length:,} steps{reason} takes {step:,} scalar operations or more for "
            f"each step where it is written out, of {self.builder.limit:,} that one kernel may "
            "have (it would take too long to compile)",
            "scan",
        )


def _entered(eqn: Any) -> tuple[Any, Sequence[int]] | None:
    """Returns the jaxpr that a call runs; None for an equation that computes by itself."""
    name = eqn.primitive.name
    by_itself = name in _KNOWN or facts(name).form == "loop"
    return None if by_itself else called_by(eqn)
