"""Some of the results of a jaxpr, with the equations that they need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from veenv import _compat


@dataclass(frozen=True)
class Part:
    """What a closed jaxpr computes for some of its results; it reads as a closed jaxpr does.

    Attributes:
      constvars: variables of the constants.
      invars: variables of the arguments: all of the jaxpr's.
      outvars: the results that are wanted.
      eqns: the equations that they need.
      consts: values of the constants.
    """

    constvars: tuple[Any, ...]
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]
    eqns: tuple[Any, ...]
    consts: tuple[Any, ...]

    @property
    def out_avals(self) -> list[Any]:
        """Shape and dtype of each result."""
        return [v.aval for v in self.outvars]

    def without(self, constants: Collection[int]) -> Part:
        """The part without some of its constants, which may be of a trace that ends before it."""
        kept = (None if k in constants else c for k, c in enumerate(self.consts))
        return replace(self, consts=tuple(kept))

    def run(self, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """The results, the equations applied one after another."""
        values: dict[Any, Any] = dict(zip(self.constvars, consts, strict=True))
        values.update(zip(self.invars, operands, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else values[atom]

        for equation in self.eqns:
            operands = [read(a) for a in equation.invars]
            outs = _compat.bind(equation.primitive, equation.params, operands)
            values.update(zip(equation.outvars, outs, strict=True))
        return [_compat.as_weak_as(v.aval, jnp.asarray(read(v))) for v in self.outvars]


def part_of(closed: Any, outputs: Sequence[int]) -> Part:
    """Some of the results of a closed jaxpr.

    Args:
      closed: the jaxpr.
      outputs: the numbers of the results.
    """
    jaxpr = _compat.open_jaxpr(closed)
    outvars = tuple(jaxpr.outvars[k] for k in outputs)
    equations = tuple(needed_equations(jaxpr.eqns, outvars))
    constvars, invars = tuple(jaxpr.constvars), tuple(jaxpr.invars)
    return Part(constvars, invars, outvars, equations, tuple(closed.consts))


def needed_equations(equations: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """The equations that some variables need, and those that do more than compute."""
    wanted = {v for v in outputs if not isinstance(v, core.Literal)}
    found = []
    for equation in reversed(equations):
        if equation.effects or any(v in wanted for v in equation.outvars):
            found.append(equation)
            wanted.update(a for a in equation.invars if not isinstance(a, core.Literal))
    return found[::-1]
