"""Finds which elements depend on which, through a partial, a loop, a branch or a batched region.

In: equations, and what their operands depend on as bool arrays. Out: the same of their results.
Bodies are followed equation by equation, and loops turn by turn: row t of a recurrence's result
depends on nothing that comes after t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from veenv import _compat, limits
from veenv.engine.known import held, is_exact, results
from veenv.graph.custom_rules import Inner, inner_program, proven
from veenv.graph.equations import Equation
from veenv.graph.program import Program
from veenv.graph.sparse_matrices import written_out
from veenv.rules import Site, indexmap, partials, walk
from veenv.rules.axes import Product
from veenv.rules.base import is_differentiable
from veenv.rules.definitions import definition_of
from veenv.rules.operator_patterns import Places, operator_pattern
from veenv.rules.table import facts
from veenv.structure.structure import FREE, Structure


class _TooManyError(Exception):
    """Raised where there is too much to look at."""


@dataclass(frozen=True)
class _Variable:
    """A variable in a body: what it depends on, and its value if it is known."""

    # bool [*shape, n], which elements of the operand each element depends on; None: none
    reach: np.ndarray | None = None
    value: np.ndarray | None = None  # its value, if it is known


_Several = list[_Variable]


def dependent_places(
    equation: Equation, ways: tuple[int, int], known: Callable[[Any], np.ndarray | None]
) -> Places | None:
    """Returns the places of a loop's or branch's partial; None where that takes too long."""
    result, operand = ways
    shape = equation.in_avals[operand].shape
    size, by = prod(shape), equation.invars[operand]
    if size**2 > limits.FEW * limits.TABLE:
        return None
    width = max(1, limits.TABLE // max(1, size, prod(equation.out_avals[result].shape)))
    places = []
    for start in range(0, size, width):  # the operand in chunks
        seed = np.eye(size, min(width, size - start), -start, dtype=bool)
        several = _Variable(seed.reshape(*shape, -1))
        operands = [several if a == by else _Variable(value=known(a)) for a in equation.invars]
        try:
            reach = _Follower(seed.shape[1]).equation(equation, operands)[result].reach
        except _TooManyError:
            return None
        if reach is not None:
            rows, cols = np.nonzero(reach.reshape(-1, seed.shape[1]))
            places.append((rows, start + cols))
    if not places:
        return None
    rows, cols = map(np.concatenate, zip(*places, strict=True))
    return rows, cols


def seeds(shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Returns the identity as bool [*shape, elements of them all], one array for each variable."""
    sizes = [prod(shape) for shape in shapes]
    parts = np.split(np.eye(sum(sizes), dtype=bool), np.cumsum(sizes)[:-1])
    return [x.reshape(*shape, sum(sizes)) for x, shape in zip(parts, shapes, strict=True)]


def followed(
    equations: Sequence[Any],
    reaches: Mapping[Any, np.ndarray],
    values: Mapping[Any, np.ndarray | None],
    outputs: Sequence[Any],
) -> list[np.ndarray | None] | None:
    """Returns the reach of `outputs`, bool [*shape, n] each; None where that takes too long.

    `reaches` holds the reach of active variables, `values` the known values of other ones.
    """
    known = {v: _Variable(x) for v, x in reaches.items()}
    known |= {v: _Variable(value=x) for v, x in values.items()}
    size = next(iter(reaches.values())).shape[-1]
    try:
        return [x.reach for x in _Follower(size).results(equations, known, outputs)]
    except _TooManyError:
        return None


class _Follower(walk.Domain[_Variable]):
    """Propagates dependences on the elements of an operand through equations."""

    turns = True

    def __init__(self, size: int):
        self._size, self._steps = size, 0

    def constant(self, value: Any) -> _Variable:
        """Returns a constant, which depends on nothing."""
        return _Variable(value=held(value, limits.SMALL))

    def join(self, a: _Variable, b: _Variable) -> _Variable:
        """Returns the union of what either depends on."""
        return _either([a.reach, b.reach])

    def same(self, a: _Variable, b: _Variable) -> bool:
        """Returns whether two variables depend on the same, and are known or not."""
        if a.reach is None or b.reach is None:
            return a.reach is b.reach and (a.value is None) == (b.value is None)
        return np.array_equal(a.reach, b.reach)

    def turned(self, equation: Any, turn: int) -> None:
        """Raises where a loop of unknown length takes too many turns."""
        loop = walk.loop_of(equation)
        if loop is not None and loop.length is None and turn >= limits.WIDE:
            raise _TooManyError

    def index(self, value: _Variable) -> int | None:
        """Returns the number of the branch that runs, if it is known."""
        return None if value.value is None else int(value.value)

    def row(self, value: _Variable, turn: int) -> _Variable:
        """Returns the row of a stack that one turn reads."""
        return _Variable(*(None if a is None else a[turn] for a in (value.reach, value.value)))

    def stacked(self, rows: Sequence[_Variable], aval: Any) -> _Variable:
        """Returns the rows of all turns, stacked."""
        if all(row.reach is None for row in rows):
            return _Variable()
        flat = np.stack([self._flat(row, prod(aval.shape[1:])) for row in rows])
        return _Variable(flat.reshape(*aval.shape, self._size))

    def _flat(self, x: _Variable, count: int) -> np.ndarray:
        """Returns a reach as bool [count, n]."""
        shape = count, self._size
        return np.zeros(shape, bool) if x.reach is None else x.reach.reshape(shape)

    def body(self, equation: Any) -> Any | None:
        """Returns the body of a call whose derivative is its body's; None of others."""
        if _compat.own_rule(equation.primitive, equation.params):
            return None
        body = _compat.call_body(equation.primitive.name, equation.params)
        body = body or written_out(equation) or definition_of(equation)
        alike = body is not None and len(_compat.open_jaxpr(body).invars) == len(equation.invars)
        return body if alike else None

    def loop(self, equation: Any, loop: walk.LoopParts, ins: _Several) -> _Several:
        """Follows a loop turn by turn; a long one by one turn for all."""
        inside = sum(1 for _ in walk.every(loop.body))
        if loop.length is None or self._steps + inside * loop.length <= limits.STEPS:
            return super().loop(equation, loop, ins)
        return self._repeated(equation, loop, loop.length, ins)

    def _repeated(self, equation: Any, loop: walk.LoopParts, turns: int, ins: _Several) -> _Several:
        """Follows one turn, and applies its dependences for each turn."""
        (_, start, end), avals = loop.ends, loop.body.in_avals
        active = [
            k
            for k, (x, a) in enumerate(zip(ins, avals, strict=True))
            if x.reach is not None or (start <= k < end and is_differentiable(a))
        ]
        unit_reaches = seeds([avals[k].shape for k in active])
        one = unit_reaches[0].shape[-1]
        if turns > limits.THIN * limits.STEPS or turns * one * self._size > limits.TABLE:
            raise _TooManyError
        operands = [x if k < start else _Variable() for k, x in enumerate(ins)]
        for k, x in zip(active, unit_reaches, strict=True):
            operands[k] = _Variable(x)
        turn = [x.reach for x in _Follower(one).jaxpr(loop.body, operands)]
        rows: dict[int, _Several] = {}
        carry = ins[start:end]
        for number in loop.turns:
            now = [*ins[:start], *carry, *(self.row(x, number) for x in ins[end:])]
            reach = np.concatenate([self._flat(now[k], prod(avals[k].shape)) for k in active])
            outs = [_Variable(None if by is None else by @ reach) for by in turn]
            carry, rows[number] = outs[: end - start], outs[end - start :]
        stacks = enumerate(walk.out_avals(equation)[end - start :])
        return [*carry, *(self.stacked([rows[t][k] for t in range(turns)], a) for k, a in stacks)]

    def equation(self, equation: Any, ins: _Several) -> _Several:
        """Returns the results of an equation."""
        self._steps += 1
        sizes = (prod(getattr(aval, "shape", ())) for aval in walk.out_avals(equation))
        if self._steps > limits.STEPS or any(n * self._size > limits.TABLE for n in sizes):
            raise _TooManyError
        if all(x.reach is None for x in ins):
            return _worked_out(_as_equation(equation), ins)
        return super().equation(equation, ins)

    def primitive(self, equation: Any, ins: _Several) -> _Several:
        """Follows index maps of moved elements, or the structures of partials."""
        ruled = _compat.own_rule(equation.primitive, equation.params)
        equation = _as_equation(equation)
        if ruled:  # its derivative is not its body's
            return self._ruled(equation, ins) or self._whole(equation, ins)
        return self._moved(equation, ins) or self._mixed(equation, ins)

    def _ruled(self, equation: Equation, operands: _Several) -> _Several | None:
        """Follows the program of an equation's rule; None if that is unknown or not linear."""
        try:
            inner = inner_program(_site(equation, operands))
            if inner is None or not (inner.is_linear and proven(inner).linear):
                return None
        except Exception:  # a user's rule may refuse operands
            return None
        if inner.backward:
            reaches = self._pulled(inner, equation, operands)
        else:
            active = [operands[i].reach for i in inner.operands]
            reaches = self._followed(inner.program, active, operands)
        results = [_Variable() for _ in equation.out_avals]
        for k, reach in zip(inner.results, reaches, strict=True):
            results[k] = _Variable(reach)
        return results

    def _pulled(self, inner: Inner, equation: Equation, operands: _Several) -> list[np.ndarray]:
        """Follows, backwards, a rule from results' cotangents to operands' cotangents."""
        shapes = [equation.out_avals[k].shape for k in inner.results]
        sizes = [*map(prod, shapes)]
        if sum(sizes) ** 2 > limits.TABLE:
            raise _TooManyError
        pulled = _Follower(sum(sizes))._followed(inner.program, seeds(shapes), operands)
        through = np.zeros((sum(sizes), self._size), bool)
        for i, a in zip(inner.operands, pulled, strict=True):
            if a is not None and operands[i].reach is not None:
                by = a.reshape(-1, sum(sizes))
                through |= by.T @ self._flat(operands[i], len(by))
        parts = np.split(through, np.cumsum(sizes)[:-1])
        return [x.reshape(*shape, self._size) for x, shape in zip(parts, shapes, strict=True)]

    def _followed(
        self, program: Program, reaches: Sequence[np.ndarray | None], operands: _Several
    ) -> list[np.ndarray | None]:
        """Returns the reach of a rule program's outputs; its first constants are `operands`."""
        constants = [_Variable(value=x.value) for x in operands]
        constants += map(self.constant, program.constants[len(operands) :])
        known: dict[Any, _Variable] = dict(enumerate([*map(_Variable, reaches), *constants]))
        return [x.reach for x in self.results(program.equations, known, program.outputs)]

    def _whole(self, equation: Equation, operands: _Several) -> _Several:
        """Makes each result depend on all that any operand depends on."""
        flat = [x.reach.reshape(-1, self._size) for x in operands if x.reach is not None]
        reach = np.concatenate(flat).any(axis=0)
        shapes = [(*a.shape, self._size) for a in equation.out_avals]
        return [_Variable(np.broadcast_to(reach, shape)) for shape in shapes]

    def _mixed(self, equation: Equation, operands: _Several) -> _Several:
        """Follows the structures of an equation's partials; a product with zeros has no reach."""
        if facts(equation.primitive.name).bilinear and any(map(_is_zero, operands)):
            return [_Variable()]
        reaches: _Several = []
        rows = partials(_site(equation, operands))
        for result, (aval, row) in enumerate(zip(equation.out_avals, rows, strict=True)):
            by = []
            for operand, (p, x) in enumerate(zip(row, operands, strict=True)):
                if p is None or x.reach is None:
                    continue
                listed = self._at_places(equation, (result, operand), x.reach)
                met = _met(equation, operand, operands, x.reach) if listed is None else listed
                by.append(_through(p.executed, x.reach, aval.shape) if met is None else met)
            reaches.append(_either(by))
        return reaches

    def _moved(self, equation: Equation, operands: _Several) -> _Several | None:
        """Returns the results of what moves elements; None if it does not, or to unknown places."""
        avals, known = equation.in_avals, lambda number: operands[number].value

        def flat() -> list[np.ndarray]:
            return [self._flat(x, prod(a.shape)) for x, a in zip(operands, avals, strict=True)]

        index_maps = indexmap.sources(equation, known)
        if index_maps is not None:
            rows = np.concatenate([*flat(), np.zeros((1, self._size), bool)])
            return [_Variable(rows[places]) for places in index_maps]
        adds = indexmap.adds(equation.primitive.name)
        added = indexmap.targets(equation, known) if adds else None
        if added is None:
            return None
        first, _, updates = flat()
        there, targets = first.copy(), added.reshape(-1)
        np.logical_or.at(there, targets[targets >= 0], updates[targets >= 0])
        return [_Variable(there.reshape(*avals[0].shape, self._size))]

    def _at_places(
        self, equation: Equation, ways: tuple[int, int], reach: np.ndarray
    ) -> np.ndarray | None:
        """Follows entries of running sums and triangles; None of others, or of many."""
        if facts(equation.primitive.name).form not in ("running", "matrix"):
            return None
        at = operator_pattern(equation, ways, lambda _: None)
        if at is None or len(at[0]) * self._size > limits.TABLE:
            return None
        shape = equation.out_avals[ways[0]].shape
        result_reach = np.zeros((prod(shape), self._size), bool)
        np.logical_or.at(result_reach, at[0], reach.reshape(-1, self._size)[at[1]])
        return result_reach.reshape(*shape, self._size)


def _as_equation(equation: Any) -> Equation:
    """Returns an equation of a jaxpr as one whose variables are its operands' numbers."""
    ins, outs = walk.in_avals(equation), walk.out_avals(equation)
    numbers = tuple(range(len(ins)))
    return Equation(equation.primitive, equation.params, numbers, (), tuple(ins), tuple(outs), "")


def _site(equation: Equation, operands: _Several) -> Site:
    active = tuple(x.reach is not None for x in operands)
    avals = equation.in_avals, equation.out_avals
    return Site(equation.primitive, equation.params, *avals, active, "", realify=False)


def _worked_out(equation: Equation, operands: _Several) -> _Several:
    """Evaluates an equation on which nothing depends: counters and indices, if known."""
    avals = equation.out_avals
    exact = all(is_exact(a.dtype) and prod(a.shape) <= limits.SMALL for a in avals)
    known = all(x.value is not None for x in operands)
    if not exact or not known or any(_compat.bodies(equation.params)):
        return [_Variable() for _ in avals]
    return [_Variable(value=x) for x in results(equation, [x.value for x in operands])]


def _is_zero(x: _Variable) -> bool:
    return x.value is not None and not x.value.any()


def _through(s: Structure, reach: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Returns the reach of the results of a partial of a structure."""
    size = reach.shape[-1]
    reach = reach.reshape(*s.in_shape, size)
    paired = [j for j in s.pairs if j != FREE]
    lost = tuple(j for j in range(len(s.in_shape)) if j not in paired)
    paired_reach = reach.any(axis=lost)
    order = sorted(paired)
    paired_reach = np.transpose(paired_reach, [*(order.index(j) for j in paired), len(paired)])
    outer = [n if j != FREE else 1 for n, j in zip(s.out_shape, s.pairs, strict=True)]
    whole = np.broadcast_to(paired_reach.reshape(*outer, size), (*s.out_shape, size))
    return whole.reshape(*shape, size)


def _met(
    equation: Equation, operand: int, operands: _Several, reach: np.ndarray
) -> np.ndarray | None:
    """Returns the reach through a known select, or through known factors without their zeros."""
    known, shape = facts(equation.primitive.name), equation.out_avals[0].shape
    there = None
    if known.selects and operands[0].value is not None:
        there = operands[0].value == operand - 1
    elif known.multiplies or known.form == "dot":
        factor = operands[1 - operand].value
        there = None if factor is None else factor != 0
    if there is None:
        return None
    if known.form == "dot":
        return _dotted(equation, operand, there, reach)
    if reach.shape[:-1] != shape:
        return None
    return reach & np.broadcast_to(there, shape)[..., None]


def _dotted(equation: Equation, operand: int, factor: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Returns the reach through a product with a factor that is not zero at some places."""
    mappings = Product.of(equation).axis_mappings()
    labels: Any = [{t.ins[k]: n for n, t in enumerate(mappings)} for k in (0, 1)]
    operand_axes, factor_axes = (
        [of[j] for j in sorted({*of} - {None})] for of in (labels[operand], labels[1 - operand])
    )
    out = [n for n, t in enumerate(mappings) if t.out is not None]
    numbers: Any = reach.astype(np.float32)
    last = len(mappings)  # the axis of what is depended on
    return np.einsum(numbers, [*operand_axes, last], factor * 1.0, factor_axes, [*out, last]) > 0


def _either(several: Sequence[np.ndarray | None]) -> _Variable:
    reaches = [x for x in several if x is not None]
    return _Variable(np.logical_or.reduce(reaches) if reaches else None)
