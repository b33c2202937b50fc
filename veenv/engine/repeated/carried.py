"""Rows that are taken of what is computed row by row are taken before it.

Where values at nodes are taken at the ends of edges, what is done at nodes may be done at the ends:
it is one block with what is done at edges. It is so where the price of that is lower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from veenv import _compat, limits
from veenv.engine.known import Known
from veenv.engine.repeated.at_point import PartEquation
from veenv.engine.repeated.mapped import Rewriting
from veenv.engine.repeated.points import Points
from veenv.graph.equations import Equation, Literal
from veenv.graph.program import Program, trace
from veenv.kernel.price import MICROSECONDS, in_kernel, of_entries, operations_of
from veenv.rules import walk
from veenv.rules.indexmap import sources
from veenv.rules.table import facts


class Search(Protocol):
    """What is known of the axes of a program (`veenv.engine.repeated.parts`)."""

    program: Program
    known: Known

    def longest(self, v: int) -> int | None:
        """The axis of a variable along which most is done."""
        ...

    def line(self, k: int, along: tuple[int, int]) -> PartEquation | None:
        """An equation by its axes that go with one of a variable."""
        ...

    def part(self, lines: Sequence[PartEquation]) -> Points | None:
        """A part of some equations."""
        ...


class _Taking(NamedTuple):
    """How a result is rows of a variable."""

    variable: int
    axis: int  # of the variable, along which rows are taken
    rows: np.ndarray  # the numbers of the rows
    at: tuple[int, ...]  # the axes of the result that are those of `rows`
    columns: np.ndarray  # which entries of each row, with the other axes of the result
    width: int  # of a row

    @property
    def key(self) -> tuple[Any, ...]:
        """What takings of the same rows have in common."""
        return self.variable, self.axis, self.rows.shape, self.rows.tobytes()

    @property
    def is_plain(self) -> bool:
        """Whether the result is whole rows, with the axes of `rows` in front."""
        every = np.array_equal(self.columns.reshape(-1), np.arange(self.width))
        return every and self.at == tuple(range(len(self.at)))

    def arranged(self, rows: Any) -> Any:
        """The result, from all rows."""
        shape, every = self.rows.shape, self.columns.reshape(-1)
        x = rows.reshape(*shape, -1)
        first, count = int(every[0]), len(every)
        if np.array_equal(every, np.arange(first, first + count)):
            x = jax.lax.slice_in_dim(x, first, first + count, axis=-1)
        else:
            x = x[..., every]
        return jnp.moveaxis(x.reshape(*shape, *self.columns.shape), range(len(shape)), self.at)


_Takings = Mapping[int, Mapping[int, _Taking]]
"""Of variables, by the results that are their rows."""


def taken_earlier(search: Search) -> Program | None:
    """The program with rows taken earlier; None where nothing is better."""
    program, every = search.program, _takings(search)
    readers: dict[int, list[int]] = defaultdict(list)
    for k, e in enumerate(program.equations):
        for a in set(walk.operands(e)):
            readers[a].append(k)
    found = {v: _stage(search, readers, v, takings) for v, takings in every.items()}
    stages = {v: s for v, s in found.items() if s and _is_cheaper(s, [*every[v].values()])}
    return _Carried(program, every, stages).done() if stages else None


def _takings(search: Search) -> _Takings:
    """All that are in a program."""
    found: dict[int, dict[int, _Taking]] = defaultdict(dict)
    for e in search.program.equations:
        form, (v, *others) = facts(e.primitive.name).form, e.inputs or (None,)
        size = sum(a.size for a in e.out_avals)
        if not isinstance(v, int) or v in others or size > limits.LISTED:
            continue
        if form == "take" or (form == "move" and not others):
            for out, places in zip(e.outputs, sources(e, search.known) or (), strict=False):
                along = out and search.longest(out)
                t = along is not None and _taking(v, along, places, e.in_avals[0].shape)
                if out and t:
                    found[v][out] = t
    return found


def _taking(v: int, along: int, places: np.ndarray, shape: Sequence[int]) -> _Taking | None:
    """The taking of entries of a variable at some places, if an axis goes along rows of it."""
    if not places.size or (places < 0).any():
        return None
    index = np.unravel_index(places, tuple(shape))
    for axis, row in enumerate(index):
        rest = [n for j, n in enumerate(shape) if j != axis]
        others = [own for j, own in enumerate(index) if j != axis]
        column = np.ravel_multi_index(others, rest) if rest else np.zeros_like(row)
        at = tuple(k for k in range(row.ndim) if (row != row.take([0], k)).any())
        if along not in at or any((column != column.take([0], k)).any() for k in at):
            continue
        rows = row[tuple(slice(None) if k in at else 0 for k in range(row.ndim))]
        if np.array_equal(rows.reshape(-1), np.arange(shape[axis])):
            return None
        columns = column[tuple(0 if k in at else slice(None) for k in range(row.ndim))]
        return _Taking(v, axis, rows, at, columns, prod(rest))
    return None


def _stage(
    search: Search, readers: Mapping[int, Sequence[int]], v: int, takings: Mapping[int, _Taking]
) -> Points | None:
    """What computes a variable row by row, if nothing else needs any of it but takings."""
    equations, (axis, *others) = search.program.equations, {t.axis for t in takings.values()}
    outputs = *search.program.outputs, *(search.program.aux or ((),))[0]
    taken = {o for k in readers[v] for o in equations[k].outputs if o is not None}
    if others or v in outputs or not taken <= takings.keys():
        return None
    inside: dict[int, PartEquation] = {}
    wanted = {v}
    for k in range(min(readers[v]) - 1, -1, -1):
        outs = [o for o in equations[k].outputs if o is not None]
        if wanted.isdisjoint(outs) or not wanted.isdisjoint(outputs):
            continue
        line = search.line(k, (v, axis))
        if line and all(n in inside for o in outs if o != v for n in readers[o]):
            inside[k] = line
            wanted.update(walk.operands(equations[k]))
    found = search.part([inside[k] for k in sorted(inside)]) if inside else None
    whole = found and [o for o, _ in found.results] == [v] and found.reaches is not None
    return found if whole else None


def _is_cheaper(stage: Points, takings: Sequence[_Taking]) -> bool:
    """Whether computing a stage where its rows are taken is, rather than multiplying blocks."""
    (size,), reaches = stage.sizes, stage.reaches or []
    rows = sum({t.key: t.rows.size for t in takings}.values())
    entries = sum(map(np.count_nonzero, reaches)) / size
    equations = (line.equation for line in stage.lines)
    every = (one for e in equations for one in (e, *walk.inside(e.params)))
    widest = max(sum(a.size for a in (*walk.in_avals(e), *walk.out_avals(e))) for e in every)
    if rows * widest > size * limits.LISTED:
        return False  # no axes of them would be found
    each = in_kernel(operations_of(stage.alone) * sum(stage.counts))
    started = MICROSECONDS["loop"] * (1 + 2 * len(takings))
    return (rows - size) * each <= started + of_entries(rows * entries)


class _Carried(Rewriting):
    """Some takings are of rows of operands of stages."""

    def __init__(self, program: Program, every: _Takings, stages: Mapping[int, Points]):
        super().__init__(program)
        self._every = {out: t for takings in every.values() for out, t in takings.items()}
        self._some = {out for v in stages for out in every[v]}
        self._stages = stages
        self._found: dict[Any, Any] = {}
        self._indices: dict[Any, Literal] = {}

    def rewrite(self, e: Equation) -> Sequence[Any] | None:
        if self._some.isdisjoint(e.outputs):
            return None
        return [None if v is None else self._taken(self._every[v], e) for v in e.outputs]

    def _taken(self, t: _Taking, e: Equation) -> Any:
        if t.key not in self._found:
            self._found[t.key] = self._staged(self._stages[t.variable], t, e)
        return self._traced(t.arranged, [self._found[t.key]], e)

    def _staged(self, stage: Points, t: _Taking, e: Equation) -> Any:
        """The rows of a stage's result, computed."""
        given = [
            self.read(v) if axis is None else self._rows(t._replace(variable=v, axis=axis), e)
            for v, (axis,) in stage.operands
        ]
        fun: Callable[..., Any] = lambda *operands: stage.one(*operands)[0][0]  # noqa: E731
        for _ in t.rows.shape:
            fun = jax.vmap(fun, [None if axis is None else 0 for _, (axis,) in stage.operands])
        return self._traced(fun, given, e)

    def _rows(self, t: _Taking, e: Equation) -> Any:
        """The rows of a variable, with those axes in front; of rows of another one that one's."""
        before = self._every.get(t.variable)
        if before is not None and t.axis == 0 and before.is_plain:
            avals = self._program.avals
            row = list(avals[before.variable].shape)
            del row[before.axis]
            if [*avals[t.variable].shape[before.rows.ndim :]] == row:  # none of its axes is gone
                return self._rows(before._replace(rows=before.rows[t.rows]), e)
        if t.key not in self._found:
            self._found[t.key] = self._gathered(t, e)
        return self._found[t.key]

    def _gathered(self, t: _Taking, e: Equation) -> Any:
        shape, depth = self._program.avals[t.variable].shape, t.rows.ndim
        new = Literal(t.rows[..., None].astype(np.int32))
        index = self._indices.setdefault((t.rows.shape, t.rows.tobytes()), new)
        windows = tuple(range(depth, depth + len(shape) - 1))
        numbers = jax.lax.GatherDimensionNumbers(windows, (t.axis,), (t.axis,))
        sizes = tuple(1 if j == t.axis else n for j, n in enumerate(shape))

        def gathered(x: Any, index: Any) -> Any:
            return jax.lax.gather(x, index, numbers, sizes, mode="promise_in_bounds")

        return self._traced(gathered, [self.read(t.variable), index], e)

    def _traced(self, fun: Callable[..., Any], given: Sequence[Any], e: Equation) -> Any:
        avals = [jax.typeof(a.value) if isinstance(a, Literal) else self._avals[a] for a in given]
        body = trace(fun, [*map(_compat.abstract, avals)], argnums=range(len(given)))
        return self.inline(body, given, e.source)[0]
