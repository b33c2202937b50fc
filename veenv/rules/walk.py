"""Walks over the equations of jaxprs and programs, in any kind of values; control flow is here.

`run` goes through equations.  A `Domain` says what constants and primitives are in a kind of
values, such as "linear in the inputs"; loops, branches and calls follow from that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

from veenv import _compat

V = TypeVar("V")


def is_literal(atom: Any) -> bool:
    """Whether an operand is a constant that stands instead of a variable."""
    return hasattr(atom, "val")


def operands(equation: Any) -> list[Any]:
    """The operands of an equation that are no literals."""
    return [a for a in equation.invars if not is_literal(a)]


def in_avals(equation: Any) -> Sequence[Any]:
    """Shape and dtype of each operand of an equation of a jaxpr or a program."""
    avals = getattr(equation, "in_avals", None)
    return [a.aval for a in equation.invars] if avals is None else avals


def out_avals(equation: Any) -> Sequence[Any]:
    """Shape and dtype of each result."""
    avals = getattr(equation, "out_avals", None)
    return [v.aval for v in equation.outvars] if avals is None else avals


def equations(of: Any) -> Sequence[Any]:
    """The equations of a jaxpr, open or closed, or those that are given."""
    return getattr(_compat.open_jaxpr(of), "eqns", of)


def run(
    of: Any,
    known: dict[Any, Any],
    step: Callable[[Any, list[Any]], Sequence[Any]],
    literal: Callable[[Any], Any] = lambda atom: atom.val,
) -> Callable[[Any], Any]:
    """Goes through equations of a jaxpr or a program in their order.

    `known` are the values of variables; those of results are added. Returns what reads a variable.
    """

    def read(atom: Any) -> Any:
        return literal(atom) if hasattr(atom, "val") else known[atom]

    for equation in equations(of):
        results = step(equation, [read(a) for a in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))  # one that is dropped is None
    return read


def results(
    jaxpr: Any, values: Iterable[Any], step: Callable[[Any, list[Any]], Sequence[Any]]
) -> list[Any]:
    """The results of a jaxpr by `run`, from the values of its constants, then of its operands."""
    opened = _compat.open_jaxpr(jaxpr)
    known = dict(zip((*opened.constvars, *opened.invars), values, strict=True))
    return list(map(run(opened, known, step), opened.outvars))


def apply(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """The step of `run` that computes: the results of an equation, of arrays."""
    return _compat.bind(equation.primitive, equation.params, operands)


def every(jaxpr: Any, enters: Callable[[Any], bool] = lambda equation: True) -> Iterator[Any]:
    """Iterates over the equations of a jaxpr, with those in bodies of equations."""
    for equation in equations(jaxpr):
        yield equation
        if enters(equation):
            yield from inside(equation.params, enters)


def inside(
    params: Mapping[str, Any], enters: Callable[[Any], bool] = lambda equation: True
) -> Iterator[Any]:
    """Iterates as `every` over the bodies among the parameters of an equation."""
    for body in _compat.bodies(params):
        yield from every(body, enters)


def with_bodies(value: Any, changed: Callable[[Any], Any]) -> Any:
    """Returns parameters of an equation, or one, with each jaxpr among them changed."""
    if isinstance(value, dict):
        return {name: with_bodies(x, changed) for name, x in value.items()}
    if isinstance(value, (tuple, list)):
        parts = (with_bodies(x, changed) for x in value)
        return getattr(value, "_make", type(value))(parts)
    return changed(value) if hasattr(_compat.open_jaxpr(value), "eqns") else value


def holds(jaxpr: Any, names: Container[str]) -> bool:
    """Returns whether a jaxpr has equations of primitives of these names, in any depth."""
    return any(equation.primitive.name in names for equation in every(jaxpr))


def needed(of: Any, outputs: Iterable[Any]) -> list[Any]:
    """Returns the equations of a jaxpr that these outputs need, and those with effects."""
    wanted = {v for v in outputs if not is_literal(v)}
    backward = []
    for equation in reversed(equations(of)):
        if equation.effects or any(v in wanted for v in equation.outvars):
            backward.append(equation)
            wanted.update(operands(equation))
    return backward[::-1]


def read_in(jaxpr: Any, results: Sequence[Any]) -> set[Any]:
    """The variables that some results of a jaxpr need, in the bodies of its equations, too."""
    variables = {v for v in results if not is_literal(v)}
    equations_needed = needed(jaxpr, results)
    variables.update(v for equation in equations_needed for v in operands(equation))
    for equation in equations_needed:
        name, params = equation.primitive.name, equation.params
        inner = None if loop_of(equation) else _compat.inlinable_body(name, params)
        for body in _compat.bodies(params):
            outs = body.outvars
            if inner is not None:  # of a call, what is read outside
                outs = [o for o, v in zip(outs, equation.outvars, strict=False) if v in variables]
            variables |= read_in(body, outs)
    return variables


def part_of(
    closed: Any, results: Sequence[int] | None = None, arguments: Sequence[Any] = ()
) -> Any:
    """A closed jaxpr of some results of another, by number, without what they do not need.

    `arguments` are variables of constants that become arguments, after the others.
    """
    jaxpr = _compat.open_jaxpr(closed)
    outvars = jaxpr.outvars if results is None else [jaxpr.outvars[k] for k in results]
    pairs = zip(jaxpr.constvars, closed.consts, strict=True)
    consts = {v: c for v, c in pairs if v not in arguments}
    opened = jaxpr.replace(
        constvars=[*consts],
        invars=[*jaxpr.invars, *arguments],
        outvars=outvars,
        eqns=needed(jaxpr, outvars),
    )
    return _compat.closed_jaxpr(opened, [*consts.values()])


def dependent(of: Any, variables: Iterable[Any]) -> set[Any]:
    """Returns the variables of a jaxpr that depend on the given ones, these included."""
    depending = {*variables}
    for equation in equations(of):
        if not depending.isdisjoint(operands(equation)):
            depending.update(equation.outvars)
    return depending


class LoopParts(NamedTuple):
    """A `scan` or a `while`, taken apart."""

    body: Any  # a closed jaxpr: constants, what is carried and rows of stacks to the latter two
    test: Any  # a closed jaxpr that says whether to go on; None of a loop of known length
    ends: tuple[int, int, int]  # operands of the test, of the body, and what is carried end there
    length: int | None = None
    reverse: bool = False

    def split(self, ins: Sequence[V]) -> tuple[list[V], list[V], list[V], list[V]]:
        """Operands: of the test, constants of the body, what is carried, stacks."""
        places = itertools.pairwise((0, *self.ends, len(ins)))
        tested, consts, carry, stacks = (list(ins[i:j]) for i, j in places)
        return tested, consts, carry, stacks

    def dependent(self, flags: Sequence[bool]) -> tuple[list[bool], list[bool]]:
        """Flags the operands and results of a step that depend on flagged operands of the loop."""
        opened, (_, start, end) = _compat.open_jaxpr(self.body), self.ends
        depends = dependent(opened, itertools.compress(opened.invars, flags))
        results = [not is_literal(v) and v in depends for v in opened.outvars]
        after = [flag or later for flag, later in zip(flags[start:end], results, strict=False)]
        wider = [*flags[:start], *after, *flags[end:]]
        if wider != flags:
            return self.dependent(wider)
        return wider, [*after, *results[end - start :]]

    @property
    def turns(self) -> range:
        """The numbers of the turns, in their order."""
        return range(self.length or 0)[:: -1 if self.reverse else 1]


def loop_of(equation: Any) -> LoopParts | None:
    """A loop, taken apart; None of other equations."""
    name, params = equation.primitive.name, equation.params
    if name == "while":
        first = params["cond_nconsts"]
        ends = first, first + params["body_nconsts"], len(in_avals(equation))
        return LoopParts(params["body_jaxpr"], params["cond_jaxpr"], ends)
    if name != "scan":
        return None
    body = params["jaxpr"]
    count = _compat.num_alike(body.out_avals, out_avals(equation))
    end = _compat.num_alike(body.in_avals, in_avals(equation))
    return LoopParts(body, None, (0, end - count, end), params["length"], params["reverse"])


def branches_of(equation: Any) -> Sequence[Any]:
    """The branches of a `cond`, closed jaxprs; none of other equations."""
    return equation.params["branches"] if equation.primitive.name == "cond" else ()


class Domain(Generic[V]):
    """A kind of values, and what equations do to them.

    A loop is gone through until what it carries has settled; with `turns`, turn by turn.
    """

    turns = False

    def constant(self, value: Any) -> V:
        """The value of a constant."""
        raise NotImplementedError

    def primitive(self, equation: Any, ins: list[V]) -> list[V]:
        """The results of an equation without a body that is entered."""
        raise NotImplementedError

    def join(self, a: V, b: V) -> V:
        """The value that holds for either of two (the join of a lattice)."""
        raise NotImplementedError

    def same(self, a: V, b: V) -> bool:
        """Returns whether two values say the same."""
        return a == b

    def chosen(self, test: Callable[[], V], results: list[V]) -> list[V]:
        """The results of branches, or of a loop, that depend on a test."""
        return results

    def index(self, value: V) -> int | None:
        """The number of the branch that is taken, if it is known."""
        return None

    def body(self, equation: Any) -> Any | None:
        """The body of an equation that is a call, to be entered."""
        return _compat.inlinable_body(equation.primitive.name, equation.params)

    def row(self, value: V, turn: int) -> V:
        """The row of a stacked value that a turn of a loop reads."""
        return value

    def stacked(self, rows: Sequence[V], aval: Any) -> V:
        """The values of all turns of a loop as one."""
        raise NotImplementedError

    def turned(self, equation: Any, turn: int) -> None:
        """Called after each turn of a loop."""

    def jaxpr(self, closed: Any, ins: Sequence[V]) -> list[V]:
        """The results of a jaxpr, closed or without constants."""
        opened, consts = _compat.open_jaxpr(closed), getattr(closed, "consts", ())
        known = dict(zip(opened.constvars, map(self.constant, consts), strict=True))
        known.update(zip(opened.invars, ins, strict=True))
        return self.results(opened, known, opened.outvars)

    def results(self, of: Any, known: dict[Any, V], outputs: Iterable[Any]) -> list[V]:
        """The values of some variables or literals, by those that are known before."""
        read = run(of, known, self.equation, self.literal)
        return [read(v) for v in outputs]

    def literal(self, atom: Any) -> V:
        """The value of a literal."""
        return self.constant(atom.val)

    def equation(self, equation: Any, ins: list[V]) -> list[V]:
        """The results of an equation."""
        loop = loop_of(equation)
        if loop is not None:
            return self.loop(equation, loop, ins)
        if branches_of(equation):
            return self.cond(equation, ins)
        body = self.body(equation)
        return self.primitive(equation, ins) if body is None else self.jaxpr(body, ins)

    def cond(self, equation: Any, ins: list[V]) -> list[V]:
        """The results of branches."""
        branches, at = branches_of(equation), self.index(ins[0])
        if at is not None:
            return self.jaxpr(branches[min(max(at, 0), len(branches) - 1)], ins[1:])
        several = [self.jaxpr(branch, ins[1:]) for branch in branches]
        joined = [reduce(self.join, each) for each in zip(*several, strict=True)]
        return self.chosen(lambda: ins[0], joined)

    def loop(self, equation: Any, loop: LoopParts, ins: list[V]) -> list[V]:
        """The results of a loop."""
        tested, consts, carry, stacks = loop.split(ins)
        around = lambda carry, turn: self.jaxpr(  # noqa: E731
            loop.body, [*consts, *carry, *(self.row(x, turn) for x in stacks)]
        )
        if loop.length is None or not self.turns:
            carry, outs = self._settled(equation, lambda carry: around(carry, 0), carry)
            every = [*carry, *outs[len(carry) :]]
            if loop.length is not None:
                return every
            return self.chosen(lambda: self.jaxpr(loop.test, [*tested, *carry])[0], every)
        rows: list[list[V]] = [[] for _ in range(loop.length)]
        for turn in loop.turns:
            outs = around(carry, turn)
            carry, rows[turn] = outs[: len(carry)], outs[len(carry) :]
            self.turned(equation, turn)
        avals = out_avals(equation)[len(carry) :]
        return [*carry, *(self.stacked([r[k] for r in rows], a) for k, a in enumerate(avals))]

    def _settled(
        self, loop: Any, around: Callable[[list[V]], list[V]], carry: list[V]
    ) -> tuple[list[V], list[V]]:
        """Repeats a loop's body until the carry is a fixed point; returns it and the results."""
        for turn in itertools.count():
            outs = around(carry)
            after = list(map(self.join, carry, outs))
            if all(map(self.same, carry, after)):
                return after, outs
            self.turned(loop, turn)
            carry = after
        raise AssertionError("unreachable")


class Flags(Domain[bool]):
    """Which values have a property that constants lack, and what comes of either of two has."""

    def constant(self, value: Any) -> bool:
        """Returns False."""
        return False

    def join(self, a: bool, b: bool) -> bool:
        """Returns whether either value has the property."""
        return a or b
