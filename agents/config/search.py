"""The settings of AlphaZero's search."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """The search before every move of `--agent alphazero`.

    Raises:
      ValueError: naming the first field that is out of range.
    """

    num_simulations: int = 16
    """Moves tried in the search before each move; the time of a step is proportional to it."""

    max_considered: int = 8
    """Moves that the search compares at the root, chosen by the policy and by chance."""

    gumbel_scale: float = 1.0
    """How much chance has a say in them; 0 for none."""

    def __post_init__(self) -> None:
        """Checks every field."""
        for name in ("num_simulations", "max_considered"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        if not 0 <= self.gumbel_scale < math.inf:
            raise ValueError(
                f"gumbel_scale must be a number of at least 0, got {self.gumbel_scale}"
            )
