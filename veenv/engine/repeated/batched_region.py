"""Represents a batched region as one equation: a function of one point, mapped over the batch.

After `vmap` over elements, edges or times, everything between a gather and a scatter is separate
along the axes of the batch. The equation of such a region returns its results and their small
Jacobians at each point; it may become one kernel. Only blocks between moves are left to eliminate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.engine.edge import Edge
from veenv.engine.known import Known
from veenv.engine.repeated.per_point import Axes, RegionEquation, indices, present, without
from veenv.engine.sparse import entries
from veenv.engine.sparse.dependence import followed, seeds
from veenv.engine.sparse.entries import Indexed
from veenv.engine.sparse.pattern import collected
from veenv.graph.equations import Function, Literal
from veenv.rules.base import Partial, Row, Site, is_differentiable, register
from veenv.rules.indexmap import numbered
from veenv.rules.table import facts
from veenv.structure.structure import Structure, make

NAME = "points"
"""Name of the primitive of such an equation."""

Jacobian = Callable[[Callable[..., Any], tuple[int, ...]], Callable[..., Any]]
"""A transformation: from a function of a point and argument numbers to a function of its results
and their Jacobians."""


@dataclass(frozen=True, eq=False)
class BatchedRegion:
    """A subprogram that does the same at each index of its batch axes."""

    lines: tuple[RegionEquation, ...]  # its equations
    sizes: tuple[int, ...]  # of the axes of the batch
    operands: tuple[tuple[int, Axes], ...]  # variables that it reads, with their axes
    active: tuple[int, ...]  # which operands are floats that depend on the program's inputs
    results: tuple[tuple[int, Axes], ...]  # variables that are read outside, with their axes
    smooth: tuple[int, ...]  # which results are floats
    avals: Mapping[int, Any]  # shape and dtype of its variables
    known: Known  # values of the program's variables
    fixed: Mapping[int, np.ndarray]  # further operands, whose values are known

    @cached_property
    def counts(self) -> list[int]:
        """The size, at one point, of each active operand."""
        operands = (self.operands[i] for i in self.active)
        return [prod(without(self.avals[v].shape, axes)) for v, axes in operands]

    @property
    def work(self) -> int:
        """The numbers that a point computes times those that it is differentiated by."""
        every = (a for line in self.lines for a in line.equation.out_avals)
        return sum(prod(a.shape) for a in every) // prod(self.sizes) * sum(self.counts)

    def run(self, fun: Callable[..., Any], *operands: Any) -> list[Any]:
        """Computes the results, then for each smooth one its blocks by each active operand.

        `fun`: gives both at one point.
        """
        pairs = zip(map(jnp.asarray, operands), self.operands, strict=True)
        arrays = [_to_front(x, axes) for x, (_, axes) in pairs]
        for s in reversed(range(len(self.sizes))):
            fun = jax.vmap(fun, [None if axes[s] is None else 0 for _, axes in self.operands])
        (several, blocks) = fun(*arrays)
        smooth, discrete = map(iter, several)
        every = [next(smooth if k in self.smooth else discrete) for k in range(len(self.results))]
        results = [_from_front(x, axes) for x, (_, axes) in zip(every, self.results, strict=True)]
        for k, row in zip(self.smooth, blocks, strict=True):
            for i, x in zip(self.active, row, strict=True):
                whole = _from_front(x, self.results[k][1])
                results.append(whole.reshape(self.structure(k, i).value_shape))
        return results

    def at_point(self, *operands: Any) -> tuple[list[Any], list[Any]]:
        """Computes one point, from arrays without axes of the batch; the floats come first."""
        pairs = zip(self.operands, operands, strict=True)
        values: dict[Any, Any] = {v: jnp.expand_dims(x, present(axes)) for (v, axes), x in pairs}
        values.update(self.fixed)
        for line in self.lines:
            equation = line.equation
            ins = [a.val if isinstance(a, Literal) else values[a] for a in equation.invars]
            assert line.run is not None
            results = line.run(ins)
            values.update(zip(equation.outvars, results, strict=True))
        every = [values[v].reshape(without(values[v].shape, axes)) for v, axes in self.results]
        discrete = [x for k, x in enumerate(every) if k not in self.smooth]
        return [every[k] for k in self.smooth], discrete

    def structure(self, result: int, operand: int) -> Structure:
        """Returns the structure of the blocks of a result by an operand."""
        (v, out), (u, axes) = self.results[result], self.operands[operand]
        shapes = self.avals[v].shape, self.avals[u].shape
        free = [j for j in range(len(shapes[1])) if j not in axes]
        pairs = [*zip(present(out), present(axes), strict=True)]
        return make(*shapes, pairs, out_values=range(len(shapes[0])), in_values=free)

    def _reach(self, result: int, operand: int) -> np.ndarray:
        assert self.reaches is not None
        at = self.active.index(operand)
        start, count = sum(self.counts[:at]), self.counts[at]
        return self.reaches[self.smooth.index(result)][..., start : start + count]

    def depends(self, result: int, operand: int) -> bool:
        """Returns whether a result may have a nonzero derivative by an operand."""
        return bool(self._reach(result, operand).any())

    def entries(self, result: int, operand: int, e: Edge) -> Indexed | None:
        """Returns the entries of a result's blocks by an operand; None if none is surely zero."""
        reach = self._reach(result, operand)
        if reach.all():
            return None
        v, axes = self.operands[operand]
        shapes = self.avals[self.results[result][0]].shape, self.avals[v].shape
        ones = [1 if j in axes else n for j, n in enumerate(shapes[1])]
        local = np.broadcast_to(numbered(ones), shapes[1]).reshape(-1)
        whole = entries.known_of_edge(e, *shapes)
        assert whole is not None
        rows, cols = whole.pattern.rows, whole.pattern.cols
        there = reach.reshape(-1, reach.shape[-1])[rows, local[cols]]
        return entries.only(whole, collected(rows[there], cols[there], *shapes)[0])

    @cached_property
    def reaches(self) -> list[np.ndarray] | None:
        """The dependence of each smooth result on its point's numbers, bool [*shape, n] each.

        None where that takes too long to find.
        """
        size, active = sum(self.counts), [self.operands[i] for i in self.active]
        ones = [
            [1 if j in axes else n for j, n in enumerate(self.avals[v].shape)] for v, axes in active
        ]
        pairs = zip(active, seeds(ones), strict=True)
        reaches = {v: np.broadcast_to(x, (*self.avals[v].shape, size)) for (v, _), x in pairs}
        outputs = [self.results[k][0] for k in self.smooth]
        equations = [line.equation for line in self.lines]
        at = {v for e in equations for v in indices(e)}
        inactive = (v for v, _ in self.operands if v not in reaches)
        values = {v: self.known(v) if v in at else self.known.quickly(v) for v in inactive}
        values |= self.fixed
        results = followed(equations, reaches, values, outputs)
        shapes = [(*self.avals[v].shape, size) for v in outputs]
        if results is None:
            return None
        pairs = zip(results, shapes, strict=True)
        return [np.zeros(shape, bool) if x is None else x for x, shape in pairs]

    @cached_property
    def point_jaxpr(self) -> Any:
        """The function of one point as a jaxpr, to its smooth results."""
        every = ((self.avals[v], axes) for v, axes in self.operands)
        shapes = [jax.ShapeDtypeStruct(without(a.shape, axes), a.dtype) for a, axes in every]
        return jax.make_jaxpr(lambda *operands: self.at_point(*operands)[0])(*shapes)

    @property
    def has_selects(self) -> bool:
        """True if selects may cut a result of a point off from a number that it depends on."""
        jaxpr = _compat.open_jaxpr(self.point_jaxpr)
        makers = {v: e for e in jaxpr.eqns for v in e.outvars}
        of = dict(zip(jaxpr.invars, (v for v, _ in self.operands), strict=True))

        def is_known(which: Any) -> bool:
            while which in makers and facts(makers[which].primitive.name).form == "move":
                which = makers[which].invars[0]
            return which in of and self.known(of[which]) is not None

        return any(
            facts(e.primitive.name).selects
            and is_differentiable(e.outvars[0].aval)
            and not is_known(e.invars[0])
            for e in jaxpr.eqns
        )


class RegionFunction(Function):
    """The primitive of a batched region."""

    def __init__(self, region: BatchedRegion, jacobian: Jacobian):
        super().__init__(NAME, partial(region.run, jacobian(region.at_point, region.active)))
        self.region, self.entries = region, region.entries


def _to_front(x: Any, axes: Axes) -> Any:
    return jnp.moveaxis(x, present(axes), range(len(present(axes))))


def _from_front(x: Any, axes: Axes) -> Any:
    """Moves the axes of the batch from the front to their places among the next ones."""
    return jnp.moveaxis(x, range(len(axes)), present(axes))


@register(NAME)
def _rule(site: Site) -> Sequence[Row]:
    """Returns the partials of a region's equation: its further results."""
    region: BatchedRegion = site.primitive.region
    rows: list[list[Partial | None]] = [[None] * len(site.in_avals) for _ in site.out_avals]
    number = len(region.results)
    for k in region.smooth:
        for i in region.active:
            s = region.structure(k, i)
            if region.depends(k, i):
                rows[k][i] = Partial(s, s, lambda _ins, outs, number=number: outs[number])
            number += 1
    return rows
