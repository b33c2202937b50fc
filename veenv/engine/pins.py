"""Pins by need: which values of a traced Jacobian are kept from being computed again.

While a Jacobian is traced, every value that might be expensive is pinned (`veenv.linear.barrier`).
Seen as a whole, the program shows which of them would be repeated, and at what cost; the others are
left to the compiler, for whom each barrier is the end of a loop (`veenv.engine.worth`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from veenv import _compat
from veenv.engine.worth import shared, stored_from
from veenv.kernel.parts import Part
from veenv.linear.batch_barrier import BARRIERS, barrier_from


def run(part: Part, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """The results of a part of a jaxpr, computed with the pins that are needed."""
    lifted = [k for k, c in enumerate(consts) if _compat.is_traced(c)]
    varying = _varying(part, lifted)
    points = stored_from(part, part.eqns, varying)
    once = shared(part.eqns, varying)
    values: dict[Any, Any] = dict(zip(part.constvars, consts, strict=True))
    values.update(zip(part.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in part.eqns:
        outs = [read(a) for a in equation.invars]
        if equation.primitive.name not in BARRIERS:
            outs = _compat.bind(equation.primitive, equation.params, outs)
        elif equation.outvars[0] in points:
            outs = [barrier_from(points[equation.outvars[0]], x) for x in outs]
        for v, value in zip(equation.outvars, outs, strict=True):
            values[v] = jax.lax.optimization_barrier(value) if v in once else value
    return [
        _compat.as_weak_as(aval, jnp.asarray(read(atom)))
        for aval, atom in zip(part.out_avals, part.outvars, strict=True)
    ]


def stored_points(part: Part, lifted: Sequence[int]) -> dict[Any, float]:
    """For each result of a barrier the number of points from which on it is stored, if ever.

    Args:
      part: a part of a jaxpr.
      lifted: the numbers of the constants that a batch may run over.
    """
    points = stored_from(part, part.eqns, _varying(part, lifted))
    barriers = (e.outvars[0] for e in part.eqns if e.primitive.name in BARRIERS)
    return {v: points.get(v, inf) for v in barriers}


def _varying(part: Part, lifted: Sequence[int]) -> set[Any]:
    """The variables that depend on the arguments; others are computed once for a batch."""
    varying = {*part.invars, *(part.constvars[k] for k in lifted)}
    for equation in part.eqns:
        if any(not isinstance(a, core.Literal) and a in varying for a in equation.invars):
            varying.update(equation.outvars)
    return varying
