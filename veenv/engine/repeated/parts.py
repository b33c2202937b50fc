"""Looks in a program for what does the same at every index of some axes (see `points`).

Axes of variables that go together are one class, as equations tie them.  A part is what has the
same classes, from where it is entered to where it is left; what comes back to it is another part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import Any

import jax
import jax.core
import numpy as np

from veenv import limits
from veenv.engine.known import Known, is_exact
from veenv.engine.repeated.at_point import (
    Axes,
    Classes,
    PartEquation,
    indices,
    is_writable,
    present,
    shrunk,
    ties,
)
from veenv.engine.repeated.carried import taken_earlier
from veenv.engine.repeated.mapped import opened
from veenv.engine.repeated.points import Jacobian, PartFunction, Points
from veenv.graph.equations import Equation
from veenv.graph.program import Program
from veenv.rules import walk
from veenv.rules.axes import AxisMapping
from veenv.rules.base import is_complex, is_differentiable
from veenv.rules.table import facts


class _Search:
    """Looks for parts of a program."""

    def __init__(self, program: Program):
        self.program = program
        self.known = Known(program)
        self._moved = walk.dependent(program.equations, range(program.num_inputs))
        self._left = [
            k for k, e in enumerate(program.equations)
            if not self._moved.isdisjoint(walk.operands(e))
        ]  # fmt: skip
        self._classes = Classes()
        self._ties: dict[int, list[AxisMapping]] = {}
        for k in self._left:
            self._ties[k] = self._open(program.equations[k])

    def _open(self, e: Equation) -> list[AxisMapping]:
        """The ties of an equation that can be written for one point, in which all that moves is."""
        name = e.primitive.name
        sorts = facts(name).form == "sort" and any(map(is_differentiable, e.out_avals))
        if e.effects or sorts or not is_writable(e):
            return []
        found = []
        for tie in ties(e):
            pairs = zip(e.inputs, tie.ins, strict=True)
            own = [(a, j) for a, j in pairs if isinstance(a, int) and a in self._moved]
            if all(j is not None for _, j in own):
                found.append(tie)
                outs = [(v, tie.out) for v in e.outputs if v is not None]
                for other in (*own, *outs):
                    self._classes.join(other, outs[0] if outs else other)
        return found

    def _class_of(self, k: int, tie: AxisMapping) -> Any:
        outs = [v for v in self.program.equations[k].outputs if v is not None]
        return self._classes((outs[0], tie.out)) if outs else None

    def _in(self, k: int, chosen: Sequence[Any]) -> PartEquation | None:
        """The equation by its ties of some classes; None if it has not one of each."""
        e = self.program.equations[k]
        own = [[t for t in self._ties[k] if self._class_of(k, t) == one] for one in chosen]
        if any(len(some) != 1 for some in own):
            return None
        ins = tuple(tuple(t.ins[i] for (t,) in own) for i in range(len(e.inputs)))
        return PartEquation(e, tuple(t.out for (t,) in own), ins)

    def line(self, k: int, along: tuple[int, int]) -> PartEquation | None:
        """An equation by its axes that go with one of a variable."""
        return self._in(k, [self._classes(along)]) if k in self._ties else None

    def longest(self, v: int) -> int | None:
        """The axis of a variable along which most is done; None if nothing is."""
        axes = range(len(self.program.avals[v].shape))
        counts = [self._every_count[self._classes((v, j))] for j in axes]
        return int(np.argmax(counts)) if any(counts) else None

    @cached_property
    def _every_count(self) -> Counter[Any]:
        return self._counts(self._left)

    def parts(self) -> list[Points]:
        """The parts; of those that make masks the ones that no infinity can meet behind them."""
        return [part for part in self._every() if not (part.shuts and self._meets_infinity(part))]

    def _meets_infinity(self, part: Points) -> bool:
        """Whether the partial of an equation may be infinite that needs results of a part."""
        equations = self.program.equations
        inside = {id(line.equation) for line in part.lines}
        found = walk.dependent(equations, (part.results[k][0] for k in part.smooth))
        return any(
            id(e) not in inside and not _is_finite(e) and not found.isdisjoint(walk.operands(e))
            for e in equations
        )

    def _every(self) -> list[Points]:
        found: list[Points] = []
        while (counts := self._counts(self._left)) and max(counts.values()) >= limits.EQUATIONS:
            [(first, _)] = counts.most_common(1)
            some = self._of([first])
            found += [part for _, part in some]
            taken = {k for numbers, _ in some for k in numbers}
            self._left = [k for k in self._left if k not in taken]
            for k in self._left:
                self._ties[k] = [t for t in self._ties[k] if self._class_of(k, t) != first]
        return found

    def _counts(self, numbers: Sequence[int]) -> Counter[Any]:
        """How many equations have axes of each class, those of bodies counted."""
        found = Counter[Any]()
        for k in numbers:
            for one in {self._class_of(k, t) for t in self._ties[k]}:
                found[one] += self._length(k)
        return found

    def _length(self, k: int) -> int:
        return 1 + sum(1 for _ in walk.inside(self.program.equations[k].params))

    def _of(self, chosen: list[Any]) -> list[tuple[list[int], Points]]:
        """The parts along axes of some classes; what is too much is tried with one axis more."""
        lines = {k: line for k in self._left if (line := self._in(k, chosen)) is not None}
        found = []
        for numbers in self._stages(lines):
            if sum(map(self._length, numbers)) < limits.EQUATIONS:
                continue
            part = self.part([lines[k] for k in numbers])
            if part is None:
                continue
            if part.work <= limits.LOOKED_AT:
                found += [(numbers, part)] if _is_full(part) else []
                continue
            counts = self._counts(numbers)
            for one in chosen:
                del counts[one]
            if counts:
                found += self._of([*chosen, counts.most_common(1)[0][0]])
                break
        return found

    def _stages(self, lines: Mapping[int, PartEquation]) -> list[list[int]]:
        """The equations of one part after the other: what needs a part's result comes after it."""
        made: dict[int, int] = {}
        level: dict[int, int] = {}
        stages: dict[int, list[int]] = {}
        for k, e in enumerate(self.program.equations):
            own = [a for a in e.inputs if isinstance(a, int)]
            inside = k in lines
            here = max(
                (made[a] if inside and a in made else level.get(a, 0) for a in own), default=0
            )
            outs = [v for v in e.outputs if v is not None]
            level.update(dict.fromkeys(outs, here + inside))
            if inside:
                made.update(dict.fromkeys(outs, here))
                stages.setdefault(here, []).append(k)
        return [*stages.values()]

    def part(self, lines: Sequence[PartEquation]) -> Points | None:
        """A part of these equations; None where it cannot be one."""
        program = self.program
        own: dict[int, Axes] = {}
        operands: dict[int, Axes] = {}
        for line in lines:
            for a, axes in zip(line.equation.inputs, line.ins, strict=True):
                if isinstance(a, int) and own.get(a, operands.setdefault(a, axes)) != axes:
                    return None
            own.update((v, line.out) for v in line.equation.outputs if v is not None)
        inside = {id(line.equation) for line in lines}
        read = {v for e in program.equations if id(e) not in inside for v in walk.operands(e)}
        read.update(o for o in (*program.outputs, *(program.aux or ((),))[0]) if isinstance(o, int))
        results = tuple((v, axes) for v, axes in own.items() if v in read)
        fixed = self._fixed((v, axes) for v, axes in operands.items() if v not in own)
        outside = tuple((v, axes) for v, axes in operands.items() if v not in {*own, *fixed})
        avals = {v: program.avals[v] for v in (*own, *operands)}
        floats = {v for v, a in avals.items() if is_differentiable(a)}
        moved = tuple(i for i, (v, _) in enumerate(outside) if v in self._moved & floats)
        smooth = tuple(k for k, (v, _) in enumerate(results) if v in floats)
        places = {a for line in lines for a in indices(line.equation)}
        moves = places & self._moved and not any(_makes_pivots(line.equation) for line in lines)
        if moves or any(self.known(v) is None for v in places - self._moved):
            return None  # entries at places that are computed are fewer than blocks have
        if not moved or not smooth or len({avals[v].dtype for v in floats if v in own}) > 1:
            return None
        if any(map(is_complex, avals.values())):
            return None
        if any(not avals[v].shape for v, _ in results):
            return None  # a counter is the same at all points
        v, axes = results[0]
        sizes = tuple(avals[v].shape[j] for j in present(axes))
        runs = [shrunk(line) for line in lines]
        if any(run is None for run in runs):
            return None
        lines = [line._replace(run=run) for line, run in zip(lines, runs, strict=True)]
        part = Points(
            tuple(lines), sizes, outside, moved, results, smooth, avals, self.known, fixed
        )
        return part if sum(part.counts) <= limits.POINT else None

    def _fixed(self, operands: Iterable[tuple[int, Axes]]) -> dict[int, np.ndarray]:
        """Of operands the places, choices and short tables that are known, alike at all points."""
        avals = self.program.avals
        found = {
            v: self.known.quickly(v)
            for v, axes in operands
            if not present(axes)
            and v not in self._moved
            and (is_exact(avals[v].dtype) or avals[v].size <= limits.SMALL)
        }
        return {v: x for v, x in found.items() if x is not None}


def _is_full(part: Points) -> bool:
    """Whether not too much of the blocks is surely zero."""
    reaches = part.reaches or []
    size = sum(x.size for x in reaches)
    return limits.THIN * sum(map(np.count_nonzero, reaches)) >= size > 0


def _makes_pivots(e: Equation) -> bool:
    """Whether it decomposes matrices, and says in which order it took their rows."""
    found = facts(e.primitive.name).form == "matrix"
    return found and not all(map(is_differentiable, e.out_avals))


def _is_finite(e: Equation) -> bool:
    """Whether its partials are finite at finite operands."""
    known = facts(e.primitive.name)
    return known.partials == "finite" or known.form in ("take", "put", "move", "same")


def with_points(program: Program, jacobian: Jacobian) -> Program:
    """The program with its parts as one equation each."""
    found = opened(program)
    search = _Search(found)
    while (more := taken_earlier(search)) is not None:
        search = _Search(found := more)
    parts = search.parts()
    return reduce(partial(_replaced, jacobian), parts, found) if parts else program


def _replaced(jacobian: Jacobian, program: Program, part: Points) -> Program:
    """The program with one equation in place of those of a part."""
    gone = {id(line.equation) for line in part.lines}
    blocks = [part.structure(k, i).value_shape for k in part.smooth for i in part.moved]
    dtypes = [part.avals[part.results[k][0]].dtype for k in part.smooth for _ in part.moved]
    avals = [jax.core.ShapedArray(s, d) for s, d in zip(blocks, dtypes, strict=True)]
    new = range(len(program.avals), len(program.avals) + len(avals))
    outputs = (*(v for v, _ in part.results), *new)
    inputs = tuple(v for v, _ in part.operands)
    one = Equation(
        PartFunction(part, jacobian),
        {},
        inputs,
        outputs,
        tuple(program.avals[v] for v in inputs),
        (*(program.avals[v] for v, _ in part.results), *avals),
        part.lines[0].equation.source,
    )
    every = _ordered([e for e in program.equations if id(e) not in gone], one)
    return replace(
        program,
        equations=tuple(every),
        avals=(*program.avals, *avals),
        vertex_variables=tuple(o for e in every for o in e.outputs if o is not None),
    )


def _ordered(rest: Sequence[Equation], one: Equation) -> list[Equation]:
    """Equations with one more, after what it needs and before what needs it."""
    after = {v for v in one.outputs if v is not None}
    before: list[Equation] = []
    later: list[Equation] = []
    for e in rest:
        if after.isdisjoint(walk.operands(e)):
            before.append(e)
        else:
            later.append(e)
            after.update(v for v in e.outputs if v is not None)
    return [*before, one, *later]
