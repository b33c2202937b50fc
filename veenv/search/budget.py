"""Budgets of searches, and the record of the best order so far."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from veenv.search.problem import Problem

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def check_seed(seed: int) -> None:
    """Checks the seed of a search."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an int that is not negative, got {seed!r}")


@dataclass(frozen=True)
class Budget:
    """The limit of a search: seconds, evaluations, or whichever comes first.

    Attributes:
      seconds: wall-clock limit, or None.
      evaluations: limit on evaluated orders (or search states), or None.

    Examples:
      >>> Budget.parse("2m"), Budget.parse(500)
      (Budget(seconds=120.0, evaluations=None), Budget(seconds=None, evaluations=500))
    """

    seconds: float | None = None
    evaluations: int | None = None

    @classmethod
    def parse(cls, budget: Budget | str | int) -> Budget:
        """Reads ``"10s"``, ``"500ms"``, ``"2m"``, ``"1h"`` or a number of evaluations.

        Raises:
          ValueError: if it is none of these or not positive.
        """
        if isinstance(budget, Budget):
            return budget
        if isinstance(budget, str):
            match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\s*", budget)
            if match and match[2] and float(match[1]) > 0:
                return cls(seconds=float(match[1]) * _UNITS[match[2]])
            if match and not match[2] and match[1].isdigit() and int(match[1]) > 0:
                return cls(evaluations=int(match[1]))
        elif isinstance(budget, int) and not isinstance(budget, bool) and budget > 0:
            return cls(evaluations=budget)
        raise ValueError(
            "budget must be a time such as '10s', '500ms' or '2m', or a positive number of "
            f"evaluations, got {budget!r}"
        )


@dataclass(frozen=True)
class Progress:
    """The state of a search, as passed to a progress callback.

    Attributes:
      cost: best cost so far.
      evaluations: evaluations so far.
      seconds: time so far.
      improved: whether this report is a new best.
    """

    cost: int
    evaluations: int
    seconds: float
    improved: bool


class ClosedError(Exception):
    """A search continues although its caller has left."""


class Tracker:
    """The best order so far, the budget spent, and the callback to report to.

    A tracker may be read and closed from another thread than the search's.

    Attributes:
      best: best local order, int64 [n], and its cost; replaced as one.
      evaluations: evaluations so far.
      lower_bound: best proven lower bound.
      trace: (seconds, evaluations, cost) of every improvement.
    """

    def __init__(
        self,
        problem: Problem,
        order: np.ndarray,
        budget: Budget,
        callback: Callable[[Progress], None] | None = None,
        began: float | None = None,
    ):
        """Starts with a first local order, int64 [n].

        `callback` is called on every improvement and about ten times a second; `began` is
        `time.perf_counter` when the search began, now by default.
        """
        self.evaluations = 0
        self.lower_bound = 0
        self.trace: list[tuple[float, int, int]] = []
        self._problem = problem
        self._budget = budget
        self._callback = callback
        self._began = time.perf_counter() if began is None else began
        self._last_report = self._began
        self._lock, self._closed = threading.Lock(), False
        self.improve(order, problem.total(order))

    @property
    def order(self) -> np.ndarray:
        """The best local order, int64 [n]."""
        return self.best[0]

    @property
    def cost(self) -> int:
        """Its cost."""
        return self.best[1]

    @property
    def seconds(self) -> float:
        """Time since the search began."""
        return time.perf_counter() - self._began

    def improve(self, order: np.ndarray, cost: int) -> None:
        """Stores a new best order, after evaluating it from the beginning."""
        actual = self._problem.total(order)
        if actual != cost:
            raise RuntimeError(f"an order believed to cost {cost} costs {actual}")
        with self._lock:
            self._check_open()
            self.best = order, cost
            self.trace.append((self.seconds, self.evaluations, cost))
        self._report(improved=True)

    def add(self, evaluations: int) -> None:
        """Counts evaluations; reports progress about ten times a second."""
        self._check_open()
        self.evaluations += evaluations
        if time.perf_counter() - self._last_report > 0.1:
            self._report(improved=False)

    def evaluations_left(self) -> int:
        """Returns the evaluations left in the budget (a large number if it is not limited)."""
        limit = self._budget.evaluations
        return 1 << 62 if limit is None else max(0, limit - self.evaluations)

    def seconds_left(self) -> float:
        """Returns the seconds left in the budget (infinite if it is not limited)."""
        limit = self._budget.seconds
        return float("inf") if limit is None else limit - self.seconds

    def spent(self) -> bool:
        """Returns whether the budget is spent."""
        return self._closed or self.evaluations_left() <= 0 or self.seconds_left() <= 0

    def done(self) -> bool:
        """Returns whether the budget is spent or the best order is proven optimal."""
        return self.cost <= self.lower_bound or self.spent()

    @contextmanager
    def limited_to(self, fraction: float) -> Iterator[None]:
        """Limits the budget, within the context, to a fraction of the rest."""
        whole = self._budget
        self._budget = Budget(  # of what is not limited, a fraction is more than can be spent
            self.seconds + fraction * self.seconds_left(),
            self.evaluations + int(fraction * self.evaluations_left()),
        )
        try:
            yield
        finally:
            self._budget = whole

    def raise_bound(self, bound: int) -> None:
        """Stores a proven lower bound; it never falls."""
        self.lower_bound = max(self.lower_bound, min(bound, self.cost))

    def close(self) -> None:
        """Refuses further improvements: the search ends at its next improvement or count."""
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError

    def _report(self, *, improved: bool) -> None:
        self._last_report = time.perf_counter()
        if self._callback is not None:
            self._callback(Progress(self.cost, self.evaluations, self.seconds, improved))
