"""The random functions of `--task random`."""

from __future__ import annotations

import dataclasses

from veenv.agents.config.checks import check_integers
from veenv.tasks import RandomFunctions


@dataclasses.dataclass(frozen=True)
class RandomConfig:
    """What `--task random` trains on: pools of random functions, renewed all the time.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    functions: int = 32
    """Random functions in a pool (--task random)."""
    min_vertices: int = 10
    """Least number of equations of a random function."""
    max_vertices: int = 36
    """Largest number of equations of a random function."""
    max_inputs: int = 8
    """Largest number of arguments of a random function."""
    max_outputs: int = 5
    """Largest number of results of a random function."""
    arrays: float = 0.0
    """Share of random functions of small arrays, which play several times more slowly."""

    def __post_init__(self) -> None:
        """Checks every field."""
        check_integers(self, "functions min_vertices max_vertices max_inputs max_outputs")
        _ = self.family

    @property
    def family(self) -> RandomFunctions:
        """The ranges as a family of random functions."""
        return RandomFunctions(
            vertices=(self.min_vertices, self.max_vertices),
            inputs=(1, self.max_inputs),
            outputs=(1, self.max_outputs),
            fan_out=(1.2, 1.8),
            arrays=self.arrays,
        )
