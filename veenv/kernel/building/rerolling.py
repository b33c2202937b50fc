"""Axes of a function's arrays as loops, where its code would be long: a step for each index.

After `vmap` over quadrature points, elements or times the equations of a function have an axis
along which they compute the same again and again. One axis is followed from equation to equation
(`veenv.rules.axes`); those that have it become the body of a loop, whose arrays come and go by
steps, and what is summed over it is carried. What needs a result of the loop comes after it, in
another loop if it has the axis, too. A body that is still too long has loops inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np
from jax import lax

from veenv import _compat, limits
from veenv.kernel.building import loops
from veenv.kernel.building.builder import Builder, Ids, constant
from veenv.kernel.building.data_movement import RULES as FREE
from veenv.kernel.building.fourier import passes
from veenv.kernel.building.reductions import neutral, operation
from veenv.kernel.scalar_program import CannotFuseError, dtype_name
from veenv.linear.barrier import BARRIERS
from veenv.rules import walk
from veenv.rules.axes import AxisMapping, axis_mappings, index_axis_mappings

Evaluate = Callable[[Builder, Any, Sequence[Ids]], list[Ids]]
"""From a builder, an equation and its operands to its results."""
Looped = Mapping[int, frozenset[int]]
"""Of variables the axes that are loops already, along which all entries are the same operation."""
Values = MutableMapping[int, Ids]
"""The operations of variables."""
Pair = tuple[int, int]
"""A variable and one of its axes."""


class Lazy(dict[Any, Ids]):
    """The operations of variables; those that are not known are made when they are read."""

    def __init__(self, known: Iterable[tuple[Any, Ids]], make: Callable[[Any], Ids]):
        super().__init__(known)
        self._make = make

    def __missing__(self, variable: Any) -> Ids:
        return self.setdefault(variable, self._make(variable))


class Line(NamedTuple):
    """An equation, by numbers of variables."""

    eqn: Any
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    ties: tuple[AxisMapping, ...]
    """Its axes that may be loops."""
    cut: tuple[tuple[int, ...], ...]
    """Of each operand the axes of which the first index alone is taken."""

    def pairs(self, tie: AxisMapping) -> list[Pair]:
        """The variables that have the axis of a tie, each with its number there."""
        ins = zip(self.ins, tie.ins, strict=True)
        return [(v, j) for v, j in (*ins, *((v, tie.out) for v in self.outs)) if j is not None]


class Plan(NamedTuple):
    """Lines that become loops over one axis."""

    length: int
    axis: dict[int, int]
    """The axis of each variable that has it."""
    chosen: list[AxisMapping | None]
    """For each line its tie to the axis; None of one outside."""
    stage: list[int]
    """For each line the number of its loop, or of the loop that it comes before."""


class Batches:
    """Evaluates a jaxpr with loops over axes.

    Args:
      b: the program.
      evaluate: evaluates an equation.
      enter: of an equation that is a call the jaxpr, and which operands are its arguments.
      constant: the numbers of a constant's entries.

    Attributes:
      avals: shapes and dtypes of variables, by number.
    """

    def __init__(
        self,
        b: Builder,
        evaluate: Evaluate,
        enter: Callable[[Any], tuple[Any, Sequence[int]] | None],
        constant: Callable[[Any], Ids],
    ):
        self._b, self._evaluate, self._enter, self._constant = b, evaluate, enter, constant
        self.avals: list[Any] = []
        self._lines: list[Line] = []
        self._values: dict[int, Ids] = {}
        self._constants: set[int] = set()
        self._scattered: dict[int, frozenset[int]] = {}
        """Of known choices, mostly of one kind, the axes along which they differ."""

    def outputs(self, closed: Any, ins: Sequence[Ids]) -> list[Ids]:
        """The results; refuses a function of large arrays, or without an axis to loop over."""
        jaxpr = _compat.open_jaxpr(closed)
        if self._entries(jaxpr) > limits.FEW * self._b.limit:
            raise CannotFuseError("the arrays are too large to look for loops")
        pairs = zip(jaxpr.invars, ins, strict=True)
        outs = self._inline(closed, [self._known(v.aval, ids) for v, ids in pairs])
        has_loop = any(walk.loop_of(line.eqn) for line in self._lines)
        if not has_loop and self._best(self._lines, {}) is None:
            raise CannotFuseError("no axis is a loop")
        self.with_loops(self._b, self._lines, self._values, frozenset(outs), {})
        return [self._values[v] for v in outs]

    def _entries(self, jaxpr: Any) -> int:
        """Counts the array entries that are computed from arguments, not only moved."""
        total, active = 0, walk.dependent(jaxpr, jaxpr.invars)
        for eqn in jaxpr.eqns:
            if active.isdisjoint(eqn.outvars):
                continue
            called = self._enter(eqn)
            if called is not None:
                total += self._entries(_compat.open_jaxpr(called[0]))
            elif eqn.primitive.name not in FREE:
                total += passes(eqn) * sum(prod(v.aval.shape) for v in eqn.outvars)
        return total

    def new(self, aval: Any) -> int:
        """The number of a variable that is new."""
        self.avals.append(aval)
        return len(self.avals) - 1

    def _known(self, aval: Any, ids: Ids) -> int:
        """A variable whose operations are known."""
        v = self.new(aval)
        self._values[v] = ids
        values = constant(self._b, ids)
        if values is None:
            return v
        self._constants.add(v)
        if values.dtype == bool and 2 * np.count_nonzero(values) <= values.size:
            varying = (k for k in range(values.ndim) if (values != values.take([0], k)).any())
            self._scattered[v] = frozenset(varying)
        return v

    def _inline(self, closed: Any, ins: Sequence[int]) -> list[int]:
        """Adds the equations of a jaxpr but those of constants, which are evaluated at once."""
        jaxpr = _compat.open_jaxpr(closed)
        pairs = zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True)
        at = {v: self._known(v.aval, self._constant(c)) for v, c in pairs}
        at.update(zip(jaxpr.invars, ins, strict=True))

        def literal(atom: Any) -> int:
            return self._known(atom.aval, self._constant(np.asarray(atom.val, atom.aval.dtype)))

        computing = [eqn for eqn in jaxpr.eqns if eqn.outvars]  # a kernel has no effects
        read = walk.run(computing, at, self._added, literal)
        return [read(v) for v in jaxpr.outvars]

    def _added(self, eqn: Any, operands: list[int]) -> list[int]:
        """The results of an equation, which is a line if it is no call, and not of constants."""
        if eqn.primitive.name in BARRIERS:
            return operands
        called = self._called(eqn, operands)
        if called is not None:
            inner, places = called
            return self._inline(inner, [operands[k] for k in places])
        if self._constants.issuperset(operands):
            results = self._evaluate(self._b, eqn, [self._values[v] for v in operands])
            return [self._known(v.aval, x) for v, x in zip(eqn.outvars, results, strict=True)]
        outs, cut = [self.new(v.aval) for v in eqn.outvars], ((),) * len(operands)
        ties = self._ties(eqn, operands)
        self._lines.append(Line(eqn, tuple(operands), tuple(outs), ties, cut))
        return outs

    def _called(self, eqn: Any, operands: Sequence[int]) -> tuple[Any, Sequence[int]] | None:
        """Returns the jaxpr that a call or a `cond` runs, and which operands are its arguments."""
        branches = walk.branches_of(eqn)
        if not branches:
            return self._enter(eqn)
        if operands[0] in self._constants:
            index = int(self._b.value(int(self._values[operands[0]][()])))
            return branches[min(max(index, 0), len(branches) - 1)], range(1, len(operands))
        return _chosen(eqn), range(len(operands))

    def _ties(self, eqn: Any, operands: Sequence[int]) -> tuple[AxisMapping, ...]:
        """The axes that may be loops; what goes by known indices is moved before them."""
        if self._constants.issuperset(operands[1:2]):
            return tuple(axis_mappings(eqn, indexed=False))
        return *axis_mappings(eqn), *index_axis_mappings(eqn)

    def with_loops(
        self,
        b: Builder,
        lines: Sequence[Line],
        values: Values,
        wanted: frozenset[int],
        looped: Looped,
    ) -> None:
        """Evaluates lines, with loops where an axis is found."""
        plan = self._best(lines, looped)
        if plan is None:
            self.without_loops(b, lines, values)
            return
        for stage in range(1 + max(plan.stage)):
            here = [k for k, s in enumerate(plan.stage) if s == stage]
            outside = [k for k in here if plan.chosen[k] is None]
            inside = [k for k in here if plan.chosen[k] is not None]
            read = {v for k in {*range(len(lines))}.difference(outside) for v in lines[k].ins}
            self.with_loops(b, [lines[k] for k in outside], values, wanted | read, looped)
            if inside:
                _Loop(self, lines, plan, inside, wanted, looped).write(b, values)

    def without_loops(self, b: Builder, lines: Sequence[Line], values: Values) -> None:
        """Evaluates lines as they are."""
        for line in lines:
            operands = [values[v] for v in line.ins]
            for k, axes in enumerate(line.cut):
                for axis in axes:
                    operands[k] = _first(operands[k], axis)
            for v, ids in zip(line.outs, self._evaluate(b, line.eqn, operands), strict=True):
                values[v] = ids

    def _best(self, lines: Sequence[Line], looped: Looped) -> Plan | None:
        """The axis whose loops leave the fewest operations."""
        work = [self._work(line, looped) for line in lines]
        opened = [[*self._open(line, looped)] for line in lines]
        together: dict[Pair, list[tuple[int, list[Pair]]]] = {}
        for k, pairs in ((k, pairs) for k, ties in enumerate(opened) for _, pairs in ties):
            for pair in pairs:
                together.setdefault(pair, []).append((k, pairs))
        starts = sorted((k for k in range(len(lines)) if work[k]), key=lambda k: -work[k])
        seen: set[Pair] = set()
        best, least, tried = None, limits.LITTLE * sum(work), 0
        for start in (pairs[-1] for k in starts for _, pairs in opened[k]):
            if start in seen or tried == limits.MANY:
                continue
            tried += 1
            axis, touched = _followed(together, start)
            seen.update(axis.items())
            length = self.avals[start[0]].shape[start[1]]
            met = ((k, _tie(lines[k], opened[k], axis)) for k in touched)
            chosen = {k: tie for k, tie in met if tie is not None}
            saved = sum(work[k] for k in chosen) * (1 - 1 / length)
            if saved > least:
                best, least = (length, axis, chosen), saved
        return best and _plan(lines, *best)

    def _open(self, line: Line, looped: Looped) -> Iterator[tuple[AxisMapping, list[Pair]]]:
        """The ties of a line along which it is no loop yet, and may become one."""
        for tie in line.ties:
            pairs = line.pairs(tie)
            if not pairs or any(j in looped.get(v, ()) for v, j in pairs):
                continue
            if any(j in self._scattered.get(v, ()) for v, j in pairs):
                continue  # what is chosen is known, one index at a time
            cut = any(j in axes for j, axes in zip(tie.ins, line.cut, strict=True))
            if not cut and all(self.avals[v].shape[j] > 1 for v, j in pairs):
                yield tie, pairs

    def _work(self, line: Line, looped: Looped) -> int:
        """About how many operations a line takes."""
        if line.eqn.primitive.name in FREE:
            return 0
        sizes = [
            n for k, n in enumerate(self.avals[line.outs[0]].shape)
            if k not in looped.get(line.outs[0], ())
        ]  # fmt: skip
        for tie in line.ties:
            if tie.out is None:
                n, j = next((n, j) for n, j in enumerate(tie.ins) if j is not None)
                if j not in line.cut[n] and j not in looped.get(line.ins[n], ()):
                    sizes.append(self.avals[line.ins[n]].shape[j])
        return prod(sizes)


def _chosen(eqn: Any) -> Any:
    """Returns a `cond` as a closed jaxpr: its branches, and choices between their results."""
    branches = walk.branches_of(eqn)

    def choose(index: Any, *operands: Any) -> list[Any]:
        results = [
            jax.core.eval_jaxpr(_compat.open_jaxpr(b), getattr(b, "consts", ()), *operands)
            for b in branches
        ]
        last = len(branches) - 1
        which = lax.clamp(np.int32(0), index, np.int32(last)) if last > 1 else index > 0
        return [lax.select_n(which, *cases) for cases in zip(*results, strict=True)]

    return jax.make_jaxpr(choose)(*walk.in_avals(eqn))


def _followed(
    together: Mapping[Pair, Sequence[tuple[int, list[Pair]]]], start: Pair
) -> tuple[dict[int, int], set[int]]:
    """An axis from a variable on, which each variable has once, and the lines that it meets."""
    axis, touched, waiting = dict([start]), set[int](), [start]
    while waiting:
        for k, pairs in together.get(waiting.pop(), ()):
            touched.add(k)
            for w, j in pairs:
                if w not in axis:
                    axis[w] = j
                    waiting.append((w, j))
    return axis, touched


def _plan(
    lines: Sequence[Line], length: int, axis: dict[int, int], chosen: Mapping[int, AxisMapping]
) -> Plan:
    """The loops over an axis, one after the other."""
    stage: list[int] = []
    numbered: dict[int, int] = {}
    known: dict[int, int] = {}
    for k, line in enumerate(lines):
        tie = chosen.get(k)
        level = 0
        for v, j in zip(line.ins, tie.ins if tie else (None,) * len(line.ins), strict=True):
            within = v in numbered and j is not None and axis[v] == j
            level = max(level, numbered[v] if within else known.get(v, 0))
        stage.append(level)
        known.update(dict.fromkeys(line.outs, level + (tie is not None)))
        if tie is not None and tie.out is not None:
            numbered.update(dict.fromkeys(line.outs, level))
    return Plan(length, axis, [chosen.get(k) for k in range(len(lines))], stage)


def _tie(
    line: Line, opened: Sequence[tuple[AxisMapping, list[Pair]]], axis: Mapping[int, int]
) -> AxisMapping | None:
    """The first tie by which a line is in a loop."""
    for tie, pairs in opened:
        if tie.out is not None and all(axis.get(v) == tie.out for v in line.outs):
            return tie
        if tie.out is None and any(axis.get(v) == j for v, j in pairs):
            return tie
    return None


class _Loop:
    """The lines of one loop: what comes by steps, what is summed, what is stacked."""

    def __init__(
        self,
        of: Batches,
        lines: Sequence[Line],
        plan: Plan,
        inside: Sequence[int],
        wanted: frozenset[int],
        looped: Looped,
    ):
        self._of, self._plan = of, plan
        self._lines = [lines[k] for k in inside]
        self._looped = dict(looped)
        self._columns: dict[tuple[int, int], int] = {}
        self._terms: dict[int, tuple[int, str]] = {}
        self._added_to: dict[int, tuple[int, int]] = {}
        """Of terms that an equation adds to what there is the variable of that, inside and out."""
        chosen = [plan.chosen[k] or AxisMapping(None, ()) for k in inside]
        pairs = [*zip(self._lines, chosen, strict=True)]
        self._made = {v for line, tie in pairs if tie.out is not None for v in line.outs}
        self._body = [self._line(line, tie) for line, tie in pairs]
        whole = {v for line, tie in pairs for v, j in zip(line.ins, tie.ins, strict=True)
                 if j != plan.axis.get(v)}  # fmt: skip
        outside = {*range(len(lines))}.difference(inside)
        needed = wanted | whole | {v for k in outside for v in lines[k].ins}
        self._stacked = sorted(self._made & needed)

    def _line(self, line: Line, tie: AxisMapping) -> Line:
        """A line as it is in the body."""
        of, looped = self._of, self._looped
        ins = tuple(self._local(v, j) for v, j in zip(line.ins, tie.ins, strict=True))
        for v in line.outs:
            looped[v] = looped.get(v, frozenset()).union(() if tie.out is None else [tie.out])
        if tie.out is not None:
            return line._replace(ins=ins)
        term = of.new(of.avals[line.outs[0]])
        looped[term] = looped[line.outs[0]]
        self._terms[term] = line.outs[0], tie.combine
        if not tie.combine:
            before = of.new(of.avals[ins[0]])
            looped[before] = looped[term]
            self._added_to[term] = before, ins[0]
            ins = before, *ins[1:]
        rows = zip(line.cut, tie.ins, strict=True)
        cut = tuple(axes if j is None else (*axes, j) for axes, j in rows)
        return line._replace(ins=ins, outs=(term,), cut=cut)

    def _local(self, v: int, j: int | None) -> int:
        """The variable inside for one that goes with an axis, or is the same in all steps."""
        if j is None or (v in self._made and self._plan.axis[v] == j):
            return v
        if (v, j) not in self._columns:
            self._columns[v, j] = new = self._of.new(self._of.avals[v])
            self._looped[new] = self._looped.get(v, frozenset()) | {j}
        return self._columns[v, j]

    def write(self, b: Builder, values: Values) -> None:
        """Adds it to a program; a body that is too long has loops of its own."""
        of, axis, avals = self._of, self._plan.axis, self._of.avals
        carry = []
        for v, (_, name) in self._terms.items():
            if v in self._added_to:
                start = values[self._added_to[v][1]]
            else:
                none = neutral(b, name, dtype_name(avals[v].dtype))
                start = np.broadcast_to(np.int64(none), avals[v].shape)
            carry.append(self._once(v, start))
        stacks = [np.moveaxis(values[v], j, 0) for v, j in self._columns]

        def make(nested: bool) -> list[Ids] | None:
            turns = range(self._plan.length)
            return loops.scan(b, self._trace(values, nested), carry, stacks, turns)

        refused, results = False, None
        try:
            results = make(False)
        except CannotFuseError:
            refused = True
        if refused:  # outside of the handler, which keeps the first attempt's program alive
            results = make(True)
        if results is None:
            of.without_loops(b, self._lines, values)
            return
        for (v, _), ids in zip(self._terms.values(), results, strict=False):
            values[v] = np.broadcast_to(ids, avals[v].shape)
        for v, ids in zip(self._stacked, results[len(carry) :], strict=True):
            values[v] = np.moveaxis(ids, 0, axis[v])

    def _once(self, v: int, ids: Ids) -> Ids:
        """One entry along the axes of a variable that are loops around."""
        for axis in self._looped.get(v, ()):
            ids = _first(ids, axis)
        return ids

    def _trace(self, values: Values, nested: bool) -> loops.Trace:
        of, axis = self._of, self._plan.axis

        def trace(
            inner: Builder, capture: Callable[[Ids], Ids], carry: list[Ids], entries: list[Ids]
        ) -> list[Ids]:
            local = {
                new: np.broadcast_to(np.expand_dims(ids, j), of.avals[v].shape)
                for ((v, j), new), ids in zip(self._columns.items(), entries, strict=True)
            }
            for v, before in zip(self._terms, carry, strict=True):
                if v in self._added_to:
                    inside = self._added_to[v][0]
                    local[inside] = np.broadcast_to(before, of.avals[inside].shape)
            known = Lazy(local.items(), lambda v: capture(values[v]))
            if nested:
                stacks = frozenset((*self._terms, *self._stacked))
                of.with_loops(inner, self._body, known, stacks, self._looped)
            else:
                of.without_loops(inner, self._body, known)
            sums = []
            for (v, (_, name)), before in zip(self._terms.items(), carry, strict=True):
                dtype, term = dtype_name(of.avals[v].dtype), self._once(v, known[v])
                if v not in self._added_to:
                    rows = zip(before.ravel().tolist(), term.ravel().tolist(), strict=True)
                    ids = inner.rows(operation(name, dtype), dtype, rows)
                    term = np.array(ids, np.int64).reshape(before.shape)
                sums.append(term)
            return [*sums, *(_first(known[v], axis[v]).squeeze(axis[v]) for v in self._stacked)]

        return trace


def _first(ids: Ids, axis: int) -> Ids:
    """An array with one entry along an axis along which all are the same."""
    first = ids.take([0], axis)
    if (ids != first).any():
        raise CannotFuseError("an equation computes different things along an axis")
    return first
