"""Pins by need: which values of a traced Jacobian are kept from being computed again.

While a Jacobian is traced, every value that might be expensive is pinned (`veenv.linear.barrier`).
Seen as a whole, the program shows which of them would be repeated, and at what cost; the others are
left to the compiler, for whom each barrier is the end of a loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from veenv import _compat
from veenv.kernel.fusing import trace_leaves
from veenv.kernel.parts import Part, part_of
from veenv.linear.barrier import EXPENSIVE, PinMode, with_pins

_COSTLY = 40
"""Operations that a function of libm counts as."""
_CHEAP = 8
"""Operations for which a value is not stored: about what loading it costs."""
_WORTH = 40
"""Repeated operations that storing a value must save."""
_MOST = 64
"""Operations after which the cost of a value is not counted any further."""
_SHARED = 4
"""Operations for which what a batch shares is stored."""
_EMBEDDING = 4
"""Operations that a pad counts as where it is not stored: it is a branch."""
_BARRIER = "optimization_barrier"
_FREE = frozenset(
    "broadcast_in_dim reshape transpose squeeze slice rev copy convert_element_type iota "
    "expand_dims stop_gradient split unstack".split()
)
_FUSED = frozenset(
    [
        *EXPENSIVE,
        *_FREE,
        *"add add_any sub mul neg max min abs sign select_n eq ne lt le gt ge and or not xor floor "
        "ceil round clamp integer_pow square one_minus_square pad is_finite real imag".split(),
    ]
)
"""Primitives whose results the compiler computes where they are used."""


def pinned(jacobian: Callable[..., Any], mode: PinMode) -> Callable[..., Any]:
    """A Jacobian with as many pins as it was asked for.

    Args:
      jacobian: the function, in which every value that might be expensive is pinned.
      mode: "auto" keeps the pins that are needed, True all, False none.

    Returns:
      A function as `jacobian`.

    Raises:
      ValueError: if there is no such mode.
    """
    plain = with_pins(jacobian, mode)
    if mode != "auto":
        return plain

    @functools.wraps(jacobian, updated=())
    def by_need(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        places = [k for k, x in enumerate(leaves) if _compat.is_traced(x)]
        if not places:
            return jacobian(*args, **kwargs)
        traced = trace_leaves(jacobian, leaves, tree, places)
        closed = traced.closed
        part = part_of(closed, range(len(closed.out_avals)))
        return traced.result(run(part, closed.consts, [leaves[k] for k in places]))

    return by_need


def run(part: Part, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """The results of a part of a jaxpr, computed with the pins that are needed."""
    lifted = [k for k, c in enumerate(consts) if _compat.is_traced(c)]
    varying = _varying(part, lifted)
    kept = needed(part, part.eqns, varying)
    once = shared(part.eqns, varying)
    values: dict[Any, Any] = dict(zip(part.constvars, consts, strict=True))
    values.update(zip(part.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in part.eqns:
        outs = [read(a) for a in equation.invars]
        if equation.primitive.name != _BARRIER or equation.outvars[0] in kept:
            outs = _compat.bind(equation.primitive, equation.params, outs)
        for v, value in zip(equation.outvars, outs, strict=True):
            values[v] = jax.lax.optimization_barrier(value) if v in once else value
    return [
        _compat.as_weak_as(aval, jnp.asarray(read(atom)))
        for aval, atom in zip(part.out_avals, part.outvars, strict=True)
    ]


def dropped(part: Part, lifted: Sequence[int]) -> frozenset[Any]:
    """The results of the barriers of a part of a jaxpr that are not needed.

    Args:
      part: the part.
      lifted: the numbers of the constants that a batch may run over.
    """
    kept = needed(part, part.eqns, _varying(part, lifted))
    barriers = {e.outvars[0] for e in part.eqns if e.primitive.name == _BARRIER}
    return frozenset(barriers - kept)


def needed(jaxpr: Any, equations: Sequence[Any], varying: set[Any]) -> frozenset[Any]:
    """The results of barriers that are worth storing.

    Args:
      jaxpr: an open jaxpr.
      equations: those of its equations that are run.
      varying: the variables that depend on the arguments.

    Returns:
      Its variables: each costs more than loading it and would be repeated. What is joined of
      parts that cost more than that is read by indices, and is no loop but branches unless stored.
    """
    makers = {v: equation for equation in equations for v in equation.outvars}
    users: dict[Any, list[Any]] = {}
    for equation in equations:
        for atom in equation.invars:
            if not isinstance(atom, core.Literal):
                users.setdefault(atom, []).append(equation)
    outputs = {v for v in jaxpr.outvars if not isinstance(v, core.Literal)}
    kept: set[Any] = set()
    for equation in equations:
        if equation.primitive.name != _BARRIER:
            continue
        value, source = equation.outvars[0], equation.invars[0]
        joined = None if isinstance(source, core.Literal) else makers.get(source)
        if joined is not None and joined.primitive.name in ("concatenate", "stack"):
            if sum(_cost(p, makers, varying, kept) for p in joined.invars) >= _CHEAP:
                kept.add(value)
            continue
        cost = _cost(source, makers, varying, kept)
        if cost >= _CHEAP and _repeats(value, users, outputs, 1 + ceil(_WORTH / cost)):
            kept.add(value)
    return frozenset(kept)


def shared(equations: Sequence[Any], varying: set[Any]) -> frozenset[Any]:
    """What does not depend on the arguments, is computed, and meets what does.

    A batch shares it: it is computed once and stored, not in the loop over all points, where the
    pads of a stencil, say, would be branches for every entry.
    """
    computed: dict[Any, int] = {}
    found = set()
    for equation in equations:
        atoms = [a for a in equation.invars if not isinstance(a, core.Literal)]
        name = equation.primitive.name
        if any(a in varying for a in atoms):
            found.update(a for a in atoms if a not in varying and computed.get(a, 0) >= _SHARED)
        elif name in _FUSED or name == _BARRIER:
            own = 0 if name in _FREE else _EMBEDDING if name == "pad" else 1
            total = min(_MOST, own + sum(computed.get(a, 0) for a in atoms))
            computed.update(dict.fromkeys(equation.outvars, total))
    return frozenset(v for v in found if jnp.issubdtype(v.aval.dtype, jnp.inexact))


def _varying(part: Part, lifted: Sequence[int]) -> set[Any]:
    """The variables that depend on the arguments; others are computed once for a batch."""
    varying = {*part.invars, *(part.constvars[k] for k in lifted)}
    for equation in part.eqns:
        if any(not isinstance(a, core.Literal) and a in varying for a in equation.invars):
            varying.update(equation.outvars)
    return varying


def _cost(atom: Any, makers: dict[Any, Any], varying: set[Any], kept: set[Any]) -> int:
    """Operations for an entry of a value out of what is stored, up to `_MOST`."""
    total, seen, waiting = 0, set(), [atom]
    while waiting and total < _MOST:
        v = waiting.pop()
        if isinstance(v, core.Literal) or v in seen or v in kept or v not in varying:
            continue
        seen.add(v)
        equation = makers.get(v)
        if equation is None:
            continue  # an argument
        name = equation.primitive.name
        if name == _BARRIER:
            waiting += equation.invars
        elif name in _FUSED:
            total += _COSTLY if name in EXPENSIVE else 0 if name in _FREE else 1
            waiting += equation.invars
    return total


def _repeats(value: Any, users: dict[Any, list[Any]], outputs: set[Any], times: int) -> bool:
    """Whether at least so many uses of an entry are in loops that would each compute it."""
    total, waiting, seen = 0, [(value, 1)], set()
    while waiting and total < times:
        v, spread = waiting.pop()
        if v in seen:
            continue
        seen.add(v)
        total += spread if v in outputs else 0
        for equation in users.get(v, ()):
            name, out = equation.primitive.name, equation.outvars[0]
            if name not in _FUSED and name != _BARRIER:
                total += spread
                continue
            grown = prod(out.aval.shape) // max(1, prod(v.aval.shape))
            more = spread * (grown if name == "broadcast_in_dim" else 1)
            waiting.append((out, max(1, more)))
    return total >= times
