"""Searches a program for batched regions by grouping axes that equations map onto each other.

In: a `Program`. Out: its `BatchedRegion`s. Axes that equations map onto each other are one class
(union-find). A region has the same classes from its operands to its results; what depends on its
results through other equations is in another region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from veenv import limits
from veenv.engine.known import Known, is_exact
from veenv.engine.repeated.batched_region import BatchedRegion
from veenv.engine.repeated.per_point import (
    Axes,
    Classes,
    Refused,
    RegionEquation,
    at_one_point,
    batch_mappings,
    indices,
    is_writable,
    present,
)
from veenv.graph.equations import Equation
from veenv.graph.program import Program
from veenv.rules import walk
from veenv.rules.axes import AxisMapping
from veenv.rules.base import is_complex, is_differentiable
from veenv.rules.table import facts


class Search:
    """Finds the batched regions of a program."""

    def __init__(self, program: Program):
        self.program = program
        self.known = Known(program)
        self._active = walk.dependent(program.equations, range(program.num_inputs))
        self._left = [
            k for k, e in enumerate(program.equations)
            if not self._active.isdisjoint(walk.operands(e))
        ]  # fmt: skip
        self._classes = Classes()
        self._mappings: dict[int, list[AxisMapping]] = {}
        for k in self._left:
            self._mappings[k] = self._open(program.equations[k])

    def _open(self, e: Equation) -> list[AxisMapping]:
        """Returns the mappings that hold all active operands; none if not for one point."""
        name = e.primitive.name
        sorts = facts(name).form == "sort" and any(map(is_differentiable, e.out_avals))
        if e.effects or sorts or not is_writable(e):
            return []
        mappings = []
        for mapping in batch_mappings(e):
            pairs = zip(e.invars, mapping.ins, strict=True)
            active = [(a, j) for a, j in pairs if isinstance(a, int) and a in self._active]
            if all(j is not None for _, j in active):
                mappings.append(mapping)
                outs = [(v, mapping.out) for v in e.outvars if v is not None]
                for other in (*active, *outs):
                    self._classes.join(other, outs[0] if outs else other)
        return mappings

    def _class_of(self, k: int, mapping: AxisMapping) -> Any:
        outs = [v for v in self.program.equations[k].outvars if v is not None]
        return self._classes((outs[0], mapping.out)) if outs else None

    def _in(self, k: int, chosen: Sequence[Any]) -> RegionEquation | None:
        """Returns the equation by its mappings of some classes; None if it has not one of each."""
        e = self.program.equations[k]
        mappings = [[t for t in self._mappings[k] if self._class_of(k, t) == one] for one in chosen]
        if any(len(candidates) != 1 for candidates in mappings):
            return None
        ins = tuple(tuple(t.ins[i] for (t,) in mappings) for i in range(len(e.invars)))
        return RegionEquation(e, tuple(t.out for (t,) in mappings), ins)

    def line(self, k: int, along: tuple[int, int]) -> RegionEquation | None:
        """Returns an equation by its axes that go with one of a variable."""
        return self._in(k, [self._classes(along)]) if k in self._mappings else None

    def longest(self, v: int) -> int | None:
        """Returns the axis of a variable along which most is done; None if nothing is."""
        axes = range(len(self.program.avals[v].shape))
        counts = [self._every_count[self._classes((v, j))] for j in axes]
        return int(np.argmax(counts)) if any(counts) else None

    @cached_property
    def _every_count(self) -> Counter[Any]:
        return self._counts(self._left)

    def regions(self) -> list[BatchedRegion]:
        """Returns the regions, without those whose masks may meet infinite partials behind them."""
        regions: list[BatchedRegion] = []
        while (counts := self._counts(self._left)) and max(counts.values()) >= limits.EQUATIONS:
            [(first, _)] = counts.most_common(1)
            numbered = self._of([first])
            regions += [r for _, r in numbered if not (r.has_selects and self._meets_infinity(r))]
            outlined = {k for numbers, _ in numbered for k in numbers}
            self._left = [k for k in self._left if k not in outlined]
            for k in self._left:
                self._mappings[k] = [t for t in self._mappings[k] if self._class_of(k, t) != first]
        return regions

    def _meets_infinity(self, region: BatchedRegion) -> bool:
        """Returns whether an equation behind a region may have an infinite partial."""
        equations = self.program.equations
        inside = {id(line.equation) for line in region.lines}
        dependent = walk.dependent(equations, (region.results[k][0] for k in region.smooth))
        return any(
            id(e) not in inside and not _is_finite(e) and not dependent.isdisjoint(walk.operands(e))
            for e in equations
        )

    def _counts(self, numbers: Sequence[int]) -> Counter[Any]:
        """Counts the equations that have axes of each class, those of bodies included."""
        counts = Counter[Any]()
        for k in numbers:
            for one in {self._class_of(k, t) for t in self._mappings[k]}:
                counts[one] += self._length(k)
        return counts

    def _length(self, k: int) -> int:
        return 1 + sum(1 for _ in walk.inside(self.program.equations[k].params))

    def _of(self, chosen: list[Any]) -> list[tuple[list[int], BatchedRegion]]:
        """Returns the regions along some classes; adds an axis where one point is too large."""
        lines = {k: line for k in self._left if (line := self._in(k, chosen)) is not None}
        regions = []
        for numbers in self._stages(lines):
            if sum(map(self._length, numbers)) < limits.EQUATIONS:
                continue
            region = self.region([lines[k] for k in numbers])
            if region is None:
                continue
            if region.work <= limits.LOOKED_AT:
                regions += [(numbers, region)] if _is_full(region) else []
                continue
            counts = self._counts(numbers)
            for one in chosen:
                del counts[one]
            if counts:
                regions += self._of([*chosen, counts.most_common(1)[0][0]])
                break
        return regions

    def _stages(self, lines: Mapping[int, RegionEquation]) -> list[list[int]]:
        """Groups equations into regions by rank: what needs a region's result comes after it."""
        stage_of: dict[int, int] = {}
        level: dict[int, int] = {}
        stages: dict[int, list[int]] = {}
        for k, e in enumerate(self.program.equations):
            operands = [a for a in e.invars if isinstance(a, int)]
            inside = k in lines
            ranks = [stage_of[a] if inside and a in stage_of else level.get(a, 0) for a in operands]
            here = max(ranks, default=0)
            outs = [v for v in e.outvars if v is not None]
            level.update(dict.fromkeys(outs, here + inside))
            if inside:
                stage_of.update(dict.fromkeys(outs, here))
                stages.setdefault(here, []).append(k)
        return [*stages.values()]

    def region(self, lines: Sequence[RegionEquation]) -> BatchedRegion | None:
        """Returns the region of these equations; None where it cannot be one."""
        program = self.program
        computed: dict[int, Axes] = {}
        operands: dict[int, Axes] = {}
        for line in lines:
            for a, axes in zip(line.equation.invars, line.ins, strict=True):
                if isinstance(a, int) and computed.get(a, operands.setdefault(a, axes)) != axes:
                    return None
            computed.update((v, line.out) for v in line.equation.outvars if v is not None)
        inside = {id(line.equation) for line in lines}
        read = {v for e in program.equations if id(e) not in inside for v in walk.operands(e)}
        read.update(o for o in program.returned if isinstance(o, int))
        results = tuple((v, axes) for v, axes in computed.items() if v in read)
        fixed = self._fixed((v, axes) for v, axes in operands.items() if v not in computed)
        outside = tuple((v, axes) for v, axes in operands.items() if v not in {*computed, *fixed})
        avals = {v: program.avals[v] for v in (*computed, *operands)}
        floats = {v for v, a in avals.items() if is_differentiable(a)}
        active = tuple(i for i, (v, _) in enumerate(outside) if v in self._active & floats)
        smooth = tuple(k for k, (v, _) in enumerate(results) if v in floats)
        places = {a for line in lines for a in indices(line.equation)}
        moves = places & self._active and not any(_makes_pivots(line.equation) for line in lines)
        if moves or any(self.known(v) is None for v in places - self._active):
            return None  # entries at computed places are fewer than blocks have
        if not active or not smooth or len({avals[v].dtype for v in floats if v in computed}) > 1:
            return None
        if any(map(is_complex, avals.values())):
            return None
        if any(not avals[v].shape for v, _ in results):
            return None  # a counter is the same at all points
        v, axes = results[0]
        sizes = tuple(avals[v].shape[j] for j in present(axes))
        try:
            written = tuple(line._replace(run=at_one_point(line)) for line in lines)
        except Refused:
            return None
        region = BatchedRegion(
            written, sizes, outside, active, results, smooth, avals, self.known, fixed
        )
        return region if sum(region.counts) <= limits.POINT else None

    def _fixed(self, operands: Iterable[tuple[int, Axes]]) -> dict[int, np.ndarray]:
        """Returns known places, choices and short tables among operands, alike at all points."""
        avals = self.program.avals
        values = {
            v: self.known.quickly(v)
            for v, axes in operands
            if not present(axes)
            and v not in self._active
            and (is_exact(avals[v].dtype) or avals[v].size <= limits.SMALL)
        }
        return {v: x for v, x in values.items() if x is not None}


def _is_full(region: BatchedRegion) -> bool:
    """Returns whether few enough entries of a region's blocks are surely zero."""
    reaches = region.reaches or []
    size = sum(x.size for x in reaches)
    return limits.THIN * sum(map(np.count_nonzero, reaches)) >= size > 0


def _makes_pivots(e: Equation) -> bool:
    """Returns whether an equation decomposes matrices with pivoting, which mixes rows."""
    decomposes = facts(e.primitive.name).form == "matrix"
    return decomposes and not all(map(is_differentiable, e.out_avals))


def _is_finite(e: Equation) -> bool:
    """Returns whether an equation's partials are finite at finite operands."""
    known = facts(e.primitive.name)
    return known.partials == "finite" or known.form in ("take", "put", "move", "same")
