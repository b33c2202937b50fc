"""A search against the clock: in the background, with a stand-in until it is ready.

What takes long and cannot be interrupted (a kernel that compiles, a policy that XLA compiles, one
evaluation of a huge graph) runs in threads of its own.  The caller's thread waits, reports, and
leaves when the time is up or the user presses Ctrl-C, with the best order that there is.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from threading import Event

import numpy as np

from veenv.search.background import Background
from veenv.search.budget import Budget, ClosedError, Progress, Tracker
from veenv.search.problem import Problem
from veenv.search.stand_in import StandIn

_REPORT = 0.1
"""Seconds between looks at the clock and at what is new."""
_GRACE = 0.1
"""Seconds that a search may take to notice that its time is up."""


class Race:
    """One search, which may be left behind.

    Attributes:
      problem: the problem.
      limit: the budget.
      began: `time.perf_counter` when the caller was called.
      given: vertex ids to start from, or None.
      stand_in: searches until the tracker is there; None without a limit of time.
      ready: set when the method has its first order, or nobody waits any more.
      tracker: the search's; None until its first order is evaluated.
      found: vertex ids and cost of the order of a method that finds just one.
      bound: proven lower bound that goes with it.
      left: whether nobody waits any more.
    """

    def __init__(
        self,
        problem: Problem,
        limit: Budget,
        began: float,
        given: Sequence[int] | None = None,
        seed: int = 0,
    ):
        """Nothing runs yet.

        Args:
          problem: the problem.
          limit: the budget.
          began: `time.perf_counter` from which its seconds count.
          given: vertex ids to start from; None for those of the method.
          seed: seed of the stand-in.
        """
        self.problem, self.limit, self.began, self.given = problem, limit, began, given
        self.ready = Event()
        self.tracker: Tracker | None = None
        self.found: tuple[tuple[int, ...], int] | None = None
        self.bound = 0
        self.left = False
        self.stand_in = None
        if limit.seconds is not None:
            self.stand_in = StandIn(problem.graph, problem.cost_model, given, seed)
        self._news: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()

    def wanted(self) -> bool:
        """Whether anybody waits for the search."""
        return not self.left

    def start(self, order: np.ndarray) -> Tracker:
        """The tracker of the search, which has its first local order (int64 [n]).

        Raises:
          ClosedError: if nobody waits any more.
        """
        self.tracker = Tracker(self.problem, order, self.limit, self.report, self.began)
        self.ready.set()
        if self.left:  # while the order was evaluated: `run` has closed no tracker then
            self.tracker.close()
            raise ClosedError
        return self.tracker

    def report(self, progress: Progress) -> None:
        """Hands progress to the caller's thread; the tracker's callback."""
        self._news.put(progress)

    def seconds(self) -> float:
        """Seconds since the caller was called."""
        return time.perf_counter() - self.began

    def run(
        self,
        search: Callable[[], object],
        callback: Callable[[Progress], None] | None = None,
    ) -> None:
        """Runs the search until it ends, its time is up, or Ctrl-C.

        Args:
          search: sets `tracker` or `found`, then `ready`, and ends when `wanted` is false.
          callback: called with what is new, in the caller's thread.

        Raises:
          KeyboardInterrupt: before there is any order.
          Exception: what the search or the callback raises.
        """
        work = Background(lambda: self._noting_the_end(search))
        other = None
        if self.stand_in is not None:
            stand_in = self.stand_in
            other = Background(lambda: self._noting_the_end(lambda: stand_in.run(self.ready)))
        try:
            while not work.wait(0.0) and self._time_left() > 0:
                self._tell(callback, min(_REPORT, self._time_left()))
            while self._tell(callback, 0.0):
                pass
        except KeyboardInterrupt:
            if self.best() is None:
                raise
        finally:
            self.left = True
            self.ready.set()
            if self.tracker is not None:
                self.tracker.close()
        if work.wait(0.0):
            work.result()
        if other is not None and other.wait(0.0):
            other.result()

    def best(self) -> tuple[tuple[int, ...], int] | None:
        """Vertex ids and cost of the best order so far, whoever found it."""
        if self.found is not None:
            return self.found
        if self.tracker is not None:
            order, cost = self.tracker.best
            return self.problem.to_ids(order), cost
        return None if self.stand_in is None else self.stand_in.best

    def _noting_the_end(self, run: Callable[[], object]) -> None:
        """Runs a thread's part; a part that nobody waits for may end in any way."""
        try:
            run()
        except ClosedError:
            pass
        except Exception:
            if self.wanted():
                raise
        finally:
            self._news.put(None)

    def _time_left(self) -> float:
        """Seconds until the caller has to check the order found, and leave."""
        limit = self.limit.seconds
        if limit is None:
            return float("inf")
        check = 0.0 if self.stand_in is None else self.stand_in.slowest
        return max(limit - 2.5 * check, 0.5 * limit) + _GRACE - self.seconds()

    def _tell(self, callback: Callable[[Progress], None] | None, seconds: float) -> bool:
        """Waits for news and hands them to the callback; whether there were any."""
        try:
            news = self._news.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return False
        if news is not None and callback is not None:
            callback(news)
        elif news is None:
            time.sleep(0.001)  # the thread is about to end
        return True
