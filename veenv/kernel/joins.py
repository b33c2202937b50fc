"""Which part of a joined value a slice reads: the compiler reads that part, and joins nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Joins(Generic[T]):
    """The joined values of a program, by identity, and what they are joined of.

    Example:
      >>> joins, whole = Joins(), "ab"
      >>> joins.add("stack", {"axis": 0}, ["a", "b"], [(3,), (3,)], whole)
      >>> joins.read("unstack", {"axis": 0}, whole, (2, 3))
      ['a', 'b']
    """

    def __init__(self) -> None:
        self._parts: dict[int, tuple[int, list[int], list[T]]] = {}
        self._kept: list[T] = []  # an identity is that of a value that lives

    def add(
        self,
        name: str,
        params: Mapping[str, Any],
        parts: Sequence[T],
        shapes: Sequence[tuple[int, ...]],
        whole: T,
    ) -> None:
        """Notes the result of an equation if it joins its operands.

        Args:
          name: the primitive's.
          params: its parameters.
          parts: the operands.
          shapes: theirs.
          whole: the result.
        """
        if name not in ("stack", "concatenate"):
            return
        axis = params["axis" if name == "stack" else "dimension"]
        sizes = [1 if name == "stack" else shape[axis] for shape in shapes]
        starts = [0, *itertools.accumulate(sizes)]
        self._parts[id(whole)] = axis, starts, list(parts)
        self._kept.append(whole)

    def read(
        self, name: str, params: Mapping[str, Any], whole: T, shape: tuple[int, ...]
    ) -> list[T] | None:
        """The parts that the results of an equation are.

        Args:
          name: the primitive's.
          params: its parameters.
          whole: its operand.
          shape: int, of the operand.

        Returns:
          A part for each result; None where the equation reads anything else.
        """
        if id(whole) not in self._parts:
            return None
        axis, starts, parts = self._parts[id(whole)]
        ranges = _ranges(name, params, axis, shape)
        bounds = [list(pair) for pair in itertools.pairwise(starts)]
        if not ranges or any(each not in bounds for each in ranges):
            return None
        return [parts[bounds.index(each)] for each in ranges]


def _ranges(
    name: str, params: Mapping[str, Any], axis: int, shape: tuple[int, ...]
) -> list[list[int]]:
    """Start and end along an axis of what each result of an equation reads; empty if it is more."""
    if name == "slice" and set(params["strides"] or (1,)) == {1}:
        bounds = list(zip(params["start_indices"], params["limit_indices"], strict=True))
        others = [b == (0, n) for b, n in zip(bounds, shape, strict=True)]
        others[axis] = True
        return [list(bounds[axis])] if all(others) else []
    if name in ("unstack", "split") and params["axis"] == axis:
        sizes = params["sizes"] if name == "split" else [1] * shape[axis]
        starts = [0, *map(int, itertools.accumulate(sizes))]
        return [list(pair) for pair in itertools.pairwise(starts)]
    return []
