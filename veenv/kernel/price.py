"""The price of a program: the seconds that XLA, or one kernel, is predicted to take at a batch.

XLA puts elementwise operations into loops that end where a value is stored: for an output, for a
primitive that is no loop (a contraction, a decomposition, a `scan`), for a barrier.  What several
loops need, each of them computes, once for each way of indexing it.  The price counts that, and
adds up seven numbers, fitted once to measurements (``python scripts/benchmark.py fit``).
Another machine is faster or slower; what is compared here are forms of one function.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from veenv import _compat, limits
from veenv.kernel.building import linear
from veenv.kernel.cpu.size import FEW, lanes_of
from veenv.kernel.scalar_program import ScalarProgram
from veenv.linear.barrier import BARRIERS
from veenv.rules import walk
from veenv.rules.axes import Product
from veenv.rules.base import is_complex
from veenv.rules.definitions import definition_of
from veenv.rules.operations import WEIGHTS
from veenv.rules.table import facts

MICROSECONDS: Mapping[str, float] = {
    "call": 9.08,
    "loop": 1.19,
    "simple": 7.07e-05,
    "function": 0.00227,
    "stored": 0.000287,
    "flop": 4.36e-05,
    "code": 0.0011,
}
"""What each takes: a call; a loop or other program that is started; an elementwise operation and a
function of an entry; an entry that is written; an operation of a contraction; an operation of a
kernel's code, which each call reads once."""
NAMES = tuple(MICROSECONDS)
SMALL_PRODUCT = MICROSECONDS["loop"] / (2 * MICROSECONDS["flop"])
"""Multiplications of a contraction of one point that take as long as starting it."""
LEAST = 1e-6 * (MICROSECONDS["call"] + MICROSECONDS["loop"])
"""Seconds that a program for XLA takes at least: it is called, and starts a loop."""
_COSTS = np.array([*MICROSECONDS.values()])
_INDEX = {name: k for k, name in enumerate(NAMES)}
_INNER = 0.02  # a loop that starts in a step of a `scan`, in loops: all of it is one function
_DIVISION = 0.2  # divisions and roots, in functions: they are instructions
_NEAR = 2.0  # an entry that a step of a loop reads or leaves, in operations: it stays in caches
_LANES = 8  # points that a vector instruction computes at least
_PACKED = 0.33  # an operation of a kernel, in simple ones: it reads and writes registers
_SUMMED = 2.0  # an entry that is summed away, in simple operations: sums are not vectorised as well
_MOVED = 4.0  # an entry that is gathered, scattered or sorted, in written ones: its place is read
_CONVOLVED = 4.0  # an operation of a convolution, in those of contractions
_CALLED = 0.6  # what a library does for one operation of the loops in its place, in contractions
_COMPLEX = 4.0  # an operation of complex numbers, in real ones
_SOLVED = 40  # equations that linear algebra takes as long as: calls, with loops over pivots
_EQUATION = 60  # operations of a kernel that are compiled in 1.5 of the time of an equation by XLA
_STARTED = (
    60  # equations that starting XLA's compiler takes as long as: 25 on a Zen 3, 110 elsewhere
)
_MADE, _OPERATION = 0.05, 32e-6  # seconds of compiling a kernel: any, and for each of its size
_MOST_WAYS = 15  # of indexing a value within one loop: with more of them XLA stores it
_MOST = 128  # ways in all loops: the effort of finding them is bounded
_PLACED = MICROSECONDS["stored"] / (_PACKED * MICROSECONDS["simple"])
"""An entry of a stack that a loop reads or writes, in operations of a kernel."""
_SIMPLE = "add", "sub", "mul", "neg", "abs", "max", "min", "select"


def seconds(counts: np.ndarray, batch: int) -> float:
    """Predicted seconds of a program for XLA at a batch, from its `counts_of`."""
    return 1e-6 * float(_COSTS @ (counts[0] + batch * counts[1]))


def counts_of(
    jaxpr: Any, dropped: Container[Any] = (), points: float = inf, count: int | None = None
) -> np.ndarray:
    """Computes the counts of a price, of a jaxpr of one point with a batch over its arguments.

    Args:
      jaxpr: a jaxpr, open or closed.
      dropped: results of barriers that are left out.
      points: the number of points, which says what barriers of batches there are; all by default.
      count: how many arguments the batch is over, the first ones; all by default.

    Returns:
      float64 [2, len(NAMES)]: what does not depend on the batch, and what each point adds.
    """
    opened = _compat.open_jaxpr(jaxpr)
    walk = _Walk(dropped, points)
    total = len(opened.invars)
    walk.run(opened, [k < (total if count is None else count) for k in range(total)], 1.0)
    return walk.total


def kernel_counts(program: ScalarProgram) -> np.ndarray:
    """Computes the counts of one kernel's price: float64 [2, len(NAMES)], as `counts_of` does."""
    written = sum(program.outputs[k].size for k in program.written())
    counts = np.zeros((2, len(NAMES)))
    counts[0, [_INDEX["call"], _INDEX["code"]]] = 1.0, program.size
    traffic = written + sum(leaf.size for leaf in program.inputs) + 2 * program.stacked
    counts[1, [_INDEX["simple"], _INDEX["stored"]]] = _PACKED * _work(program), traffic
    return counts


def _work(program: ScalarProgram) -> float:
    return program.work + _NEAR * program.placed


def in_kernel(operations: float) -> float:
    """Microseconds that operations of one kernel are predicted to take."""
    return _PACKED * MICROSECONDS["simple"] * operations


def of_entries(products: float) -> float:
    """Microseconds of products of entries that are gathered first."""
    return (_MOVED * MICROSECONDS["stored"] + MICROSECONDS["flop"]) * products


def kernel_seconds(program: ScalarProgram, batch: int) -> float:
    """Predicted seconds of one kernel at a batch.

    One point takes as long as a vector where each step of a loop waits for the one before, but for
    what a library computes for each of a few points.
    """
    lanes = lanes_of(program) if program.size < program.executed else _LANES
    counts, points = kernel_counts(program), max(batch, lanes)
    if program.called and batch <= max(1, lanes // FEW):
        called = sum(n * _work(loop) for loop, n in program.called)
        counts[0, _INDEX["flop"]] += batch * _CALLED * called
        counts[0, _INDEX["simple"]] -= points * _PACKED * called
        if batch == 1:  # what is read and written is transposed, of one point
            counts[1, _INDEX["stored"]] *= _MOVED / points
    return seconds(counts, points)


def least_seconds(program: ScalarProgram, batch: int) -> float:
    """Seconds that a program for XLA is expected to take at least at a batch.

    It is called, computes about as many different numbers as the kernel, and writes.
    """
    names: Counter[str] = Counter()
    for part, times in program.parts():
        for op in part.ops:
            names[op.name] += times
    functions = names["call"] + sum(WEIGHTS[n] * names[n] * _DIVISION / 4 for n in ("div", "sqrt"))
    counts = np.zeros((2, len(NAMES)))
    counts[0, [_INDEX["call"], _INDEX["loop"]]] = 1.0
    counts[1, _INDEX["simple"]] = sum(names[n] for n in _SIMPLE)
    counts[1, _INDEX["function"]] = functions
    counts[1, _INDEX["stored"]] = sum(program.outputs[k].size for k in program.written())
    return seconds(counts, batch)


def kernel_size(equations: int) -> int:
    """The largest `size_of` a kernel for which "auto" takes it: XLA would compile about as long."""
    return _EQUATION * (equations + _STARTED)


def equations_of(jaxpr: Any) -> int:
    """Counts the equations that XLA takes about as long to compile as a jaxpr."""
    every = [(equation, _compat.inlinable(equation)) for equation in walk.equations(jaxpr)]
    rest = [equation for equation, body in every if body is None]
    inner = [body for _, body in every if body is not None]
    inner += [body for equation in rest for body in _compat.bodies(equation.params)]
    solved = sum(facts(e.primitive.name).form == "matrix" for e in rest)
    return len(rest) + _SOLVED * solved + sum(map(equations_of, inner))


def operations_of(jaxpr: Any) -> float:
    """About how many operations a jaxpr of one point does, each once, those of a loop each step."""
    total = 0.0
    for equation in walk.needed(opened := _compat.open_jaxpr(jaxpr), opened.outvars):
        kernel = equation.params.get("kernel")
        if isinstance(program := getattr(kernel, "program", None), ScalarProgram):
            batch = kernel.batch_of(walk.in_avals(equation))
            total += prod(batch) * program.executed
            continue
        body = _body(equation)
        if body is not None:
            total += operations_of(body)
            continue
        repeated = facts(equation.primitive.name).form == "loop" and not walk.branches_of(equation)
        steps = equation.params.get("length", limits.UNKNOWN_STEPS) if repeated else 1
        if repeated:
            total += _PLACED * sum(map(_size, (*equation.invars, *equation.outvars)))
        total += unrolled(equation)
        total += steps * sum(map(operations_of, _compat.bodies(equation.params)))
    return total


def _body(equation: Any) -> Any | None:
    """Returns the jaxpr that a call runs, None for other equations."""
    name = equation.primitive.name
    body = _compat.inlinable(equation) or _compat.call_body(name, equation.params)
    return body or definition_of(equation)


def unrolled(equation: Any) -> int:
    """About how many operations of single numbers an equation takes, without its bodies."""
    known = facts(equation.primitive.name)
    if known.form == "loop" or not equation.outvars:
        return 0
    written = sum(map(_size, equation.outvars))
    if known.form in ("dot", "convolution"):
        return 2 * written * _summed(equation)
    if known.form == "matrix":
        return linear.operations(equation)
    if known.form in ("reduce", "window"):
        return sum(map(_size, equation.invars))
    return written if known.fused and known.cost != "free" else 0


def kernel_limit(available: float) -> int:
    """Returns the largest size of a kernel that is traced and compiled within some seconds."""
    return int(max(0.0, available - _MADE) / _OPERATION)


@dataclass(eq=False)
class _Value:
    """A variable: its number of entries, whether a batch runs over it, the loops that make it."""

    size: int
    varies: bool
    stored: bool = False
    computed: float = 0.0


class _Step(NamedTuple):
    """An equation, calls inlined."""

    name: str
    equation: Any
    ins: tuple[_Value, ...]
    outs: tuple[_Value, ...]


class _Walk:
    """Adds up what the equations of a jaxpr come to, those inside of equations included."""

    def __init__(self, dropped: Container[Any], points: float):
        self.total = np.zeros((2, len(NAMES)))
        self.total[0, _INDEX["call"]] = 1.0
        self._dropped, self._points, self._inside = dropped, points, False
        self._joined: dict[int, tuple[_Value, int, list[int], tuple[_Value, ...]]] = {}

    def run(self, jaxpr: Any, varies: Sequence[bool], times: float) -> None:
        """Adds a jaxpr that runs so many times."""
        ins = [_Value(_size(v), flag) for v, flag in zip(jaxpr.invars, varies, strict=True)]
        steps: list[_Step] = []
        for value in self._flatten(jaxpr, ins, steps):
            value.stored = True
        for step in steps:
            if not facts(step.name).fused:
                for value in (*step.ins, *step.outs):
                    value.stored = True
        _find_repeats(steps)
        for step in steps:
            if facts(step.name).fused:
                self._elementwise(step, times)
            elif step.name not in BARRIERS:
                self._alone(step, times)
        for value in {id(v): v for step in steps for v in step.outs if v.stored}.values():
            self._add("stored", value.size * times, value.varies)

    def _flatten(self, jaxpr: Any, ins: Sequence[_Value], steps: list[_Step]) -> list[_Value]:
        """Appends the equations that the results need, and gives the results."""
        values: dict[Any, _Value] = dict(zip(jaxpr.invars, ins, strict=True))
        values.update((v, _Value(_size(v), False)) for v in jaxpr.constvars)

        def step(equation: Any, operands: list[_Value]) -> Sequence[_Value]:
            name = equation.primitive.name
            if name in BARRIERS and (
                equation.outvars[0] in self._dropped
                or equation.params.get("points", 1) > self._points
            ):
                return operands
            body = _body(equation)
            opened = _compat.open_jaxpr(body)
            if body is not None and len(opened.invars) == len(operands):
                return self._flatten(opened, operands, steps)
            return self._results(equation, tuple(operands), steps)

        equations = walk.needed(jaxpr, jaxpr.outvars)
        read = walk.run(equations, values, step, lambda _: _Value(1, False))
        return [read(v) for v in jaxpr.outvars]

    def _results(
        self, equation: Any, operands: tuple[_Value, ...], steps: list[_Step]
    ) -> Sequence[_Value]:
        """The results of an equation, which is appended unless it only reads what was joined."""
        name = equation.primitive.name
        parts = self._parts(equation, operands[0]) if operands else None
        if parts is not None:
            return parts
        flags, loop = [v.varies for v in operands], walk.loop_of(equation)
        varies = [any(flags)] * len(equation.outvars)
        if loop is not None and loop.length is not None:
            varies = loop.dependent(flags)[1]
        pairs = zip(equation.outvars, varies, strict=True)
        results = tuple(_Value(_size(v), flag) for v, flag in pairs)
        if name.startswith("reduce_") and results[0].size == operands[0].size:
            name = "reshape"  # a sum over axes of one entry
        if name in ("stack", "concatenate"):
            axis = equation.params["axis" if name == "stack" else "dimension"]
            sizes = [1 if name == "stack" else a.aval.shape[axis] for a in equation.invars]
            ends = [0, *itertools.accumulate(sizes)]
            self._joined[id(results[0])] = results[0], axis, ends, operands
        steps.append(_Step(name, equation, operands, results))
        return results

    def _parts(self, equation: Any, whole: _Value) -> list[_Value] | None:
        """The values that an equation reads of a joined one; None where it reads anything else."""
        if id(whole) not in self._joined:
            return None
        _, axis, ends, parts = self._joined[id(whole)]
        name, params = equation.primitive.name, equation.params
        shape = equation.invars[0].aval.shape
        if name == "slice" and set(params["strides"] or (1,)) == {1}:
            bounds = list(zip(params["start_indices"], params["limit_indices"], strict=True))
            read = [bounds[axis]]
            bounds[axis] = 0, shape[axis]
            if bounds != [(0, n) for n in shape]:
                return None
        elif name in ("unstack", "split") and params["axis"] == axis:
            sizes = params["sizes"] if name == "split" else [1] * shape[axis]
            read = [*itertools.pairwise([0, *itertools.accumulate(sizes)])]
        else:
            return None
        known = dict(zip(itertools.pairwise(ends), parts, strict=True))
        return [known[each] for each in read] if all(each in known for each in read) else None

    def _add(self, name: str, amount: float, varies: bool) -> None:
        self.total[int(varies), _INDEX[name]] += amount

    def _start(self, times: float) -> None:
        self.total[0, _INDEX["loop"]] += times * (_INNER if self._inside else 1.0)

    def _elementwise(self, step: _Step, times: float) -> None:
        out, known = step.outs[0], facts(step.name)
        if any(v.stored for v in step.outs):
            self._start(times)
        if known.cost == "free":
            return
        avals = (*walk.in_avals(step.equation), *walk.out_avals(step.equation))
        weight = _COMPLEX if any(map(is_complex, avals)) else 1.0
        weight *= _DIVISION if known.instruction else 1.0
        kind = "function" if known.expensive else "simple"
        self._add(kind, weight * out.computed * times, out.varies)

    def _alone(self, step: _Step, times: float) -> None:
        name, varies = step.name, any(v.varies for v in step.outs)
        written = sum(v.size for v in step.outs)
        if facts(name).form == "loop":
            self._bodies(step, times)
            return
        self._start(times)
        if facts(name).form == "convolution":
            self._add("flop", _CONVOLVED * 2 * written * _summed(step.equation) * times, varies)
        elif facts(name).form == "dot":
            self._add("flop", 2 * written * _summed(step.equation) * times, varies)
        elif facts(name).form == "matrix":
            self._add("loop", times, varies)  # each point's call
            side = step.equation.invars[0].aval.shape[-1]
            self._add("flop", side * (step.ins[0].size + written) * times, varies)
        elif name.startswith("reduce_") and "window" not in name:
            self._add("simple", _SUMMED * step.ins[0].size * times, varies)
        else:
            changed = facts(name).updates  # where an array is changed, as much as is put there
            amount = written if changed is None else step.ins[changed].size
            self._add("stored", _MOVED * amount * times, varies)

    def _bodies(self, step: _Step, times: float) -> None:
        params, outer = step.equation.params, self._inside
        loop = walk.loop_of(step.equation)
        if loop is not None:  # what comes and goes by turns is found at its place
            stacks = *loop.split(step.ins)[3], *step.outs[loop.ends[2] - loop.ends[1] :]
            for value in {id(v): v for v in stacks}.values():
                self._add("stored", _MOVED * value.size * times, value.varies)
        if not walk.branches_of(step.equation):
            self._start(times)
            times *= params.get("length", limits.UNKNOWN_STEPS)
            self._inside = True
        flags = [v.varies for v in step.ins]
        for body in _compat.bodies(params):
            varies = [any(flags)] * len(body.invars)
            if loop is not None and loop.length is not None:  # what depends on the batch's points
                varies = loop.dependent(flags)[0]
            self.run(body, varies, times)
        self._inside = outer


def _find_repeats(steps: Sequence[_Step]) -> None:
    """Finds which values XLA stores, and how many entries of each it computes in all.

    For each loop that needs a value stand the ways of indexing it there, with the entries computed.
    """
    ways: dict[int, dict[int, dict[int, float]]] = {}
    fresh = itertools.count(1)
    for number, step in reversed(list(enumerate(steps))):
        if not facts(step.name).fused:
            continue
        needed: dict[int, dict[int, float]] = {}
        for value in step.outs:
            uses = ways.pop(id(value), {})
            value.stored = value.stored or _is_stored(step.name, uses)
            if value.stored:
                uses = {number: {0: float(value.size)}}
            value.computed = sum(sum(each.values()) for each in uses.values())
            for loop, each in uses.items():
                needed.setdefault(loop, {}).update(each)
        spread = facts(step.name).form == "move"  # reads it at other indices
        for value in {id(v): v for v in step.ins if not v.stored}.values():
            share = min(1.0, value.size / max(1, step.outs[0].size))  # of a broadcast, of a join
            for loop, each in needed.items():
                uses_of = ways.setdefault(id(value), {}).setdefault(loop, {})
                for way, entries in each.items():
                    at = 0 if value.size == 1 else next(fresh) if spread else way
                    uses_of[at] = max(uses_of.get(at, 0.0), entries * share)


def _is_stored(name: str, uses: Mapping[int, Mapping[int, float]]) -> bool:
    """Whether a value is stored that could be computed where it is needed."""
    total = sum(map(len, uses.values()))
    if facts(name).cost in ("join", "function"):
        return total > 1
    return total > _MOST or any(len(each) > _MOST_WAYS for each in uses.values())


def _summed(equation: Any) -> int:
    """Size of the axes that a contraction, or a convolution, sums over."""
    if facts(equation.primitive.name).form == "dot":
        return Product.of(equation).terms(equation)
    kernel = equation.invars[1].aval.shape
    return prod(kernel) // max(1, kernel[equation.params["dimension_numbers"].rhs_spec[0]])


def _size(variable: Any) -> int:
    return prod(getattr(variable.aval, "shape", ()))
