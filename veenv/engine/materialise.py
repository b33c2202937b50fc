"""Chooses which values of a traced Jacobian XLA must materialise instead of recomputing.

In: a closed jaxpr with a barrier at each value that might be expensive (`veenv.linear.barrier`).
Out: for each barrier, the number of points from which on its value is stored.

The whole program shows which values would be recomputed, and at what cost. Other barriers are
removed, as each one ends a loop of the compiler. Storing a value takes a loop of its own, whose
start takes equally long at every batch, so it must save more where points are few.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, prod
from typing import Any

import jax
import jax.numpy as jnp

from veenv import _compat, limits
from veenv.linear.barrier import BARRIERS, barrier_from
from veenv.rules import walk
from veenv.rules.table import facts


def run(closed: Any, points: Mapping[Any, float], operands: Sequence[Any]) -> list[Any]:
    """Runs a closed jaxpr with the barriers that `stored_from` finds worth it."""
    jaxpr = _compat.open_jaxpr(closed)
    once = shared(jaxpr)

    def step(equation: Any, operands: Sequence[Any]) -> list[Any]:
        if equation.primitive.name not in BARRIERS:
            outs = walk.apply(equation, operands)
        elif points[equation.outvars[0]] < inf:
            outs = [barrier_from(int(points[equation.outvars[0]]), x) for x in operands]
        else:
            outs = list(operands)
        pairs = zip(equation.outvars, outs, strict=True)
        return [jax.lax.optimization_barrier(x) if v in once else x for v, x in pairs]

    return walk.results(jaxpr, (*closed.consts, *operands), step)


_COSTLY = 40
"""Operations that a function of libm counts as."""
_CHEAP = 8
"""Operations for which a value is not stored: about what loading it costs."""
_WORTH = 40
"""Repeated operations that storing a value must save for each of its entries in a large batch."""
_LOOP = 4000
"""Operations that storing a value must save over all its entries: they take about as long as a loop
takes to start."""
_BATCHES = 64, 8, 1
"""Numbers of points, from more to fewer, for which what is worth it is looked at again."""
_LARGE = _LOOP // _WORTH
"""The number of points from which on what is worth it for each entry is worth a loop."""
_SHARED = 4
"""Operations for which what a batch shares is stored."""
_FAR = 200
"""Variables through which the uses of one value are followed at least."""


def stored_from(closed: Any) -> dict[Any, float]:
    """Returns the number of points from which on each barrier's result is stored, if ever.

    A value is stored if it costs more than a load and would be recomputed. A concatenation of parts
    that cost more than that would be a branch at each index, so it is stored, too.
    """
    jaxpr = _compat.open_jaxpr(closed)
    users: dict[Any, list[Any]] = {}
    for equation in jaxpr.eqns:
        for atom in walk.operands(equation):
            users.setdefault(atom, []).append(equation)
    makers = {v: equation for equation in jaxpr.eqns for v in equation.outvars}
    outputs = {v for v in jaxpr.outvars if not walk.is_literal(v)}
    varying = walk.dependent(jaxpr, jaxpr.invars)
    barriers = [e for e in jaxpr.eqns if e.primitive.name in BARRIERS]
    points: dict[Any, float] = {e.outvars[0]: inf for e in barriers}
    for batch in (_LARGE, *_BATCHES):  # values stored at few points are stored at more, too
        far = max(_FAR, limits.LOOKED_AT // max(1, len(barriers)))
        flow = _Flow(makers, users, outputs, varying, batch, far)
        barriers = flow.stored(barriers)
        points.update((e.outvars[0], batch) for e in barriers)
    return points


def shared(jaxpr: Any) -> frozenset[Any]:
    """Returns computed variables that depend on no argument and meet ones that do.

    All points of a batch share them, so they are computed once and stored, outside of the loop over
    points, where the pads of a stencil, for example, would be a branch for every entry.
    """
    varying = walk.dependent(jaxpr, jaxpr.invars)
    computed: dict[Any, int] = {}
    constants = set()
    for equation in jaxpr.eqns:
        atoms = walk.operands(equation)
        name = equation.primitive.name
        if any(a in varying for a in atoms):
            constants.update(a for a in atoms if a not in varying and computed.get(a, 0) >= _SHARED)
        elif _is_inlined(name) or name in BARRIERS:
            cost = {"free": 0, "branch": _SHARED}.get(facts(name).cost or "", 1)
            total = min(_WORTH, cost + sum(computed.get(a, 0) for a in atoms))
            computed.update(dict.fromkeys(equation.outvars, total))
    return frozenset(v for v in constants if jnp.issubdtype(v.aval.dtype, jnp.inexact))


def _is_inlined(name: str) -> bool:
    """Returns whether the compiler computes a primitive's results where they are used."""
    return facts(name).fused and facts(name).cost != "join"


@dataclass
class _Flow:
    """The data flow of a jaxpr: makers and users of its variables."""

    makers: Mapping[Any, Any]  # the equation that computes a variable
    users: Mapping[Any, Sequence[Any]]  # the equations that use it
    outputs: Collection[Any]  # the results of all
    varying: Collection[Any]  # the variables that depend on the arguments
    batch: int  # the number of points
    # most variables through which a value is followed: beyond, storing is the smaller loss
    far: int

    def stored(self, barriers: Sequence[Any]) -> list[Any]:
        """Selects the barriers that are worth it, in the order of the program."""
        self._stored: set[Any] = set()
        selected = []
        for barrier in barriers:
            if self._is_worth(barrier):
                self._stored.update(barrier.outvars)
                selected.append(barrier)
        return selected

    def _is_worth(self, barrier: Any) -> bool:
        """Returns whether storing saves more than it costs, given what is stored before it."""
        value, source = barrier.outvars[0], barrier.invars[0]
        maker = None if walk.is_literal(source) else self.makers.get(source)
        joined = maker is not None and facts(maker.primitive.name).cost == "join"
        parts: Sequence[Any] = maker.invars if maker is not None and joined else [source]
        if self.batch >= _LARGE:
            cost = sum(self._cost(p, _WORTH) for p in parts)
            return cost >= _CHEAP and (joined or self._repeats(value, 1 + ceil(_WORTH / cost)))
        entries = [self.batch * prod(p.aval.shape) for p in parts]
        pairs = zip(parts, entries, strict=True)
        cost = sum(n * self._cost(p, ceil(_LOOP / n)) for p, n in pairs if n)
        return cost > 0 and self._repeats(value, ceil(_LOOP / cost) + (not joined))

    def _cost(self, atom: Any, most: int) -> int:
        """Counts operations for an entry of a value out of what is stored, up to `most`."""
        total, seen, waiting = 0, set(), [atom]
        while waiting and total < most:
            v = waiting.pop()
            if walk.is_literal(v) or v in seen or v in self._stored or v not in self.varying:
                continue
            seen.add(v)
            equation = self.makers.get(v)
            if equation is None:
                continue  # an argument
            name = equation.primitive.name
            if name in BARRIERS:
                waiting += equation.invars
            elif _is_inlined(name):
                total += _COSTLY if facts(name).expensive else facts(name).cost != "free"
                waiting += equation.invars
        return total

    def _repeats(self, value: Any, times: int) -> bool:
        """Returns whether at least `times` uses of an entry are in loops that each compute it."""
        total, waiting, seen = 0, [(value, 1)], set()
        while waiting and total < times:
            v, spread = waiting.pop()
            if v in seen:
                continue
            seen.add(v)
            total += spread if v in self.outputs else 0
            for equation in self.users.get(v, ()):
                name = equation.primitive.name
                if not _is_inlined(name) and name not in BARRIERS:
                    total += spread
                    continue
                out = equation.outvars[0]
                more = spread * self._grown(v, out) if facts(name).repeats else spread
                waiting.append((out, max(1, more)))
            if len(seen) > self.far:
                return True
        return total >= times

    def _grown(self, value: Any, spread: Any) -> int:
        """Returns how often an entry is computed where it is broadcast; a single one once."""
        size = prod(value.aval.shape)
        if size <= 1 and self.batch < _LARGE:
            return 1
        return prod(spread.aval.shape) // max(1, size)
