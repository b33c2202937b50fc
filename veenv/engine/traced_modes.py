"""JAX's own modes as programs beside an elimination's, traced when they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import jax

from veenv import _compat
from veenv.kernel.fusing import Traced, trace_leaves
from veenv.kernel.parts import part_of
from veenv.rules.modes import REFUSALS

_LACKING = (*REFUSALS, jax.errors.UnexpectedTracerError)
"""What is raised where JAX has no such mode, or it needs a value of a trace that has ended."""


class JaxMode(NamedTuple):
    """One of JAX's own modes of a function.

    Attributes:
      run: of the function's arguments.
      operations: multiplications that it does at a point, at least as far as is known.
    """

    run: Callable[..., Any]
    operations: float = 0.0


@dataclass(frozen=True)
class TracedModes:
    """JAX's own modes of a function, to be traced.

    Attributes:
      modes: of its arguments, each.
      leaves: of the arguments.
      tree: their structure.
      dynamic: numbers of the leaves that are the operands of the elimination.
    """

    modes: tuple[JaxMode, ...]
    leaves: tuple[Any, ...]
    tree: Any
    dynamic: tuple[int, ...]

    @property
    def operations(self) -> float:
        """Multiplications that each of them does at a point, at least as far as is known."""
        return min((mode.operations for mode in self.modes), default=inf)

    def later(self) -> TracedModes:
        """The same without values: for tracing when those of this trace are gone."""
        leaves = list(self.leaves)
        for k in self.dynamic:
            leaves[k] = _compat.shape_of(leaves[k])
        return replace(self, leaves=tuple(leaves))

    def traced(self) -> Iterator[Traced]:
        """Each mode that JAX has of the function, and that can be traced still."""
        for mode in self.modes:
            try:
                found = trace_leaves(mode.run, self.leaves, self.tree, self.dynamic)
            except _LACKING:
                continue  # a solver, a function with a batching rule, … has the other mode only
            part = part_of(found.closed, range(len(found.closed.out_avals)))
            yield replace(found, closed=part.without(found.lifted))

    def split(self) -> tuple[list[Traced], TracedModes]:
        """The first mode that JAX has, traced, if there is one, and the modes after it."""
        for k, mode in enumerate(self.modes):
            found = [*replace(self, modes=(mode,)).traced()]
            if found:
                return found, replace(self, modes=self.modes[k + 1 :])
        return [], replace(self, modes=())
