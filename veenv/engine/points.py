"""Parts of a program that do the same at every index of some axes, as one equation each.

After `vmap` over elements, edges or times there is much between a gather and a scatter, and all of
it is separate along the axes of the batch.  Such a part is one function of one point: its results,
and the small Jacobians that they have at each point, come out of one equation, which may be one
kernel.  What is left for an elimination are blocks between moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from veenv import _compat
from veenv.engine.dependence import followed
from veenv.engine.edge import Edge
from veenv.engine.known import Known
from veenv.engine.sparse import entries
from veenv.engine.sparse.entries import Indexed
from veenv.engine.sparse.pattern import collected
from veenv.engine.supports import places_of
from veenv.graph.equations import Equation, Function, Literal
from veenv.kernel.elementwise import ELEMENTWISE
from veenv.rules import walk
from veenv.rules.axes import Tie, ties_of
from veenv.rules.base import Partial, Row, Site, register
from veenv.rules.indexmap import numbered
from veenv.rules.table import facts
from veenv.structure.structure import Structure, make

NAME = "points"
"""Name of the primitive of such an equation."""

_MOST_PLACES = 1 << 20
"""Most entries of an equation whose axes are looked for."""

Axes = tuple[int | None, ...]
"""For each axis of the batch the axis of a variable that goes with it; None where it has none."""
Jacobian = Callable[[Callable[..., Any], tuple[int, ...]], Callable[..., Any]]
"""From a function of a point and the numbers of its arguments to differentiate by to what gives
its results and their Jacobians."""


class _RefusedError(Exception):
    """An equation cannot be written for one point."""


class Line(NamedTuple):
    """An equation of a part."""

    equation: Equation
    out: Axes  # of every result
    ins: tuple[Axes, ...]  # of each operand
    params: dict[str, Any] | None = None  # its parameters for one point


@dataclass(frozen=True, eq=False)
class Points:
    """A part of a program."""

    lines: tuple[Line, ...]  # its equations
    sizes: tuple[int, ...]  # of the axes of the batch
    operands: tuple[tuple[int, Axes], ...]  # variables that it reads, with their axes
    moved: tuple[int, ...]  # which operands are floats that depend on the program's inputs
    results: tuple[tuple[int, Axes], ...]  # variables that others read, with their axes
    smooth: tuple[int, ...]  # which results are floats
    avals: Mapping[int, Any]  # shape and dtype of its variables
    known: Known  # values of the program's variables

    @cached_property
    def counts(self) -> list[int]:
        """How many numbers of a point each moved operand is."""
        own = (self.operands[i] for i in self.moved)
        return [prod(without(self.avals[v].shape, axes)) for v, axes in own]

    @property
    def work(self) -> int:
        """The numbers that a point computes times those that it is differentiated by."""
        every = (a for line in self.lines for a in line.equation.out_avals)
        return sum(prod(a.shape) for a in every) // prod(self.sizes) * sum(self.counts)

    def run(self, jacobian: Jacobian, *operands: Any) -> list[Any]:
        """The results, then for each smooth one its blocks by each moved operand."""
        pairs = zip(map(jnp.asarray, operands), self.operands, strict=True)
        given = [_to_front(x, axes) for x, (_, axes) in pairs]
        fun = jacobian(self._point, self.moved)
        for s in reversed(range(len(self.sizes))):
            fun = jax.vmap(fun, [None if axes[s] is None else 0 for _, axes in self.operands])
        (several, blocks) = fun(*given)
        smooth, others = map(iter, several)
        numbers = enumerate(self.results)
        found = [
            _from_front(next(smooth if k in self.smooth else others), axes)
            for k, (_, axes) in numbers
        ]
        for k, row in zip(self.smooth, blocks, strict=True):
            for i, x in zip(self.moved, row, strict=True):
                whole = _from_front(x, self.results[k][1])
                found.append(whole.reshape(self.structure(k, i).value_shape))
        return found

    def _point(self, *operands: Any) -> tuple[list[Any], list[Any]]:
        """The function of one point, of arrays without axes of the batch; the floats come first."""
        pairs = zip(self.operands, operands, strict=True)
        values: dict[Any, Any] = {v: jnp.expand_dims(x, present(axes)) for (v, axes), x in pairs}
        for line in self.lines:
            equation = line.equation
            ins = [a.value if isinstance(a, Literal) else values[a] for a in equation.inputs]
            found = _compat.bind(equation.primitive, line.params or equation.params, ins)
            values.update(zip(equation.outputs, found, strict=True))
        every = [values[v].reshape(without(values[v].shape, axes)) for v, axes in self.results]
        others = [x for k, x in enumerate(every) if k not in self.smooth]
        return [every[k] for k in self.smooth], others

    def structure(self, result: int, operand: int) -> Structure:
        """The structure of the blocks of a result by an operand."""
        (v, out), (u, own) = self.results[result], self.operands[operand]
        shapes = self.avals[v].shape, self.avals[u].shape
        free = [j for j in range(len(shapes[1])) if j not in own]
        pairs = [*zip(present(out), present(own), strict=True)]
        return make(*shapes, pairs, out_values=range(len(shapes[0])), in_values=free)

    def _reach(self, result: int, operand: int) -> np.ndarray:
        assert self.reaches is not None
        at = self.moved.index(operand)
        start, count = sum(self.counts[:at]), self.counts[at]
        return self.reaches[self.smooth.index(result)][..., start : start + count]

    def depends(self, result: int, operand: int) -> bool:
        """Whether a result has a derivative by an operand that is not surely zero."""
        return bool(self._reach(result, operand).any())

    def entries(self, result: int, operand: int, e: Edge) -> Indexed | None:
        """The entries of the blocks of a result by an operand; None if none is surely zero."""
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

    def _places(self, equation: Equation, ways: tuple[int, int]) -> Any:
        where = facts(equation.primitive.name).form in ("running", "matrix")
        return places_of(equation, ways, self.known) if where else None

    @cached_property
    def reaches(self) -> list[np.ndarray] | None:
        """For each smooth result, bool [*shape, n]: on which numbers of its point it depends.

        None where that takes too long to find.
        """
        size, start, given = sum(self.counts), 0, {}
        for i, count in zip(self.moved, self.counts, strict=True):
            v, axes = self.operands[i]
            shape = self.avals[v].shape
            own = np.eye(size, dtype=bool)[start : start + count]
            ones = [1 if j in axes else n for j, n in enumerate(shape)]
            given[v] = np.broadcast_to(own.reshape(*ones, size), (*shape, size))
            start += count
        outputs = [self.results[k][0] for k in self.smooth]
        equations = [line.equation for line in self.lines]
        at = {v for e in equations for v in indices(e)}
        others = (v for v, _ in self.operands if v not in given)
        values = {v: self.known(v) if v in at else self.known.quickly(v) for v in others}
        found = followed(equations, given, values, outputs, self._places)
        shapes = [(*self.avals[v].shape, size) for v in outputs]
        if found is None:
            return None
        pairs = zip(found, shapes, strict=True)
        return [np.zeros(shape, bool) if x is None else x for x, shape in pairs]


class Run(Function):
    """A part of a program in the form of a primitive."""

    def __init__(self, part: Points, jacobian: Jacobian):
        super().__init__(NAME, partial(part.run, jacobian))
        self.part = part


def present(axes: Axes) -> list[int]:
    """The axes that a variable has of the batch's."""
    return [j for j in axes if j is not None]


def _to_front(x: Any, axes: Axes) -> Any:
    return jnp.moveaxis(x, present(axes), range(len(present(axes))))


def _from_front(x: Any, axes: Axes) -> Any:
    """The axes of the batch, which come first, at their places among the next ones."""
    return jnp.moveaxis(x, range(len(axes)), present(axes))


def without(shape: Sequence[int], axes: Axes) -> tuple[int, ...]:
    """A shape without axes of the batch."""
    return tuple(n for j, n in enumerate(shape) if j not in axes)


# Of one point: parameters that are shapes.


def is_writable(name: str) -> bool:
    """Whether equations of a primitive can be written for one point."""
    known = facts(name)
    return known.lengths is not None or name in ELEMENTWISE or known.form == "solve"


def shrunk(line: Line) -> dict[str, Any] | None:
    """The parameters for one point; None if the equation cannot be written for one."""
    try:
        return _shrunk(line)
    except _RefusedError:
        return None


def _shrunk(line: Line) -> dict[str, Any]:
    name, params = line.equation.primitive.name, line.equation.params
    known = facts(name)
    if known.form == "solve":
        return _solve(params, line)
    if not known.lengths:
        return params
    key, axes = known.lengths, line.ins[0] if known.leaves_out else line.out
    sizes = tuple(1 if j in axes else n for j, n in enumerate(params[key]))
    return {**params, key: sizes}


def _solve(params: Any, line: Line) -> dict[str, Any]:
    """The functions of a linear solve for one point."""
    lengths, jaxprs = params["const_lengths"], params["jaxprs"]
    first = sum(lengths)
    sides, start, made = line.ins[first:], 0, {}
    for name in jaxprs._fields:
        closed, count = getattr(jaxprs, name), getattr(lengths, name)
        own = line.ins[start : start + count]
        start += count
        made[name] = closed and _of_point(closed, [*own, *sides][: len(closed.in_avals)])
    return {**params, "jaxprs": jaxprs._replace(**made)}


class _Seen(NamedTuple):
    """An array in a body, for one point."""

    value: Any
    axes: Axes  # its axes of the batch, which are of size one
    alike: frozenset[int] = frozenset()  # further axes along which all entries are the same


def _of_point(closed: Any, ins: Sequence[Axes]) -> Any:
    """A closed jaxpr for one point."""
    if any(max(np.shape(c), default=1) > 1 for c in closed.consts):
        raise _RefusedError

    def run(*args: Any) -> list[Any]:
        given = list(map(_Seen, args, ins))
        return [x.value for x in _replayed(closed, given, len(ins[0]))]

    avals = [
        jax.ShapeDtypeStruct([1 if j in axes else n for j, n in enumerate(a.shape)], a.dtype)
        for a, axes in zip(closed.in_avals, ins, strict=True)
    ]
    return jax.make_jaxpr(run)(*avals)


def _replayed(closed: Any, args: Sequence[_Seen], depth: int) -> list[_Seen]:
    """The results of a jaxpr."""
    jaxpr, none = _compat.open_jaxpr(closed), (None,) * depth
    consts = (_Seen(c, none) for c in getattr(closed, "consts", ()))
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))

    def step(equation: Any, operands: list[_Seen]) -> list[_Seen]:
        inner = _compat.inlinable(equation)
        if inner is not None:
            return _replayed(inner, operands, depth)
        met = [_tie(equation, operands, s) for s in range(depth)]
        out = tuple(t and t.out for t in met)
        if any(met) and not is_writable(equation.primitive.name):
            raise _RefusedError
        ins = tuple(tuple(t and t.ins[i] for t in met) for i in range(len(operands)))
        line = Line(equation, out, ins)
        given = [_first(x, axes) for x, axes in zip(operands, ins, strict=True)]
        found = _compat.bind(equation.primitive, _shrunk(line), given)
        alone = (t.out for t in ties(equation) if all(j is None for j in t.ins))
        alike = frozenset(k for k in alone if k is not None)
        return [_Seen(x, out, alike) for x in found]

    read = walk.run(jaxpr, known, step, lambda atom: _Seen(atom.val, none))
    return [read(v) for v in jaxpr.outvars]


def _tie(equation: Any, operands: Sequence[_Seen], s: int) -> Tie | None:
    """The tie by which an equation of a body has an axis of the batch; None if it has not."""
    if all(x.axes[s] is None for x in operands):
        return None
    for tie in ties(equation):
        if all(j == x.axes[s] or (x.axes[s] is None and j in x.alike)
               for j, x in zip(tie.ins, operands, strict=True)):  # fmt: skip
            return tie
    raise _RefusedError


def _first(x: _Seen, axes: Axes) -> Any:
    """An array with one entry along axes of the batch along which it is the same."""
    value = x.value
    for own, j in zip(x.axes, axes, strict=True):
        if own is None and j is not None:
            value = jax.lax.slice_in_dim(value, 0, 1, axis=j)
    return value


def ties(equation: Any) -> list[Tie]:
    """The axes along which an equation of a program or a jaxpr does the same at each index."""
    ins, outs = walk.in_avals(equation), walk.out_avals(equation)
    sizes = [prod(a.shape) for a in (*ins, *outs)]
    if 0 in sizes or sum(sizes) > _MOST_PLACES:
        return []
    found = []
    for tie in ties_of(equation):
        size = 1 if tie.out is None else outs[0].shape[tie.out]
        own = zip(tie.ins, ins, strict=True)
        ties = tuple(None if j is None or a.shape[j] != size else j for j, a in own)
        found += [Tie(tie.out, ties)] if size > 1 else []
    return found


def indices(e: Equation) -> list[int]:
    """The variables that say where an equation takes or puts entries."""
    known = facts(e.primitive.name)
    if known.form not in ("take", "put"):
        return []
    every = enumerate(e.inputs)
    return [a for k, a in every if k > 0 and k != known.updates and isinstance(a, int)]


@register(NAME)
def _rule(site: Site) -> Sequence[Row]:
    """The partials of an equation of points: its further results."""
    part: Points = site.primitive.part
    rows: list[list[Partial | None]] = [[None] * len(site.in_avals) for _ in site.out_avals]
    number = len(part.results)
    for k in part.smooth:
        for i in part.moved:
            s = part.structure(k, i)
            if part.depends(k, i):
                rows[k][i] = Partial(s, s, lambda _ins, outs, number=number: outs[number])
            number += 1
    return rows
