"""How often a compiler computes each value of a program, as it rather repeats than stores it.

A value is computed in every loop that needs it, and there once for each way of indexing it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from veenv.linear.barrier import EXPENSIVE

REPEATED = frozenset("sin cos tan".split())
"""Functions that the compiler takes for cheap, and repeats."""
_SPREAD = frozenset(
    "broadcast_in_dim reshape transpose squeeze rev slice split unstack expand_dims pad "
    "concatenate stack tile".split()
)
"""Primitives whose operands are read at other indices than their results."""
_MOST_WAYS = 15
"""Ways of indexing a value within one loop at most; with more of them it is stored."""

_MOST = 128
"""Ways in all loops at most: the effort of finding them is bounded."""

Ways = dict[int, dict[int, float]]
"""For each loop, for each way of indexing in it, how many entries are computed."""


class Value(Protocol):
    """A variable: its number of entries, whether it is stored, and how many are computed."""

    size: int
    stored: bool
    computed: float


class Step(Protocol):
    """An equation."""

    @property
    def name(self) -> str:
        """The primitive's."""
        ...

    @property
    def ins(self) -> Sequence[Any]:
        """The operands."""
        ...

    @property
    def outs(self) -> Sequence[Any]:
        """The results."""
        ...


def find_repeats(steps: Sequence[Step], fused: Collection[str]) -> None:
    """Finds which values are stored, and how many entries of each are computed in all.

    Args:
      steps: the equations in their order; what other programs than loops need is stored.
      fused: names of those that are loops.
    """
    ways: dict[int, Ways] = {}
    fresh = itertools.count(1)
    for number, step in reversed(list(enumerate(steps))):
        if step.name not in fused:
            continue
        needed: Ways = {}
        for value in step.outs:
            found = ways.pop(id(value), {})
            value.stored = value.stored or _is_stored(step.name, found)
            if value.stored:
                found = {number: {0: float(value.size)}}
            value.computed = sum(sum(each.values()) for each in found.values())
            for loop, each in found.items():
                needed.setdefault(loop, {}).update(each)
        for value in {id(v): v for v in step.ins}.values():
            if not value.stored:
                _add(ways.setdefault(id(value), {}), needed, step, value, fresh)


def _is_stored(name: str, found: Ways) -> bool:
    """Whether a value is stored that could be computed where it is needed."""
    total = sum(map(len, found.values()))
    if name in ("concatenate", "stack") or (name in EXPENSIVE and name not in REPEATED):
        return total > 1
    return total > _MOST or any(len(each) > _MOST_WAYS for each in found.values())


def _add(found: Ways, needed: Ways, step: Step, value: Value, fresh: Any) -> None:
    """Adds the ways in which a step reads a value to those found."""
    spread = step.name in _SPREAD
    share = min(1.0, value.size / max(1, step.outs[0].size))  # of a broadcast, of what is joined
    for loop, each in needed.items():
        own = found.setdefault(loop, {})
        for way, entries in each.items():
            if value.size == 1:
                own[0] = max(own.get(0, 0.0), entries * share)
            elif spread:
                own[next(fresh)] = entries * share
            else:
                own[way] = max(own.get(way, 0.0), entries * share)
