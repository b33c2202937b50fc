"""A search against the clock: in the background, with hill climbing in Python as its fallback.

What takes long and cannot be interrupted (a kernel that compiles, a policy that XLA compiles, one
evaluation of a huge graph) runs in threads of its own.  The caller's thread waits, reports, and
leaves when the time is up or the user presses Ctrl-C, with the best order that there is.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event

import numpy as np

from veenv.orders.order import climb
from veenv.search.background import Background
from veenv.search.budget import Budget, ClosedError, Progress, Tracker
from veenv.search.problem import Problem

_REPORT = 0.1  # seconds between checks of the clock and of news
_GRACE = 0.1  # seconds for a search to notice that its time is up
_PATIENCE = 0.5
"""Seconds to wait for the compiled search, whose cache is read, before climbing begins."""


class Race:
    """One search, which its caller may abandon.

    Attributes:
      problem: the problem.
      began: `time.perf_counter` when the caller was called.
      initial: vertex ids to start from, or None.
      seed: seed of everything random.
      tracker: the search's; None until its first order is evaluated.
      outcome: vertex ids and cost of the order of a method that finds just one.
      bound: proven lower bound that goes with it.
      evaluations: orders that the fallback has evaluated.
      ready: whether the method has evaluated something, or ended.
      left: whether nobody waits any more.
    """

    def __init__(
        self, problem: Problem, limit: Budget, began: float, start: Sequence[int] | None, seed: int
    ):
        """Prepares the search, which `run` starts.

        A budget of seconds, which count from `began`, has a fallback; `start` are vertex ids to
        start from, None for those of the method.
        """
        self.problem, self.began, self.initial, self.seed = problem, began, start, seed
        self.tracker: Tracker | None = None
        self.outcome: tuple[tuple[int, ...], int] | None = None
        self.bound, self.evaluations = 0, 0
        self.ready = self.left = False
        self._limit, self._slowest = limit, 0.0
        self._fallback: tuple[tuple[int, ...], int] | None = None
        self._going = Event()
        self._news: queue.SimpleQueue[Progress] = queue.SimpleQueue()

    def wanted(self) -> bool:
        """Returns whether the caller still waits for the search."""
        return not self.left

    def start(self, order: np.ndarray) -> Tracker:
        """Returns the tracker of the search, with its first local order (int64 [n])."""
        if self.left:
            raise ClosedError
        tracker = Tracker(self.problem, order, self._limit, self._report, self.began)
        self.tracker = tracker
        if self.left:  # while the order was evaluated: `run` has closed no tracker then
            tracker.close()
            raise ClosedError
        return tracker

    def seconds(self) -> float:
        """Returns the seconds since the caller was called."""
        return time.perf_counter() - self.began

    def run(
        self, search: Callable[[], object], callback: Callable[[Progress], None] | None = None
    ) -> None:
        """Runs the search, which sets `tracker` or `outcome`, until it ends, time is up, or Ctrl-C.

        `callback` is called with what is new, in the caller's thread.
        """
        works = [Background(search)]
        if self._limit.seconds is not None:
            works.append(Background(self._climb))
        try:
            while not works[0].wait(min(_REPORT, self._time_left())) and self._time_left() > 0:
                self._tell(callback)
            self._tell(callback)
        except KeyboardInterrupt:
            if self.best() is None:
                raise
        finally:
            self.ready = self._going.is_set() or works[0].wait(0.0)
            self.left = True
            self._going.set()
            if self.tracker is not None:
                self.tracker.close()
        for work in works:
            if work.wait(0.0):
                with suppress(ClosedError):
                    work.result()

    def best(self) -> tuple[tuple[int, ...], int] | None:
        """Returns vertex ids and cost of the best order so far, from the search or its fallback."""
        if self.outcome is not None:
            return self.outcome
        if self.tracker is None:
            return self._fallback
        order, cost = self.tracker.best
        if self._fallback is not None and self._fallback[1] < cost:
            return self._fallback
        return self.problem.to_ids(order), cost

    def _report(self, progress: Progress) -> None:
        """Hands progress to the caller's thread; the tracker's callback."""
        if progress.evaluations:
            self._going.set()
        self._news.put(progress)

    def _climb(self) -> None:
        """Evaluates the classical orders, then climbs from the best until the method starts."""
        graph, model = self.problem.graph, self.problem.cost_model
        initial, classical = self.initial, (graph.reverse, graph.markowitz, graph.forward)
        for make in classical if initial is None else (lambda: tuple(initial),):
            if self._going.is_set():
                return
            order, began = graph.legal(make()), time.perf_counter()
            self._offer(order, graph.cost(order, model))
            self._slowest = max(self._slowest, time.perf_counter() - began)
        if self._fallback is None or self._going.wait(_PATIENCE):
            return
        for order, cost in climb(graph, self._fallback[0], model, self.seed):
            self._offer(order, cost)
            if self._going.is_set():
                return

    def _offer(self, order: tuple[int, ...], cost: int) -> None:
        self.evaluations += 1
        if self._fallback is None or cost < self._fallback[1]:
            self._fallback = order, cost

    def _time_left(self) -> float:
        """Returns the seconds until the caller has to check the result and return."""
        limit = self._limit.seconds
        if limit is None:
            return float("inf")
        return max(limit - 2.5 * self._slowest, 0.5 * limit) + _GRACE - self.seconds()

    def _tell(self, callback: Callable[[Progress], None] | None) -> None:
        """Hands news to the callback."""
        while not self._news.empty():
            news = self._news.get()
            if callback is not None:
                callback(news)
