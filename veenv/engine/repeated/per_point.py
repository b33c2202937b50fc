"""Rewrites equations that act elementwise along batch axes as equations of one point.

In: an equation and the axes of its variables. Out: a function of arrays that have size one along
those axes. Bodies of calls, loops and branches are traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from veenv import _compat, limits
from veenv.engine.repeated.unvmap import with_batch_axes
from veenv.graph.equations import Equation
from veenv.graph.program import Program, trace
from veenv.rules import walk
from veenv.rules.axes import AxisMapping, axis_mappings
from veenv.rules.base import is_differentiable
from veenv.rules.table import facts

Axes = tuple[int | None, ...]
"""For each axis of the batch the axis of a variable that goes with it; None where it has none."""


class Refused(Exception):  # noqa: N818  # no user meets it
    """Raised where an equation cannot be written for one point."""


class RegionEquation(NamedTuple):
    """An equation of a batched region, with the axes of its variables."""

    equation: Equation
    out: Axes  # of every result
    ins: tuple[Axes, ...]  # of each operand
    run: Callable[[list[Any]], Sequence[Any]] | None = None  # at one point


def present(axes: Axes) -> list[int]:
    """Returns the axes that a variable has of the batch's."""
    return [j for j in axes if j is not None]


def without(shape: Sequence[int], axes: Axes) -> tuple[int, ...]:
    """Returns a shape without the axes of the batch."""
    return tuple(n for j, n in enumerate(shape) if j not in axes)


def is_writable(equation: Any) -> bool:
    """Returns whether equations of this kind can be written for one point."""
    known = facts(equation.primitive.name)
    if known.lengths is not None or known.form in ("entry", "same", "solve"):
        return True
    return (_has_bodies(equation) and not equation.effects) or _is_ruled(equation)


def _has_bodies(equation: Any) -> bool:
    """Returns whether an equation is a branch, or a loop whose length is the same at all points."""
    known = facts(equation.primitive.name)
    return known.form == "loop" and known.both is True


def _is_ruled(equation: Any) -> bool:
    """Returns whether an equation is a call with a custom derivative rule, of floats alone."""
    if not _compat.own_rule(equation.primitive, equation.params):
        return False
    every = (*walk.in_avals(equation), *walk.out_avals(equation))
    return not equation.effects and all(map(is_differentiable, every))


def at_one_point(
    line: RegionEquation, *, nested: bool = False
) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns what computes an equation at one point; raises where it cannot be written for one."""
    primitive, params = line.equation.primitive, line.equation.params
    if _is_ruled(line.equation):
        return _ruled(line, nested=nested)
    known = facts(primitive.name)
    if known.form == "solve":
        params = _solve(params, line)
    elif several := walk.branches_of(line.equation):
        branches = tuple(_of_point(branch, line.ins[1:]) for branch in several)
        params = {**params, "branches": branches}
    elif (loop := walk.loop_of(line.equation)) is not None:
        end = loop.ends[-1]
        rows = [tuple(None if j is None else j - 1 for j in axes) for axes in line.ins[end:]]
        params = {**params, "jaxpr": _of_point(loop.body, [*line.ins[:end], *rows])}
    elif known.lengths:
        key, axes = known.lengths, line.ins[0] if known.leaves_out else line.out
        params = {**params, key: tuple(1 if j in axes else n for j, n in enumerate(params[key]))}
    return partial(_compat.bind, primitive, params)


def _solve(params: Any, line: RegionEquation) -> dict[str, Any]:
    """Returns the parameters of a linear solve for one point."""
    lengths, jaxprs = params["const_lengths"], params["jaxprs"]
    first = sum(lengths)
    sides, start, jaxprs_of_point = line.ins[first:], 0, {}
    for name in jaxprs._fields:
        closed, count = getattr(jaxprs, name), getattr(lengths, name)
        constants = line.ins[start : start + count]
        start += count
        jaxprs_of_point[name] = closed and _of_point(
            closed, [*constants, *sides][: len(closed.in_avals)]
        )
    return {**params, "jaxprs": jaxprs._replace(**jaxprs_of_point)}


def _ruled(line: RegionEquation, *, nested: bool) -> Callable[[list[Any]], Sequence[Any]]:
    """Returns a call with its custom derivative rule, both written for one point."""
    equation = line.equation
    ins = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in walk.in_avals(equation)]
    outs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in walk.out_avals(equation)]

    def call(*args: Any) -> list[Any]:
        return list(_compat.bind(equation.primitive, equation.params, args))

    out = [line.out] * len(outs)

    def point(
        closed: Any, ins: Sequence[Axes], results: Sequence[Axes]
    ) -> Callable[..., list[Any]]:
        return core.jaxpr_as_fun(_of_point(closed, ins, results))

    def later(write: Callable[[], Any]) -> Callable[[], Any]:
        written = cache(write)  # lazy, as a rule may call its function
        if not nested:
            written()
        return written

    value = point(_compat.call_body(equation.primitive.name, equation.params), line.ins, out)
    if _compat.own_rule(equation.primitive, equation.params) == "jvp":
        pushed = jax.make_jaxpr(lambda x, t: jax.jvp(call, x, t))(ins, ins)
        push = later(lambda: point(pushed, [*line.ins, *line.ins], [*out, *out]))
        forward = jax.custom_jvp(lambda *args: value(*args))

        @forward.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            every = push()(*primals, *tangents)
            return every[: len(outs)], every[len(outs) :]

        return lambda args: forward(*args)
    pulled = jax.make_jaxpr(lambda x, t: jax.vjp(call, *x)[1](t))(ins, outs)
    pull = later(lambda: point(pulled, [*line.ins, *out], line.ins))
    backward = jax.custom_vjp(lambda *args: value(*args))
    backward.defvjp(lambda *args: (value(*args), args), lambda args, t: tuple(pull()(*args, *t)))
    return lambda args: backward(*args)


class Classes:
    """Equivalence classes of axes of variables (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[Any, Any] = {}

    def __call__(self, x: Any) -> Any:
        """Returns the representative of an axis's class."""
        while (above := self._parents.get(x, x)) != x:
            self._parents[x] = x = self._parents.get(above, above)  # path compression
        return x

    def join(self, a: Any, b: Any) -> None:
        """Merges two classes."""
        self._parents[self(a)] = self(b)


def _body_mappings(equation: Any) -> list[AxisMapping]:
    """Returns the mappings that bodies of a call, loop or choice of branches have in common."""
    classes = _body_classes(equation)
    ins, outs = walk.in_avals(equation), walk.out_avals(equation)
    dropped = (v is None or _compat.is_dropped(v) for v in equation.outvars)
    # no counters
    used = [k for k, is_dropped in enumerate(dropped) if not is_dropped and outs[k].shape]
    mappings = []
    for n in range(min((len(outs[k].shape) for k in used), default=0)):
        out_classes = {classes(("out", k, n)) for k in used}
        axes = [
            [j for j in range(len(a.shape)) if {classes(("in", k, j))} == out_classes]
            for k, a in enumerate(ins)
        ]
        if len(out_classes) == 1 and max(map(len, axes)) == 1:
            mappings.append(AxisMapping(n, tuple(j[0] if j else None for j in axes)))
    return mappings


def _body_classes(equation: Any) -> Classes:
    """Groups axes of operands ("in", number, axis) and results that bodies map."""
    name, params = equation.primitive.name, equation.params
    classes, last, carried = Classes(), len(equation.invars), len(equation.outvars)
    bodies, loop = walk.branches_of(equation), walk.loop_of(equation)
    first = len(bodies[:1])
    if not bodies:
        bodies = [loop.body if loop else _compat.call_body(name, params)]
    if loop:
        _, start, last = loop.ends
        carried = last - start
        for k, a in enumerate(walk.out_avals(equation)[:carried]):
            for j in range(len(a.shape)):
                classes.join(("in", start + k, j), ("out", k, j))
    for number, closed in enumerate(bodies):
        avals, body = closed.in_avals, _program(closed)
        for e in body.equations:
            for mapping in batch_mappings(e):
                axes = (*mapping.ins, *[mapping.out] * len(e.outvars))
                ends = zip((*e.invars, *e.outvars), axes, strict=False)
                every = [(number, v, j) for v, j in ends if isinstance(v, int) and j is not None]
                for other in every[1:]:
                    classes.join(other, every[0])
        for k, a in enumerate(avals):
            for j in range(len(a.shape)):  # stacks have a first axis of turns
                classes.join((number, k, j), ("in", first + k, j + (k >= last)))
        for k, v in enumerate(body.outputs):
            for j in range(len(closed.out_avals[k].shape)) if isinstance(v, int) else ():
                classes.join((number, v, j), ("out", k, j + (k >= carried)))
    return classes


class _Seen(NamedTuple):
    """An array in a body at one point, with its batch axes."""

    value: Any
    axes: Axes  # its axes of the batch, which are of size one
    alike: frozenset[int] = frozenset()  # further axes along which all entries are the same


def _of_point(closed: Any, ins: Sequence[Axes], outs: Sequence[Axes] | None = None) -> Any:
    """Returns a closed jaxpr for one point; `outs`: the axes of the batch that its results have."""
    if any(max(np.shape(c), default=1) > 1 for c in closed.consts):
        raise Refused
    program = _program(closed)

    def run(*args: Any) -> list[Any]:
        operands = list(map(_Seen, args, ins))
        results = _replayed(program, operands, len(ins[0]))
        pairs = zip(results, outs or [x.axes for x in results], strict=True)
        return [_first(x, axes) for x, axes in pairs]

    avals = [
        jax.ShapeDtypeStruct([1 if j in axes else n for j, n in enumerate(a.shape)], a.dtype)
        for a, axes in zip(closed.in_avals, ins, strict=True)
    ]
    return jax.make_jaxpr(run)(*avals)


def _program(closed: Any) -> Program:
    """Returns the equations of a closed jaxpr, calls inlined."""
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]
    return with_batch_axes(trace(core.jaxpr_as_fun(closed), avals, argnums=range(len(avals))))


def _replayed(program: Program, args: Sequence[_Seen], depth: int) -> list[_Seen]:
    """Returns the results of a program for one point."""
    none = (None,) * depth
    consts = [_Seen(c, none) for c in program.constants]

    def step(equation: Any, operands: list[_Seen]) -> list[_Seen]:
        mappings = [_mapping_along(equation, operands, s) for s in range(depth)]
        out = tuple(t and t.out for t in mappings)
        if any(mappings) and not is_writable(equation):
            raise Refused
        ins = tuple(tuple(t and t.ins[i] for t in mappings) for i in range(len(operands)))
        values = [_first(x, axes) for x, axes in zip(operands, ins, strict=True)]
        results = at_one_point(RegionEquation(equation, out, ins), nested=True)(values)
        alike = _alike(equation, operands).difference(out)
        return [_Seen(x, out, alike) for x in results]

    known = dict(enumerate([*args, *consts]))
    read = walk.run(program.equations, known, step, lambda atom: _Seen(atom.val, none))
    return [read(v) for v in program.outputs]


def _alike(equation: Any, operands: Sequence[_Seen]) -> frozenset[int]:
    """Returns the axes along which all entries of the results of an equation are the same."""
    pairs = ((t.out, zip(t.ins, operands, strict=True)) for t in batch_mappings(equation))
    return frozenset(
        k
        for k, operand_axes in pairs
        if k is not None and all(j is None or j in x.alike for j, x in operand_axes)
    )


def _mapping_along(equation: Any, operands: Sequence[_Seen], s: int) -> AxisMapping | None:
    """Returns an equation's mapping along an axis of the batch; None if it has not the axis."""
    if all(x.axes[s] is None for x in operands):
        return None
    for mapping in batch_mappings(equation):
        if all(j == x.axes[s] or (x.axes[s] is None and j in x.alike)
               for j, x in zip(mapping.ins, operands, strict=True)):  # fmt: skip
            return mapping
    raise Refused


def _first(x: _Seen, axes: Axes) -> Any:
    """Returns an array with one entry along axes of the batch along which it is the same."""
    value = x.value
    for axis, j in zip(x.axes, axes, strict=True):
        if axis is None and j in x.alike:
            value = jax.lax.slice_in_dim(value, 0, 1, axis=j)
        elif axis != j:
            raise Refused
    return value


def batch_mappings(equation: Any) -> list[AxisMapping]:
    """Returns the axes along which an equation of a program or a jaxpr acts elementwise."""
    ins, outs = walk.in_avals(equation), walk.out_avals(equation)
    sizes = [prod(a.shape) for a in (*ins, *outs)]
    if 0 in sizes or sum(sizes) > limits.LISTED:
        return []
    if _has_bodies(equation) or _is_ruled(equation):
        return _body_mappings(equation)
    mappings = []
    for mapping in axis_mappings(equation):
        size = 1 if mapping.out is None else outs[0].shape[mapping.out]
        pairs = zip(mapping.ins, ins, strict=True)
        operand_axes = tuple(None if j is None or a.shape[j] != size else j for j, a in pairs)
        mappings += [AxisMapping(mapping.out, operand_axes)] if size > 1 else []
    return mappings


def indices(e: Equation) -> list[int]:
    """Returns the variables that say where an equation takes or puts entries."""
    known = facts(e.primitive.name)
    if known.form not in ("take", "put"):
        return []
    every = enumerate(e.invars)
    return [a for k, a in every if k > 0 and k != known.updates and isinstance(a, int)]
