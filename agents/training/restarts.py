"""A budget as one or several starts from fresh parameters."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Starts:
    """Starts of equal shares of what is left of a budget.

    A policy that has converged finds nothing more, and another one converges elsewhere; so a budget
    that is far more than one start needs is divided.

    Attributes:
      number: of starts.
      first: the share of the budget that is spent when they begin, from 0 to 1.
    """

    number: int = 1
    first: float = 0.0

    @classmethod
    def of(cls, updates: float, least: int, first: float = 0.0) -> Starts:
        """Divides a budget into as many starts as there is room for.

        Args:
          updates: train steps that the rest of the budget has room for.
          least: train steps of a start, at least; 0 for one start.
          first: the share of the budget that is spent.

        Examples:
          >>> Starts.of(1300, 600), Starts.of(500, 600).number, Starts.of(1300, 0).number
          (Starts(number=2, first=0.0), 1, 1)
        """
        return cls(max(1, int(updates // least)), first) if least else cls()

    def index(self, fraction: float) -> int:
        """The start under way when a share of the budget is spent, from 0 on.

        Examples:
          >>> [Starts(2, 0.5).index(fraction) for fraction in (0.25, 0.7, 0.75, 1.0)]
          [0, 0, 1, 1]
        """
        return min(self.number - 1, int(self._passed(fraction)))

    def progress(self, fraction: float) -> float:
        """The share of that start that is over, from 0 to 1.

        Examples:
          >>> [Starts(2, 0.5).progress(fraction) for fraction in (0.25, 0.625, 0.75, 1.0)]
          [0.0, 0.5, 0.0, 1.0]
        """
        return min(1.0, max(0.0, self._passed(fraction) - self.index(fraction)))

    def _passed(self, fraction: float) -> float:
        """Starts that are over when a share of the budget is spent."""
        if self.number == 1 or fraction >= 1.0:
            return fraction * self.number
        return max(0.0, fraction - self.first) / (1.0 - self.first) * self.number
