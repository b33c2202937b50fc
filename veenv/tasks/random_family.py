"""Families of random functions: ranges from which a seed draws one function after another."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from veenv.tasks.random import random_function

Range: TypeAlias = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class RandomFunctions:
    """Ranges of the sizes and shapes of random functions; both ends belong to a range.

    Attributes:
      vertices: numbers of equations, those of the outputs included.
      inputs: numbers of arguments.
      outputs: numbers of results.
      fan_out: mean numbers of uses of an argument or intermediate, from 1 up. Met to about 0.15,
        as far as equations of one or two operands allow.
      windows: windows from which an equation takes operands that were used before
        (``random_function``): small ones make long, narrow graphs.
      arrays: share of functions of small arrays, from 0 to 1; the others are of scalars.

    Examples:
      >>> family = RandomFunctions(vertices=(5, 9), inputs=(2, 3))
      >>> fun, point = family.draw(0)
      >>> 2 <= len(point) <= 3
      True
    """

    vertices: Range = (10, 60)
    inputs: Range = (1, 8)
    outputs: Range = (1, 4)
    fan_out: tuple[float, float] = (1.0, 1.6)
    windows: Range = (4, 60)
    arrays: float = 0.0

    def __post_init__(self) -> None:
        """Checks the ranges.

        Raises:
          ValueError: a range is empty, reaches below 1 or asks for an impossible function.
        """
        for name in ("vertices", "inputs", "outputs", "fan_out", "windows"):
            try:
                low, high = getattr(self, name)
                valid = 1 <= low <= high
            except (TypeError, ValueError):
                valid = False
            if not valid:
                got = getattr(self, name)
                raise ValueError(f"{name} must be a range (low, high) from 1 up, got {got!r}")
        if not 0.0 <= self.arrays <= 1.0:
            raise ValueError(f"arrays must be a share from 0 to 1, got {self.arrays}")
        least = max(self.outputs[1], self.inputs[1] - self.outputs[0])
        if self.vertices[0] < least:
            raise ValueError(
                f"functions of {self.inputs[1]} inputs or {self.outputs[1]} outputs need at least "
                f"{least} vertices, got vertices={self.vertices}"
            )

    def draw(
        self, seed: int | Sequence[int]
    ) -> tuple[Callable[..., tuple[Any, ...]], tuple[np.ndarray, ...]]:
        """Draws a function, every size uniformly from its range.

        Args:
          seed: seed, or several that make one.

        Returns:
          The function and its point, as ``random_function`` gives them.
        """
        rng = np.random.default_rng(seed)
        vertices, inputs, outputs, window = (
            int(rng.integers(low, high, endpoint=True))
            for low, high in (self.vertices, self.inputs, self.outputs, self.windows)
        )
        # Every operand is a use: fan_in · vertices = fan_out · (variables that are no outputs).
        fan_in = rng.uniform(*self.fan_out) * (vertices + inputs - outputs) / vertices
        return random_function(
            int(rng.integers(2**31)),
            inputs,
            vertices,
            outputs,
            fan_in=float(np.clip(fan_in, 1.0, 2.0)),
            window=window,
            arrays=bool(rng.random() < self.arrays),
        )
