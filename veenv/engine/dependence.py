"""Which elements of the results of loops and branches depend on which of an operand.

Their bodies are followed equation by equation, and loops turn by turn: row t of what a recurrence
gives depends on nothing that comes after t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from veenv import _compat
from veenv.engine.known import held, is_exact, results
from veenv.graph.custom_rules import inner_program, proven
from veenv.graph.equations import Equation
from veenv.graph.program import Program
from veenv.graph.sparse_matrices import written_out
from veenv.rules import Site, indexmap, partials, walk
from veenv.rules.axes import Product
from veenv.rules.base import is_differentiable
from veenv.rules.meanings import meaning_of
from veenv.rules.table import facts
from veenv.structure.structure import FREE, Structure

_MOST_STEPS = 1 << 12
"""Most equations that are looked at, each turn of a loop counted."""

_MOST_FLAGS = 1 << 24
"""Most elements of a variable times elements of the operand."""

_MOST_IN_ALL = 1 << 28
"""Most elements of an operand squared: a step of more takes seconds, and so do as many entries."""

_MOST_TURNS = 64
"""Most turns after which a loop of unknown length is given up."""

_MOST_REPEATED = 1 << 14
"""Most turns of a loop that are gone through, each being as any other."""

_MOST_KNOWN = 1 << 10
"""Most elements of a counter or index that is worked out."""


class _TooManyError(Exception):
    """There is too much to look at."""


@dataclass(frozen=True)
class _Variable:
    """A variable in a body."""

    # bool [*shape, n], which elements of the operand each element depends on; None: none
    reach: np.ndarray | None = None
    value: np.ndarray | None = None  # its value, if it is known


_Several = list[_Variable]
Places = Callable[[Equation, tuple[int, int]], "tuple[np.ndarray, np.ndarray] | None"]
"""Of an equation, a result and an operand the rows and columns of the partial's entries."""


def dependent_places(
    equation: Equation, result: int, operand: int, known: Callable[[Any], np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and columns of the partial of a loop or branch that may have entries.

    None where that takes too long or says nothing. `known` gives values of the program's variables.
    """
    shape = equation.in_avals[operand].shape
    size, by = prod(shape), equation.inputs[operand]
    if size**2 > _MOST_IN_ALL or facts(equation.primitive.name).form != "loop":
        return None
    width = max(1, _MOST_FLAGS // max(1, size, prod(equation.out_avals[result].shape)))
    found = []
    for start in range(0, size, width):  # some elements of the operand after the other
        own = np.eye(size, min(width, size - start), -start, dtype=bool)
        several = _Variable(own.reshape(*shape, -1))
        given = [several if a == by else _Variable(value=known(a)) for a in equation.inputs]
        try:
            reach = _Follower(own.shape[1]).equation(equation, given)[result].reach
        except _TooManyError:
            return None
        if reach is not None:
            rows, cols = np.nonzero(reach.reshape(-1, own.shape[1]))
            found.append((rows, start + cols))
    rows, cols = map(np.concatenate, zip(*found, strict=True)) if found else (None, None)
    return None if rows is None or cols is None else (rows, cols)


def followed(
    equations: Sequence[Any],
    reaches: Mapping[Any, np.ndarray],
    values: Mapping[Any, np.ndarray | None],
    outputs: Sequence[Any],
    places: Places,
) -> list[np.ndarray | None] | None:
    """What some variables depend on, bool [*shape, n]; None of all where that takes too long.

    `reaches` are those of variables, `values` what is known of the others; `places` says of a
    partial where it has entries, if it has a say.
    """
    known = {v: _Variable(x) for v, x in reaches.items()}
    known |= {v: _Variable(value=x) for v, x in values.items()}
    size = next(iter(reaches.values())).shape[-1]
    try:
        return [x.reach for x in _Follower(size, places).results(equations, known, outputs)]
    except _TooManyError:
        return None


class _Follower(walk.Domain[_Variable]):
    """Follows what depends on an operand of so many elements."""

    turns = True

    def __init__(self, size: int, places: Places = lambda *_: None):
        self._size, self._steps, self._places = size, 0, places

    def constant(self, value: Any) -> _Variable:
        """A constant, which depends on nothing."""
        return _Variable(value=held(value, _MOST_KNOWN))

    def join(self, a: _Variable, b: _Variable) -> _Variable:
        """What either depends on."""
        return _either([a.reach, b.reach])

    def same(self, a: _Variable, b: _Variable) -> bool:
        """Whether they depend on the same, and are known or not."""
        if a.reach is None or b.reach is None:
            return a.reach is b.reach and (a.value is None) == (b.value is None)
        return np.array_equal(a.reach, b.reach)

    def turned(self, equation: Any, turn: int) -> None:
        """Gives up a loop of unknown length in the end."""
        loop = walk.loop_of(equation)
        if loop is not None and loop.length is None and turn >= _MOST_TURNS:
            raise _TooManyError

    def index(self, value: _Variable) -> int | None:
        """The branch that is taken, if it is known."""
        return None if value.value is None else int(value.value)

    def row(self, value: _Variable, turn: int) -> _Variable:
        """What a turn sees of a stack."""
        return _Variable(*(None if a is None else a[turn] for a in (value.reach, value.value)))

    def stacked(self, rows: Sequence[_Variable], aval: Any) -> _Variable:
        """The rows of all turns."""
        if all(row.reach is None for row in rows):
            return _Variable()
        none = np.zeros((*aval.shape[1:], self._size), bool)
        return _Variable(np.stack([none if row.reach is None else row.reach for row in rows]))

    def body(self, equation: Any) -> Any | None:
        """Of a call, whose derivative is that of its body."""
        if _compat.own_rule(equation.primitive, equation.params):
            return None
        body = _compat.call_body(equation.primitive.name, equation.params)
        body = body or written_out(equation) or meaning_of(equation)
        alike = body is not None and len(_compat.open_jaxpr(body).invars) == len(equation.invars)
        return body if alike else None

    def loop(self, equation: Any, loop: walk.Loop, ins: _Several) -> _Several:
        """Turn by turn; a long loop by what one turn does, whatever its number is."""
        inside = sum(1 for _ in walk.every(loop.body))
        if loop.length is None or self._steps + inside * loop.length <= _MOST_STEPS:
            return super().loop(equation, loop, ins)
        return self._repeated(equation, loop, loop.length, ins)

    def _repeated(self, equation: Any, loop: walk.Loop, turns: int, ins: _Several) -> _Several:
        (_, start, end), closed = loop.ends, loop.body
        shapes = [a.shape for a in closed.in_avals]
        floats = [is_differentiable(a) for a in closed.in_avals]
        moving = [
            k for k, x in enumerate(ins) if x.reach is not None or (start <= k < end and floats[k])
        ]
        sizes = [prod(shapes[k]) for k in moving]
        one = sum(sizes)
        if turns > _MOST_REPEATED or turns * one * self._size > _MOST_FLAGS:
            raise _TooManyError
        parts = np.split(np.eye(one, dtype=bool), np.cumsum(sizes)[:-1])
        given = [x if k < start else _Variable() for k, x in enumerate(ins)]
        for k, part in zip(moving, parts, strict=True):
            given[k] = _Variable(part.reshape(*shapes[k], one))
        turn = _Follower(one).jaxpr(closed, given)
        flat = [None if x.reach is None else x.reach.reshape(-1, one) for x in turn]
        rows: list[_Several] = []
        carry = [ins[k] for k in range(start, end)]
        for number in loop.turns:
            now = [*ins[:start], *carry, *(self.row(x, number) for x in ins[end:])]
            zeros = [np.zeros((n, self._size), bool) for n in sizes]
            reach = np.concatenate(
                [
                    zero if (own := now[k].reach) is None else own.reshape(zero.shape)
                    for k, zero in zip(moving, zeros, strict=True)
                ]
            )
            outs = [
                _Variable(None if by is None else (by @ reach).reshape(*a.shape, -1))
                for by, a in zip(flat, closed.out_avals, strict=True)
            ]
            carry = outs[: end - start]
            rows.append(outs[end - start :])
        rows = rows[:: -1 if loop.reverse else 1]
        avals = walk.out_avals(equation)[end - start :]
        return [*carry, *(self.stacked([r[k] for r in rows], a) for k, a in enumerate(avals))]

    def equation(self, equation: Any, ins: _Several) -> _Several:
        """The results of an equation."""
        self._steps += 1
        sizes = (prod(getattr(aval, "shape", ())) for aval in walk.out_avals(equation))
        if self._steps > _MOST_STEPS or any(n * self._size > _MOST_FLAGS for n in sizes):
            raise _TooManyError
        if all(x.reach is None for x in ins):
            return _worked_out(_as_equation(equation), ins)
        return super().equation(equation, ins)

    def primitive(self, equation: Any, ins: _Several) -> _Several:
        """By the places that elements are moved to, or by the structures of partials."""
        own = _compat.own_rule(equation.primitive, equation.params)
        equation = _as_equation(equation)
        if own:  # its derivative is not its body's
            return self._ruled(equation, ins) or self._whole(equation, ins)
        return _moved(equation, ins) or self._mixed(equation, ins)

    def _ruled(self, equation: Equation, given: _Several) -> _Several | None:
        """By the program of its own rule; None if that is not known, or not linear."""
        try:
            inner = inner_program(_site(equation, given))
            if inner is None or not proven(inner).linear:
                return None
        except Exception:  # of a user's rule that refuses some operands
            return None
        program, found = inner.program, [_Variable() for _ in equation.out_avals]
        moving = [given[i] for i in inner.operands]
        if not inner.backward:
            reaches = self._followed(program, [x.reach for x in moving], given)
            for k, reach in zip(inner.results, reaches, strict=True):
                found[k] = _Variable(reach)
            return found
        sizes = [prod(equation.out_avals[k].shape) for k in inner.results]
        own = np.split(np.eye(sum(sizes), dtype=bool), np.cumsum(sizes)[:-1])
        shapes = [(*equation.out_avals[k].shape, sum(sizes)) for k in inner.results]
        if sum(sizes) ** 2 > _MOST_FLAGS:
            raise _TooManyError
        seeds = [x.reshape(shape) for x, shape in zip(own, shapes, strict=True)]
        pulled = _Follower(sum(sizes))._followed(program, seeds, given)
        pairs = [(a, x.reach) for a, x in zip(pulled, moving, strict=True)]
        through = [
            a.reshape(-1, sum(sizes)).T @ b.reshape(-1, self._size)
            for a, b in pairs
            if a is not None and b is not None
        ]
        if through:
            parts = np.split(reduce(np.logical_or, through), np.cumsum(sizes)[:-1])
            for k, part in zip(inner.results, parts, strict=True):
                found[k] = _Variable(part.reshape(*equation.out_avals[k].shape, self._size))
        return found

    def _followed(
        self, program: Program, reaches: Sequence[np.ndarray | None], given: _Several
    ) -> list[np.ndarray | None]:
        """What the outputs of a rule's program depend on; its first constants are `given`."""
        known: dict[Any, _Variable] = dict(enumerate(map(_Variable, reaches)))
        constants = [_Variable(value=x.value) for x in given]
        constants += map(self.constant, program.constants[len(given) :])
        known.update(enumerate(constants, len(reaches)))
        return [x.reach for x in self.results(program.equations, known, program.outputs)]

    def _whole(self, equation: Equation, given: _Several) -> _Several:
        """Each result by all that any operand depends on."""
        flat = [x.reach.reshape(-1, self._size) for x in given if x.reach is not None]
        reach = np.concatenate(flat).any(axis=0)
        shapes = [(*a.shape, self._size) for a in equation.out_avals]
        return [_Variable(np.broadcast_to(reach, shape)) for shape in shapes]

    def _mixed(self, equation: Equation, given: _Several) -> _Several:
        """By the structures of its partials; a product with zeros depends on nothing."""
        if facts(equation.primitive.name).bilinear and any(map(_is_zero, given)):
            return [_Variable()]
        found: _Several = []
        rows = partials(_site(equation, given))
        for result, (aval, row) in enumerate(zip(equation.out_avals, rows, strict=True)):
            by = []
            for operand, (p, x) in enumerate(zip(row, given, strict=True)):
                if p is None or x.reach is None:
                    continue
                at = self._places(equation, (result, operand))
                if at is not None:
                    by.append(_at_places(at, x.reach, aval.shape))
                    continue
                met = _met(equation, operand, given, x.reach)
                by.append(_through(p.executed, x.reach, aval.shape) if met is None else met)
            found.append(_either(by))
        return found


def _as_equation(equation: Any) -> Equation:
    """An equation of a jaxpr as one of a program whose variables are its operands' numbers."""
    ins, outs = walk.in_avals(equation), walk.out_avals(equation)
    numbers = tuple(range(len(ins)))
    return Equation(equation.primitive, equation.params, numbers, (), tuple(ins), tuple(outs), "")


def _site(equation: Equation, given: _Several) -> Site:
    active = tuple(x.reach is not None for x in given)
    avals = equation.in_avals, equation.out_avals
    return Site(equation.primitive, equation.params, *avals, active, "", realify=False)


def _worked_out(equation: Equation, given: _Several) -> _Several:
    """The results of an equation on which nothing depends: counters and indices, if known."""
    avals = equation.out_avals
    exact = all(is_exact(a.dtype) and prod(a.shape) <= _MOST_KNOWN for a in avals)
    known = all(x.value is not None for x in given)
    if not exact or not known or any(_compat.bodies(equation.params)):
        return [_Variable() for _ in avals]
    return [_Variable(value=x) for x in results(equation, [x.value for x in given])]


def _is_zero(x: _Variable) -> bool:
    return x.value is not None and not x.value.any()


def _moved(equation: Equation, given: _Several) -> _Several | None:
    """The result of an equation that moves elements; None if it does not, or to unknown places."""
    avals, known = equation.in_avals, lambda number: given[number].value
    size = next(x.reach.shape[-1] for x in given if x.reach is not None)
    flat = [
        np.zeros((prod(a.shape), size), bool) if x.reach is None else x.reach.reshape(-1, size)
        for x, a in zip(given, avals, strict=True)
    ]
    found = indexmap.sources(equation, known)
    if found is not None:
        rows = np.concatenate([*flat, np.zeros((1, size), bool)])
        return [_Variable(rows[places]) for places in found]
    if not indexmap.adds(equation.primitive.name):
        return None
    added = indexmap.targets(equation, known)
    if added is None:
        return None
    there, taken = flat[0].copy(), added.reshape(-1)
    np.logical_or.at(there, taken[taken >= 0], flat[2][taken >= 0])
    return [_Variable(there.reshape(*avals[0].shape, size))]


def _through(s: Structure, reach: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """What the results of a partial of a structure depend on."""
    size = reach.shape[-1]
    reach = reach.reshape(*s.in_shape, size)
    paired = [j for j in s.pairs if j != FREE]
    lost = tuple(j for j in range(len(s.in_shape)) if j not in paired)
    kept = reach.any(axis=lost)
    order = sorted(paired)
    kept = np.transpose(kept, [*(order.index(j) for j in paired), len(paired)])
    outer = [n if j != FREE else 1 for n, j in zip(s.out_shape, s.pairs, strict=True)]
    whole = np.broadcast_to(kept.reshape(*outer, size), (*s.out_shape, size))
    return whole.reshape(*shape, size)


def _met(equation: Equation, operand: int, given: _Several, reach: np.ndarray) -> np.ndarray | None:
    """As `_through`, of what a known select lets through, or known factors do not make zero."""
    known, shape = facts(equation.primitive.name), equation.out_avals[0].shape
    there = None
    if known.selects and given[0].value is not None:
        there = given[0].value == operand - 1
    elif known.multiplies or known.form == "dot":
        factor = given[1 - operand].value
        there = None if factor is None else factor != 0
    if there is None:
        return None
    if known.form == "dot":
        return _dotted(equation, operand, there, reach)
    if reach.shape[:-1] != shape:
        return None
    return reach & np.broadcast_to(there, shape)[..., None]


def _dotted(equation: Equation, operand: int, factor: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """What a product with a factor that is not zero at some places depends on."""
    ties = Product.of(equation).ties()
    labels: Any = [{t.ins[k]: n for n, t in enumerate(ties)} for k in (0, 1)]
    mine, others = (
        [of[j] for j in sorted({*of} - {None})] for of in (labels[operand], labels[1 - operand])
    )
    out = [n for n, t in enumerate(ties) if t.out is not None]
    own: Any = reach.astype(np.float32)
    counts = np.einsum(own, [*mine, len(ties)], factor * 1.0, others, [*out, len(ties)])
    return counts > 0


def _at_places(
    at: tuple[np.ndarray, np.ndarray], reach: np.ndarray, shape: Sequence[int]
) -> np.ndarray:
    """As `_through`, of a partial with entries at some places."""
    found = np.zeros((prod(shape), reach.shape[-1]), bool)
    np.logical_or.at(found, at[0], reach.reshape(-1, reach.shape[-1])[at[1]])
    return found.reshape(*shape, -1)


def _either(several: Sequence[np.ndarray | None]) -> _Variable:
    found = [x for x in several if x is not None]
    return _Variable(np.logical_or.reduce(found) if found else None)
