"""The settings of AlphaZero's search."""

from __future__ import annotations

import dataclasses

from veenv.agents.config.checks import check_integers, check_numbers


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
    """Scale of the Gumbel noise at the root; 0: deterministic."""

    def __post_init__(self) -> None:
        """Checks every field."""
        check_integers(self, "num_simulations max_considered")
        check_numbers(self, "gumbel_scale")
