"""Powers of one value that are stored: all of them in one loop, as one array.

A power is stored beside its slope, the same value to one less, and each would take a loop of its
own: to compile, to start, and to read the value again. Where the value is a sum, the compiler's
library for sums computes them with it: the program may take up to a tenth longer, and has two
loops less to compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from veenv import _compat
from veenv.engine.worth import FREE
from veenv.linear.batch_barrier import BARRIERS, barrier_from

_CHEAP = frozenset({*FREE, *BARRIERS, "mul", "neg"})
"""Primitives between a power and the barrier that is there for it."""
_SIMPLE = frozenset({-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0})
"""Exponents of powers that the compiler replaces by cheaper functions."""


@dataclass(frozen=True)
class Powers:
    """Powers of one value.

    Attributes:
      results: their variables, in the order of the program.
      exponents: the exponent of each.
      points: the number of points from which on they are stored.
      barriers: the results of the barriers that are there for them, which are of no more use.
    """

    results: tuple[Any, ...]
    exponents: tuple[Any, ...]
    points: int
    barriers: frozenset[Any]

    def of(self, base: Any) -> list[jax.Array]:
        """The powers of a value, each of its shape."""
        bases = lax.broadcast(base, (len(self.exponents),))
        exponents = np.array(self.exponents, base.dtype)
        powers = lax.pow(bases, lax.broadcast_in_dim(exponents, bases.shape, (0,)))
        powers = barrier_from(self.points, powers)
        return [lax.index_in_dim(powers, k, keepdims=False) for k in range(len(self.exponents))]


def joined(equations: Sequence[Any], points: Mapping[Any, int]) -> list[Powers]:
    """The powers that are computed together: several of one value, all of them stored.

    Args:
      equations: of a jaxpr.
      points: for each result of a barrier that is stored the number of points from which on.
    """
    count = sum(equation.primitive.name == "pow" for equation in equations)
    if count < 2 or not _compat.STACKED_POWERS:
        return []
    makers = {v: equation for equation in equations for v in equation.outvars}
    barriers: dict[Any, list[Any]] = {}
    for equation in equations:
        if equation.primitive.name in BARRIERS and equation.outvars[0] in points:
            source = _source(equation, makers)
            if source is not None and source.primitive.name == "pow":
                barriers.setdefault(source.outvars[0], []).append(equation.outvars[0])
    bases: dict[Any, list[Any]] = {}
    for equation in equations:
        if equation.primitive.name == "pow" and equation.outvars[0] in barriers:
            base, exponent = equation.invars
            if _is_usual(base, exponent):
                bases.setdefault(base, []).append(equation.outvars[0])
    return [
        Powers(
            tuple(results),
            tuple(makers[v].invars[1].val for v in results),
            min(points[b] for v in results for b in barriers[v]),
            frozenset(b for v in results for b in barriers[v]),
        )
        for results in bases.values()
        if len(results) > 1
    ]


def _source(equation: Any, makers: Mapping[Any, Any]) -> Any:
    """The equation whose result, but for factors and its shape, is that of another one."""
    while equation is not None and equation.primitive.name in _CHEAP:
        atoms = [a for a in equation.invars if not isinstance(a, core.Literal)]
        if len(atoms) != 1:
            return None
        equation = makers.get(atoms[0])
    return equation


def _is_usual(base: Any, exponent: Any) -> bool:
    """Whether a power is of a variable real number, and takes as long as most powers do."""
    if isinstance(base, core.Literal) or not isinstance(exponent, core.Literal):
        return False
    value = np.asarray(exponent.val)
    alike = jnp.issubdtype(value.dtype, jnp.floating) and base.aval.dtype == value.dtype
    return alike and value.ndim == 0 and float(value) not in _SIMPLE
