"""Branches that call back into Python, as libraries raise errors: carried out of a kernel.

A kernel computes whether a point would take such a branch, and with what operands; after it, if
one would, the function is called as JAX would have called it.  What a branch computes once it has
called back is not known, so that a function that returns instead of raising is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend import core

from veenv import _compat
from veenv.kernel.scalar_program import CannotFuseError
from veenv.rules import walk

CALLBACK = "pure_callback"
Called = Callable[[Any], "tuple[Any, Sequence[int]] | None"]
"""What a call runs, and on which of its operands; None of other equations."""


@dataclass(frozen=True)
class Carried:
    """A closed jaxpr without callbacks, whose last results say which would have been made.

    These are, for each of the `calls`, a bool and then the operands.
    """

    closed: Any
    calls: tuple[Any, ...] = ()  # equations

    def raised(self, calls: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        """The results `leaves` of a kernel, once no call has raised."""
        groups = [values for _, values in _split(calls, 0, self.calls)[1]]
        return list(_checked(self.calls, groups, list(leaves)))


def carried_out(closed: Any, called: Called) -> Carried:
    """A closed jaxpr with the callbacks of its branches carried out; itself where it has none."""
    jaxpr = _compat.open_jaxpr(closed)
    reader = _Reader(called)
    if not any(map(reader.calls_back, jaxpr.eqns)):
        return Carried(closed)
    count, sites = len(jaxpr.constvars), []

    def run(*operands: Any) -> list[Any]:
        return reader.flat(jaxpr, operands, None, sites)

    variables = [*jaxpr.constvars, *jaxpr.invars]
    traced = jax.make_jaxpr(run)(*(_compat.abstract(v.aval) for v in variables))
    inner = _compat.open_jaxpr(traced)
    constants = [*inner.invars[:count], *inner.constvars]
    whole = inner.replace(constvars=constants, invars=inner.invars[count:])
    consts = [*closed.consts, *traced.consts]
    return Carried(_compat.closed_jaxpr(whole, consts), tuple(sites))


_Values = list[Any]
_Found = list[tuple[Any, _Values]]
"""For each call its equation, and whether it is made and with what operands."""


def _is_callback(equation: Any) -> bool:
    return equation.primitive.name == CALLBACK


def _may_go_on(equation: Any) -> bool:
    """Tells whether an equation is a loop of unknown length."""
    loop = walk.loop_of(equation)
    return loop is not None and loop.length is None


class _Reader:
    """Interprets a jaxpr, and finds the calls that its branches would make.

    What comes after a call is not known: no loop goes on there, as it might not end. So there is a
    bool `over` with everything that tells whether a call was made before; None where none was.
    """

    def __init__(self, called: Called, known: dict[Any, Any] | None = None, within: bool = False):
        self._called, self._within = called, within
        self._known: dict[Any, Any] = {} if known is None else known

    def calls_back(self, equation: Any) -> bool:
        """Tells whether an equation calls back, at any depth."""
        return self._holds(equation, _is_callback)

    def _holds(self, equation: Any, is_one: Callable[[Any], bool]) -> bool:
        """Tells whether an equation is of a kind, or holds one at any depth."""
        if is_one(equation):
            return True
        key = id(equation), is_one
        if key not in self._known:
            call = self._called(equation)
            bodies = _compat.bodies(equation.params) if call is None else [call[0]]
            inside = (e for body in bodies for e in walk.equations(body))
            self._known[key] = equation, any(self._holds(e, is_one) for e in inside)
        return self._known[key][1]

    def run(self, jaxpr: Any, values: Sequence[Any], over: Any) -> tuple[_Values, _Found, bool]:
        """The results, the calls, and whether it ends in one: then results are zeros.

        `values` are those of the constants, then of the operands.
        """
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), values, strict=True))
        calls: _Found = []
        read = lambda atom: atom.val if walk.is_literal(atom) else env[atom]  # noqa: E731
        for equation in jaxpr.eqns:
            operands = list(map(read, equation.invars))
            outs, more, ends = self._equation(equation, operands, over)
            calls += more
            over = _any(more, over)
            if ends:
                return _zeros(v.aval for v in jaxpr.outvars), calls, True
            env.update(zip(equation.outvars, outs, strict=True))
        return list(map(read, jaxpr.outvars)), calls, False

    def flat(self, jaxpr: Any, values: Any, over: Any, sites: list[Any]) -> _Values:
        """The results and behind them the calls, whose equations become `sites`."""
        outs, calls, _ = self.run(jaxpr, values, over)
        sites[:] = [site for site, _ in calls]
        return [*outs, *(x for _, values in calls for x in values)]

    def _equation(self, equation: Any, ins: _Values, over: Any) -> tuple[_Values, _Found, bool]:
        name = equation.primitive.name
        ends = over is not None and self._holds(equation, _may_go_on)
        if not (ends or self.calls_back(equation)):
            return walk.apply(equation, ins), [], False
        if name == CALLBACK:
            if not self._within:
                raise CannotFuseError(
                    f"primitive {name!r} cannot be fused: a kernel calls Python only where a "
                    "branch raises an error; call a solver with throw=False",
                    name,
                    _compat.source_line(equation),
                )
            return [], [(equation, [jnp.bool_(True), *ins])], True
        if walk.branches_of(equation):
            return *self._cond(equation, ins, over), False
        loop = walk.loop_of(equation)
        if loop is not None:
            read = self._while if loop.length is None else self._scan
            return *read(loop, ins, over), False
        call = self._called(equation)
        if call is None:  # as it is: refused for what is in it
            return walk.apply(equation, ins), [], False
        inner, places = call
        values = [*getattr(inner, "consts", ()), *(ins[k] for k in places)]
        return self.run(_compat.open_jaxpr(inner), values, over)

    def _traced(self, closed: Any, ins: _Values, over: Any, within: bool) -> tuple[Any, list[Any]]:
        """A body as a function of operands and `over`, with the calls behind its results.

        Also the equations of these calls.
        """
        reader, sites = _Reader(self._called, self._known, within), []

        def run(ins: _Values, over: Any) -> _Values:
            values = [*getattr(closed, "consts", ()), *ins]
            return reader.flat(_compat.open_jaxpr(closed), values, over, sites)

        traced = core.jaxpr_as_fun(jax.make_jaxpr(run)(ins, over))
        return lambda ins, over: traced(*ins, *([] if over is None else [over])), sites

    def _cond(self, equation: Any, ins: _Values, over: Any) -> tuple[_Values, _Found]:
        index, *ins = ins
        branches = [self._traced(b, ins, over, True) for b in walk.branches_of(equation)]
        count = len(equation.outvars)
        none = [_none(sites) for _, sites in branches]

        def branch(k: int, ins: _Values, over: Any) -> _Values:
            outs = branches[k][0](ins, over)
            further = [outs[count:] if j == k else zeros for j, zeros in enumerate(none)]
            return [*outs[:count], *(x for values in further for x in values)]

        runs = [functools.partial(branch, k) for k in range(len(branches))]
        outs = lax.switch(index, runs, ins, over)
        return _split(outs, count, [site for _, sites in branches for site in sites])

    def _while(self, loop: walk.LoopParts, ins: _Values, over: Any) -> tuple[_Values, _Found]:
        tested, consts, carry, _ = loop.split(ins)
        count = len(carry)
        body, sites = self._traced(loop.body, [*consts, *carry], None, self._within)
        test = core.jaxpr_as_fun(loop.test)
        several = loop.test.out_avals[0].shape  # of a `vmap` inside

        def goes_on(state: _Values) -> Any:
            [on] = test(*tested, *state[:count])
            on = on.any() if several else on
            ends = _any(_split(state, count, sites)[1], over)
            return on if ends is None else on & ~ends

        def step(state: _Values) -> _Values:
            outs = body([*consts, *state[:count]], None)
            new = outs[:count]
            if several:  # each goes on as long as it wants
                [on] = test(*tested, *state[:count])
                new = [_where(on, x, y) for x, y in zip(new, state, strict=False)]
            return [*new, *_either(sites, state[count:], outs[count:])]

        state = [*map(jnp.asarray, carry), *_none(sites)]
        return _split(lax.while_loop(goes_on, step, state), count, sites)

    def _scan(self, loop: walk.LoopParts, ins: _Values, over: Any) -> tuple[_Values, _Found]:
        _, consts, carry, stacks = loop.split(ins)
        turn = [*consts, *carry, *(jnp.zeros(x.shape[1:], x.dtype) for x in stacks)]
        none, count, every = jnp.bool_(False), len(carry), len(loop.body.out_avals)
        body, sites = self._traced(loop.body, turn, none, self._within)

        def step(state: _Values, rows: _Values) -> tuple[_Values, _Values]:
            ended = _any(_split(state, count, sites)[1], over)
            outs = body([*consts, *state[:count], *rows], none if ended is None else ended)
            calls = _either(sites, state[count:], outs[every:])
            return [*outs[:count], *calls], outs[count:every]

        state = [*map(jnp.asarray, carry), *_none(sites)]
        state, rows = lax.scan(step, state, stacks, length=loop.length, reverse=loop.reverse)
        outs, calls = _split(state, count, sites)
        return [*outs, *rows], calls


def _any(calls: _Found, over: Any) -> Any:
    """Computes whether a call is made, or was made before; None without calls."""
    for _, [happens, *_] in calls:
        over = happens if over is None else over | happens
    return over


def _zeros(avals: Any) -> _Values:
    return [jnp.zeros(aval.shape, aval.dtype) for aval in avals]


def _none(sites: Sequence[Any]) -> _Values:
    """Returns the record of no call."""
    return [x for s in sites for x in (jnp.bool_(False), *_zeros(v.aval for v in s.invars))]


def _split(outs: Sequence[Any], count: int, sites: Sequence[Any]) -> tuple[_Values, _Found]:
    """Results, and the calls behind them."""
    rest = iter(outs[count:])
    calls = [(site, [next(rest) for _ in range(1 + len(site.invars))]) for site in sites]
    return list(outs[:count]), calls


def _either(sites: Sequence[Any], old: Sequence[Any], new: Sequence[Any]) -> _Values:
    """Keeps the calls of the first iteration that makes them."""
    merged = []
    pairs = _split(old, 0, sites)[1], _split(new, 0, sites)[1]
    for (_, [before, *kept]), (_, [now, *others]) in zip(*pairs, strict=True):
        rest = zip(kept, others, strict=True)
        merged += [before | now, *(jnp.where(before, x, y) for x, y in rest)]
    return merged


def _where(on: Any, new: Any, old: Any) -> Any:
    """Selects between carries by conditions on their leading axes."""
    return jnp.where(jnp.expand_dims(on, range(on.ndim, new.ndim)), new, old)


def _checked(calls: Sequence[Any], calls_of: list[_Values], leaves: _Values) -> _Values:
    """The leaves, after the calls that some point makes have been made."""

    @custom_vmap
    def one(values_of: list[_Values], leaves: _Values) -> _Values:
        for call, (happens, *operands) in zip(calls, values_of, strict=True):
            made = functools.partial(_call, call)
            leaves = lax.cond(happens, made, lambda _, x: x, operands, leaves)
        return leaves

    @one.def_vmap
    def several(
        size: int, batched: Any, values_of: list[_Values], leaves: _Values
    ) -> tuple[_Values, list[bool]]:
        del size
        first = []
        for (happens, *operands), (has, *have) in zip(values_of, batched[0], strict=True):
            place = jnp.argmax(happens) if has else 0
            pairs = zip(operands, have, strict=True)
            first.append(
                [happens.any() if has else happens, *(x[place] if h else x for x, h in pairs)]
            )
        return one(first, leaves), batched[1]

    @jax.custom_jvp
    def checked(values_of: list[_Values], leaves: _Values) -> _Values:
        return one(values_of, leaves)

    @checked.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return checked(*primals), tangents[1]

    return checked(calls_of, leaves)


def _call(call: Any, operands: _Values, leaves: _Values) -> _Values:
    """Makes a call, which is to raise."""

    def made(*operands: Any) -> Any:
        call.params["callback"](*operands)
        raise RuntimeError(
            f"a callback in a branch of a fused function ({_compat.source_line(call)}) returned: a "
            "kernel knows nothing of what follows; call it outside of veenv.fuse"
        )

    return jax.pure_callback(made, jax.tree.map(_compat.shape_of, leaves), *operands)
