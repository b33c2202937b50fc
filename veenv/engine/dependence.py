"""Which elements of the results of loops and branches depend on which of an operand.

Their bodies are followed equation by equation, and loops turn by turn: row t of what a recurrence
gives depends on nothing that comes after t.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from veenv import _compat
from veenv.engine import places
from veenv.engine.known import held, is_exact, results
from veenv.graph.equations import Equation
from veenv.rules import Site, partials
from veenv.rules.table import facts
from veenv.structure.structure import FREE, Structure

_MOST_STEPS = 1 << 12
"""Most equations that are looked at, each turn of a loop counted."""

_MOST_FLAGS = 1 << 22
"""Most elements of a variable times elements of the operand."""

_MOST_TURNS = 64
"""Most turns after which a loop of unknown length is given up."""

_MOST_KNOWN = 1 << 10
"""Most elements of a counter or index that is worked out."""


class _TooManyError(Exception):
    """There is too much to look at."""


@dataclass(frozen=True)
class _Variable:
    """A variable in a body.

    Attributes:
      reach: bool [*shape, n], which elements of the operand each element depends on; None: none.
      value: its value, if it is known.
    """

    reach: np.ndarray | None = None
    value: np.ndarray | None = None


_Several = list[_Variable]


def dependent_places(
    equation: Equation, result: int, operand: int, known: Callable[[Any], np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and columns of the partial of a loop or branch that may have entries.

    Args:
      equation: what it is of.
      result: of which result.
      operand: by which operand; those that are the same variable change with it.
      known: gives the value of a variable of the program, None if it is not known.

    Returns:
      Flat indices of the result's elements and of the operand's; None where that takes too long
      or says nothing.
    """
    shape = equation.in_avals[operand].shape
    size = prod(shape)
    if size**2 > _MOST_FLAGS or equation.primitive.name not in LOOPS:
        return None
    own = np.eye(size, dtype=bool).reshape(*shape, size)
    by = equation.inputs[operand]
    given = [_Variable(own) if a == by else _Variable(value=known(a)) for a in equation.inputs]
    try:
        reach = _Follower(size).step(equation, given)[result].reach
    except _TooManyError:
        return None
    if reach is None:
        return None
    rows, cols = np.nonzero(reach.reshape(-1, size))
    return rows, cols


class _Follower:
    """Follows what depends on an operand of so many elements."""

    def __init__(self, size: int):
        self._size, self._steps = size, 0

    def run(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[_Variable]) -> _Several:
        """The results of a body."""
        there = dict(zip(jaxpr.invars, given, strict=True))
        there |= zip(jaxpr.constvars, (_constant(c) for c in consts), strict=True)

        def read(atom: Any) -> _Variable:
            return _constant(atom.val) if hasattr(atom, "val") else there[atom]

        for eqn in jaxpr.eqns:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise _TooManyError
            numbers = tuple(range(len(eqn.invars)))
            ins, outs = ([v.aval for v in several] for several in (eqn.invars, eqn.outvars))
            equation = Equation(eqn.primitive, eqn.params, numbers, (), tuple(ins), tuple(outs), "")
            given = self.step(equation, [read(a) for a in eqn.invars])
            there |= zip(eqn.outvars, given, strict=True)
        return [read(a) for a in jaxpr.outvars]

    def closed(self, body: Any, given: Sequence[_Variable]) -> _Several:
        """The results of a body with its constants, or of one that has none."""
        return self.run(_compat.open_jaxpr(body), getattr(body, "consts", ()), given)

    def step(self, equation: Equation, given: _Several) -> _Several:
        """The results of an equation."""
        for aval in equation.out_avals:
            if prod(getattr(aval, "shape", ())) * self._size > _MOST_FLAGS:
                raise _TooManyError
        if all(x.reach is None for x in given):
            return _worked_out(equation, given)
        loop = LOOPS.get(equation.primitive.name)
        if loop is not None:
            return loop(self, equation, given)
        if _compat.own_rule(equation.primitive, equation.params):
            return self._whole(equation, given)  # its derivative need not be that of its body
        body = _compat.call_body(equation.primitive.name, equation.params)
        if body is not None and len(_compat.open_jaxpr(body).invars) == len(given):
            return self.closed(body, given)
        return _moved(equation, given) or self._mixed(equation, given)

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
        active = tuple(x.reach is not None for x in given)
        avals = equation.in_avals, equation.out_avals
        site = Site(equation.primitive, equation.params, *avals, active, "", realify=False)
        found: _Several = []
        for aval, row in zip(equation.out_avals, partials(site), strict=True):
            by = [
                _through(p.executed, x.reach, aval.shape)
                for p, x in zip(row, given, strict=True)
                if p is not None and x.reach is not None
            ]
            found.append(_either(by))
        return found

    def scan(self, equation: Equation, given: _Several) -> _Several:
        """A loop of known length."""
        body, length = equation.params["jaxpr"], equation.params["length"]
        num_carry = _compat.num_alike(body.out_avals, equation.out_avals)
        num_consts = _compat.num_alike(body.in_avals, equation.in_avals) - num_carry
        consts, carry = given[:num_consts], given[num_consts : num_consts + num_carry]
        stacked = given[num_consts + num_carry :]
        turns = range(length)[::-1] if equation.params["reverse"] else range(length)
        rows: list[_Several] = [[] for _ in turns]
        for t in turns:
            outs = self.closed(body, [*consts, *carry, *(_row(x, t) for x in stacked)])
            carry, rows[t] = outs[:num_carry], outs[num_carry:]
        shapes = [a.shape for a in equation.out_avals[num_carry:]]
        several = zip(*rows, strict=True) if length else [()] * len(shapes)
        stacks = [
            self._stacked([x.reach for x in r], s) for r, s in zip(several, shapes, strict=True)
        ]
        return [*carry, *stacks]

    def _stacked(self, rows: Sequence[np.ndarray | None], shape: Sequence[int]) -> _Variable:
        if all(row is None for row in rows):
            return _Variable()
        none = np.zeros((*shape[1:], self._size), bool)
        return _Variable(np.stack([none if row is None else row for row in rows]))

    def while_loop(self, equation: Equation, given: _Several) -> _Several:
        """A loop of any length: until no turn adds anything."""
        params = equation.params
        given = given[params["cond_nconsts"] :]
        consts, carry = given[: params["body_nconsts"]], given[params["body_nconsts"] :]
        carry = [_Variable(x.reach) for x in carry]
        for _ in range(_MOST_TURNS):
            outs = self.closed(params["body_jaxpr"], [*consts, *carry])
            after = [_either([x.reach, y.reach]) for x, y in zip(carry, outs, strict=True)]
            if all(_same(x.reach, y.reach) for x, y in zip(carry, after, strict=True)):
                return carry
            carry = after
        raise _TooManyError

    def branches(self, equation: Equation, given: _Several) -> _Several:
        """The branch that is taken, or what any of them gives."""
        index, *rest = given
        several = equation.params["branches"]
        if index.value is not None:
            several = [several[int(np.clip(index.value, 0, len(several) - 1))]]
        outs = [self.closed(branch, rest) for branch in several]
        if len(outs) == 1:
            return outs[0]
        return [_either([x.reach for x in each]) for each in zip(*outs, strict=True)]


LOOPS: dict[str, Callable[[_Follower, Equation, _Several], _Several]] = {
    "scan": _Follower.scan,
    "while": _Follower.while_loop,
    "cond": _Follower.branches,
}


def _constant(value: Any) -> _Variable:
    return _Variable(value=held(value, _MOST_KNOWN))


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


def _row(x: _Variable, t: int) -> _Variable:
    return _Variable(*(None if a is None else a[t] for a in (x.reach, x.value)))


def _moved(equation: Equation, given: _Several) -> _Several | None:
    """The result of an equation that moves elements; None if it does not, or to unknown places."""
    name, params = equation.primitive.name, equation.params
    size = next(x.reach.shape[-1] for x in given if x.reach is not None)
    if name in {"concatenate", "stack"}:
        parts = [
            np.zeros((*a.shape, size), bool) if x.reach is None else x.reach
            for x, a in zip(given, equation.in_avals, strict=True)
        ]
        if name == "stack":
            return [_Variable(np.stack(parts, params["axis"] % parts[0].ndim))]
        return [_Variable(np.concatenate(parts, params["dimension"]))]
    if name in {"split", "unstack"} and given[0].reach is not None:
        axis, whole = params["axis"] % len(equation.in_avals[0].shape), given[0].reach
        ends = np.cumsum(params["sizes"])[:-1] if name == "split" else range(1, whole.shape[axis])
        shapes = [(*a.shape, size) for a in equation.out_avals]
        pieces = zip(np.split(whole, ends, axis), shapes, strict=True)
        return [_Variable(piece.reshape(shape)) for piece, shape in pieces]
    found = []
    for operand, x in enumerate(given):
        if x.reach is None:
            continue
        taken = places.moved(equation) if operand == 0 else None
        if taken is None:
            taken = places.by_indices(equation, operand, lambda number: given[number].value)
        if taken is None:
            return None
        shape = (*equation.out_avals[0].shape, size)
        flat = x.reach.reshape(-1, size)
        if places.adds(name) and operand == 2:
            there, taken = np.zeros((prod(shape[:-1]), size), bool), taken.reshape(-1)
            np.logical_or.at(there, taken[taken >= 0], flat[taken >= 0])
        else:
            there = np.append(flat, np.zeros((1, size), bool), axis=0)[taken.reshape(-1)]
        found.append(there.reshape(shape))
    return [_either(found)]


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


def _either(several: Sequence[np.ndarray | None]) -> _Variable:
    found = [x for x in several if x is not None]
    return _Variable(np.logical_or.reduce(found) if found else None)


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return np.array_equal(a, b) if a is not None and b is not None else a is b
