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

from veenv import _compat
from veenv.engine.worth import shared, stored_from
from veenv.kernel.parts import Part
from veenv.linear.batch_barrier import BARRIERS, barrier_from
from veenv.rules import walk


def run(part: Part, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """The results of a part of a jaxpr, computed with the pins that are needed."""
    lifted = [k for k, c in enumerate(consts) if _compat.is_traced(c)]
    varying = _varying(part, lifted)
    points = stored_from(part, walk.equations(part), varying)
    once = shared(walk.equations(part), varying)

    def step(equation: Any, operands: Sequence[Any]) -> list[Any]:
        if equation.primitive.name not in BARRIERS:
            outs = walk.apply(equation, operands)
        elif equation.outvars[0] in points:
            outs = [barrier_from(points[equation.outvars[0]], x) for x in operands]
        else:
            outs = list(operands)
        pairs = zip(equation.outvars, outs, strict=True)
        return [jax.lax.optimization_barrier(x) if v in once else x for v, x in pairs]

    return part.run(consts, operands, step)


def stored_points(part: Part, lifted: Sequence[int]) -> dict[Any, float]:
    """For each result of a barrier the number of points from which on it is stored, if ever.

    Args:
      part: a part of a jaxpr.
      lifted: the numbers of the constants that a batch may run over.
    """
    points = stored_from(part, walk.equations(part), _varying(part, lifted))
    barriers = (e.outvars[0] for e in walk.equations(part) if e.primitive.name in BARRIERS)
    return {v: points.get(v, inf) for v in barriers}


def _varying(part: Part, lifted: Sequence[int]) -> set[Any]:
    """The variables that depend on the arguments; others are computed once for a batch."""
    return walk.dependent(part, (*part.invars, *(part.constvars[k] for k in lifted)))
