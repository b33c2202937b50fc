"""Moves gathers ahead of row-wise computation, so that only gathered rows are computed.

In: a `Search` over a program. Out: the rewritten `Program`, or None. Where values at nodes are
gathered at the ends of edges, the computation at nodes moves to the ends, into one region with the
computation at edges, if its price there is lower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat, limits
from veenv.engine.repeated.batched_region import BatchedRegion
from veenv.engine.repeated.per_point import RegionEquation
from veenv.engine.repeated.region_search import Search
from veenv.engine.repeated.unvmap import Rewriting
from veenv.graph.equations import Equation, Literal
from veenv.graph.program import Program, trace
from veenv.kernel.price import MICROSECONDS, in_kernel, of_entries, operations_of
from veenv.rules import walk
from veenv.rules.indexmap import sources
from veenv.rules.table import facts


class _Gather(NamedTuple):
    """A gather: a result that consists of rows of a variable."""

    variable: int
    axis: int  # of the variable, along which rows are gathered
    rows: np.ndarray  # the numbers of the rows
    at: tuple[int, ...]  # the axes of the result that are those of `rows`
    columns: np.ndarray  # which entries of each row, with the other axes of the result
    width: int  # of a row

    @property
    def key(self) -> tuple[Any, ...]:
        """The key that gathers of the same rows share."""
        return self.variable, self.axis, self.rows.shape, self.rows.tobytes()

    @property
    def is_plain(self) -> bool:
        """True if the result is whole rows, with the axes of `rows` in front."""
        every = np.array_equal(self.columns.reshape(-1), np.arange(self.width))
        return every and self.at == tuple(range(len(self.at)))

    def arranged(self, rows: Any) -> Any:
        """Returns the result, from all rows."""
        shape, every = self.rows.shape, self.columns.reshape(-1)
        x = rows.reshape(*shape, -1)
        first, count = int(every[0]), len(every)
        if np.array_equal(every, np.arange(first, first + count)):
            x = jax.lax.slice_in_dim(x, first, first + count, axis=-1)
        else:
            x = x[..., every]
        return jnp.moveaxis(x.reshape(*shape, *self.columns.shape), range(len(shape)), self.at)


_Gathers = Mapping[int, Mapping[int, _Gather]]
"""Gathers by variable, then by the result that consists of its rows."""


def gathers_first(search: Search) -> Program | None:
    """Returns the program with gathers moved ahead; None where nothing is better."""
    program, every = search.program, _gathers(search)
    readers: dict[int, list[int]] = defaultdict(list)
    for k, e in enumerate(program.equations):
        for a in set(walk.operands(e)):
            readers[a].append(k)
    regions = {v: _stage(search, readers, v, gathers) for v, gathers in every.items()}
    stages = {v: s for v, s in regions.items() if s and _is_cheaper(s, [*every[v].values()])}
    return _GathersFirst(program, every, stages).done() if stages else None


def _gathers(search: Search) -> _Gathers:
    """Returns all gathers of rows in a program."""
    gathers: dict[int, dict[int, _Gather]] = defaultdict(dict)
    for e in search.program.equations:
        form, (v, *indices) = facts(e.primitive.name).form, e.invars or (None,)
        size = sum(a.size for a in e.out_avals)
        if not isinstance(v, int) or v in indices or size > limits.LISTED:
            continue
        if form == "take" or (form == "move" and not indices):
            for out, places in zip(e.outvars, sources(e, search.known) or (), strict=False):
                along = out and search.longest(out)
                t = along is not None and _gather(v, along, places, e.in_avals[0].shape)
                if out and t:
                    gathers[v][out] = t
    return gathers


def _gather(v: int, along: int, places: np.ndarray, shape: Sequence[int]) -> _Gather | None:
    """Returns the gather of entries of a variable at `places`, if an axis goes along rows of it."""
    if not places.size or (places < 0).any():
        return None
    index = np.unravel_index(places, tuple(shape))
    for axis, row in enumerate(index):
        rest = [n for j, n in enumerate(shape) if j != axis]
        rest_index = [numbers for j, numbers in enumerate(index) if j != axis]
        column = np.ravel_multi_index(rest_index, rest) if rest else np.zeros_like(row)
        at = tuple(k for k in range(row.ndim) if (row != row.take([0], k)).any())
        if along not in at or any((column != column.take([0], k)).any() for k in at):
            continue
        rows = row[tuple(slice(None) if k in at else 0 for k in range(row.ndim))]
        if np.array_equal(rows.reshape(-1), np.arange(shape[axis])):
            return None
        columns = column[tuple(0 if k in at else slice(None) for k in range(row.ndim))]
        return _Gather(v, axis, rows, at, columns, prod(rest))
    return None


def _stage(
    search: Search, readers: Mapping[int, Sequence[int]], v: int, gathers: Mapping[int, _Gather]
) -> BatchedRegion | None:
    """Returns the region that computes a variable row by row, if only gathers read it."""
    equations, (axis, *other_axes) = search.program.equations, {t.axis for t in gathers.values()}
    outputs = search.program.returned
    gathered = {o for k in readers[v] for o in equations[k].outvars if o is not None}
    if other_axes or v in outputs or not gathered <= gathers.keys():
        return None
    inside: dict[int, RegionEquation] = {}
    wanted = {v}
    for k in range(min(readers[v]) - 1, -1, -1):
        outs = [o for o in equations[k].outvars if o is not None]
        if wanted.isdisjoint(outs) or not wanted.isdisjoint(outputs):
            continue
        line = search.line(k, (v, axis))
        if line and all(n in inside for o in outs if o != v for n in readers[o]):
            inside[k] = line
            wanted.update(walk.operands(equations[k]))
    region = search.region([inside[k] for k in sorted(inside)]) if inside else None
    whole = region and [o for o, _ in region.results] == [v] and region.reaches is not None
    return region if whole else None


def _is_cheaper(stage: BatchedRegion, gathers: Sequence[_Gather]) -> bool:
    """Returns whether computing a stage where its rows are gathered beats multiplying blocks."""
    (size,), reaches = stage.sizes, stage.reaches or []
    rows = sum({t.key: t.rows.size for t in gathers}.values())
    entries = sum(map(np.count_nonzero, reaches)) / size
    every = walk.every([line.equation for line in stage.lines])
    widest = max(sum(a.size for a in (*walk.in_avals(e), *walk.out_avals(e))) for e in every)
    if rows * widest > size * limits.LISTED:
        return False  # too large to find their axes
    each = in_kernel(operations_of(stage.point_jaxpr) * sum(stage.counts))
    started = MICROSECONDS["loop"] * (1 + 2 * len(gathers))
    return (rows - size) * each <= started + of_entries(rows * entries)


class _GathersFirst(Rewriting):
    """Rewrites gathers to read rows of a stage's operands."""

    def __init__(self, program: Program, every: _Gathers, stages: Mapping[int, BatchedRegion]):
        super().__init__(program)
        self._every = {out: t for gathers in every.values() for out, t in gathers.items()}
        self._chosen = {out for v in stages for out in every[v]}
        self._stages = stages
        self._values: dict[Any, Any] = {}
        self._indices: dict[Any, Literal] = {}

    def rewrite(self, e: Equation) -> Sequence[Any] | None:
        if self._chosen.isdisjoint(e.outvars):
            return None
        return [None if v is None else self._rewritten(self._every[v], e) for v in e.outvars]

    def _rewritten(self, t: _Gather, e: Equation) -> Any:
        if t.key not in self._values:
            self._values[t.key] = self._staged(self._stages[t.variable], t, e)
        return self._traced(t.arranged, [self._values[t.key]], e)

    def _staged(self, stage: BatchedRegion, t: _Gather, e: Equation) -> Any:
        """Computes the gathered rows of a stage's result."""
        inputs = [
            self.read(v) if axis is None else self._rows(t._replace(variable=v, axis=axis), e)
            for v, (axis,) in stage.operands
        ]
        fun: Callable[..., Any] = lambda *operands: stage.at_point(*operands)[0][0]  # noqa: E731
        for _ in t.rows.shape:
            fun = jax.vmap(fun, [None if axis is None else 0 for _, (axis,) in stage.operands])
        return self._traced(fun, inputs, e)

    def _rows(self, t: _Gather, e: Equation) -> Any:
        """Returns rows of a variable, with their axes in front; gathers of gathers become one."""
        before = self._every.get(t.variable)
        if before is not None and t.axis == 0 and before.is_plain:
            avals = self._program.avals
            row = list(avals[before.variable].shape)
            del row[before.axis]
            if [*avals[t.variable].shape[before.rows.ndim :]] == row:  # all of its axes are there
                return self._rows(before._replace(rows=before.rows[t.rows]), e)
        if t.key not in self._values:
            self._values[t.key] = self._gathered(t, e)
        return self._values[t.key]

    def _gathered(self, t: _Gather, e: Equation) -> Any:
        shape, depth = self._program.avals[t.variable].shape, t.rows.ndim
        new = Literal(t.rows[..., None].astype(np.int32))
        index = self._indices.setdefault((t.rows.shape, t.rows.tobytes()), new)
        windows = tuple(range(depth, depth + len(shape) - 1))
        numbers = jax.lax.GatherDimensionNumbers(windows, (t.axis,), (t.axis,))
        sizes = tuple(1 if j == t.axis else n for j, n in enumerate(shape))

        def gathered(x: Any, index: Any) -> Any:
            return jax.lax.gather(x, index, numbers, sizes, mode="promise_in_bounds")

        return self._traced(gathered, [self.read(t.variable), index], e)

    def _traced(self, fun: Callable[..., Any], operands: Sequence[Any], e: Equation) -> Any:
        avals = [jax.typeof(a.val) if isinstance(a, Literal) else self._avals[a] for a in operands]
        body = trace(fun, [*map(_compat.abstract, avals)], argnums=range(len(operands)))
        return self.inline(body, operands, e.source)[0]
