"""Some of the results of a jaxpr, with the equations that they need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from veenv import _compat
from veenv.rules import walk


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

    def run(
        self,
        consts: Sequence[Any],
        operands: Sequence[Any],
        step: Callable[[Any, Sequence[Any]], list[Any]] = walk.apply,
    ) -> list[Any]:
        """The results; `step` computes those of an equation."""
        values: dict[Any, Any] = dict(zip(self.constvars, consts, strict=True))
        values.update(zip(self.invars, operands, strict=True))
        read = walk.run(self, values, step)
        return [_compat.as_weak_as(v.aval, jnp.asarray(read(v))) for v in self.outvars]


def part_of(closed: Any, outputs: Sequence[int]) -> Part:
    """Some of the results of a closed jaxpr, by their numbers."""
    jaxpr = _compat.open_jaxpr(closed)
    outvars = tuple(jaxpr.outvars[k] for k in outputs)
    equations = tuple(walk.needed(jaxpr, outvars))
    constvars, invars = tuple(jaxpr.constvars), tuple(jaxpr.invars)
    return Part(constvars, invars, outvars, equations, tuple(closed.consts))
