"""Phases of an episode: the further it is, the fewer slots are left for the network to read.

A step eliminates one vertex, so before step t at most A - t slots are legal.  An episode is cut
into a few phases, and in each only the slots are read that are left at its start: shapes stay
static, and more than a third of the work is saved.
"""

from __future__ import annotations

import dataclasses
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp

PHASES = 2
"""Phases of an episode; each is compiled by itself, the environment included."""

FEWEST_STEPS = 12
"""Steps of a phase; shorter ones are not worth their compilation."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps of an episode, and the slots that are read in them.

    Attributes:
      start: the first step.
      stop: the step after the last one.
      num_slots: slots that are kept, at least as many as are legal.
    """

    start: int
    stop: int
    num_slots: int

    @property
    def steps(self) -> slice:
        """The steps."""
        return slice(self.start, self.stop)


def phases_of(num_actions: int, most: int) -> tuple[Phase, ...]:
    """Phases of the episodes of an environment, of nearly equal numbers of steps.

    Args:
      num_actions: A, slots and steps.
      most: number of phases at most.

    Examples:
      >>> phases_of(30, 6)
      (Phase(start=0, stop=15, num_slots=30), Phase(start=15, stop=30, num_slots=15))
      >>> len(phases_of(1000, 6)), len(phases_of(5, 6))
      (6, 1)
    """
    number = max(1, min(most, num_actions // FEWEST_STEPS))
    bounds = [num_actions * k // number for k in range(number + 1)]
    return tuple(Phase(*pair, num_actions - pair[0]) for pair in pairwise(bounds))


def in_phases(record: Any) -> tuple[Any, ...]:
    """A record of whole episodes as one for each phase that was played.

    Args:
      record: a dataclass of arrays [T, B, ...] whose field `inputs` is a tuple of `Inputs`
        [steps, B, ...], one for each phase.
    """
    bounds = list(accumulate((x.mask.shape[0] for x in record.inputs), initial=0))
    bare, parts = dataclasses.replace(record, inputs=()), []
    for (start, stop), inputs in zip(pairwise(bounds), record.inputs, strict=True):
        part = jax.tree.map(lambda x, s=slice(start, stop): x[s], bare)
        parts.append(dataclasses.replace(part, inputs=inputs))
    return tuple(parts)


def whole(parts: Any, name: str) -> jax.Array:
    """A field of the records of phases as one array over all steps."""
    return jnp.concatenate([getattr(part, name) for part in parts])
