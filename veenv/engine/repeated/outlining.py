"""Outlines the batched regions of a program, those of gathers that move ahead among them.

In: a `Program`. Out: a `Program` with one equation for each region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce

import jax
import jax.core

from veenv.engine.repeated.batched_region import BatchedRegion, Jacobian, RegionFunction
from veenv.engine.repeated.gather_motion import gathers_first
from veenv.engine.repeated.region_search import Search
from veenv.engine.repeated.unvmap import with_batch_axes
from veenv.graph.equations import Equation
from veenv.graph.program import Program
from veenv.rules import walk


def outline_regions(program: Program, jacobian: Jacobian) -> Program:
    """Returns the program with its batched regions as one equation each."""
    batched = with_batch_axes(program)
    search = Search(batched)
    while (more := gathers_first(search)) is not None:
        search = Search(batched := more)
    regions = search.regions()
    return reduce(partial(_replaced, jacobian), regions, batched) if regions else program


def _replaced(jacobian: Jacobian, program: Program, region: BatchedRegion) -> Program:
    """Returns the program with one equation in place of those of a region."""
    outlined = {id(line.equation) for line in region.lines}
    dtype = region.avals[region.results[region.smooth[0]][0]].dtype  # that of all its floats
    blocks = [region.structure(k, i).value_shape for k in region.smooth for i in region.active]
    avals = [jax.core.ShapedArray(shape, dtype) for shape in blocks]
    new = range(len(program.avals), len(program.avals) + len(avals))
    outputs = (*(v for v, _ in region.results), *new)
    inputs = tuple(v for v, _ in region.operands)
    one = Equation(
        RegionFunction(region, jacobian),
        {},
        inputs,
        outputs,
        tuple(program.avals[v] for v in inputs),
        (*(program.avals[v] for v, _ in region.results), *avals),
        region.lines[0].equation.source,
    )
    every = _ordered([e for e in program.equations if id(e) not in outlined], one)
    return replace(program, equations=tuple(every), avals=(*program.avals, *avals))


def _ordered(rest: Sequence[Equation], one: Equation) -> list[Equation]:
    """Inserts an equation after what it needs and before what needs it."""
    after = {v for v in one.outvars if v is not None}
    before: list[Equation] = []
    later: list[Equation] = []
    for e in rest:
        if after.isdisjoint(walk.operands(e)):
            before.append(e)
        else:
            later.append(e)
            after.update(v for v in e.outvars if v is not None)
    return [*before, one, *later]
