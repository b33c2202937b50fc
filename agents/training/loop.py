"""The training loop: train steps until the budget is spent."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import jax

from veenv.agents.devices import any_process, broadcast_number, local
from veenv.agents.ppo.updates import Stats, TrainState
from veenv.agents.training.learner import Learner

Result = TypeVar("Result")

COMPILING = "veenv: compiling"
"""Name of the thread that compiles a train step; it outlives a time limit."""

MAX_NOT_FINITE = 10
"""Train steps in a row without any finite gradient after which training ends."""


class DivergedError(RuntimeError):
    """No gradient has been finite for a while; the parameters are the last good ones."""


class CompilingError(TimeoutError):
    """The time limit has passed while the first train step was compiled."""


@dataclasses.dataclass(frozen=True)
class TrainProgress:
    """The progress that the loop reports after every train step.

    Attributes:
      update: number of train steps so far.
      steps: environment steps so far, those of earlier calls included.
      seconds: since the start, compilation and earlier calls included.
      fraction: share of the budget that is spent, from 0 to 1.
      measured: ``mean_cost``, ``min_cost`` and ``best_cost`` by task, and ``stats``, a dict of
        numbers such as losses, entropy and KL divergence.
      state: the train state after it; ``state.network`` is the network.

    Examples:
      >>> TrainProgress(1, 8, 0.5, 0.1, {"best_cost": {"f": 2}}, None).row["best_cost"]
      {'f': 2}
    """

    update: int
    steps: int
    seconds: float
    fraction: float
    measured: Mapping[str, Any]
    state: TrainState

    @property
    def row(self) -> dict[str, Any]:
        """The row of the metrics: all but the state."""
        names = ("update", "steps", "seconds", "fraction")
        return {name: getattr(self, name) for name in names} | dict(self.measured)


class Limits:
    """The environment steps and the seconds that a run may take; process 0's clock counts."""

    def __init__(self, steps: int | None, time_limit: float | None, started: float | None):
        """Starts the clock, or has it started at a `time.monotonic()`.

        Raises:
          ValueError: there is neither.
        """
        if steps is None and time_limit is None:
            raise ValueError("training needs a number of steps or a time limit")
        self.steps, self.time_limit = steps, time_limit
        self._started = time.monotonic() if started is None else started

    def elapsed(self) -> float:
        """Seconds since the start."""
        return broadcast_number(time.monotonic() - self._started)

    def fraction(self, steps: int, seconds: float) -> float:
        """The share that is spent, from 0 to 1: that of steps or of seconds, whichever is more."""
        of_steps = steps / self.steps if self.steps else 0.0
        of_time = seconds / self.time_limit if self.time_limit else 0.0
        return min(1.0, max(of_steps, of_time))

    def within(self, call: Callable[[], Result], steps: int) -> Result:
        """Returns what a call returns; it is made in a thread, which outlives the time limit.

        So many steps have been played before.

        Raises:
          CompilingError: it takes longer than the limit.
        """
        result: Future[Result] = Future()

        def run() -> None:
            try:
                result.set_result(call())
            except BaseException as error:
                result.set_exception(error)

        threading.Thread(target=run, name=COMPILING, daemon=True).start()
        left = None if self.time_limit is None else max(0.0, self.time_limit - self.elapsed())
        try:
            return result.result(left)
        except TimeoutError:
            if result.done():
                raise
            raise CompilingError(
                f"the time limit, {self.time_limit:g} s, has passed while the train step was "
                f"compiled, so no {'further ' if steps else ''}episode was played; see "
                "errors.html#compilingerror"
            ) from None

    def spent(self, steps: int, seconds: float) -> str:
        """Says which limit so many steps and seconds have used up, in words; empty if nothing."""
        if self.time_limit is not None and seconds > self.time_limit:
            return f"{self.time_limit:g} s"
        return f"{self.steps:,} steps" if self.steps is not None and steps >= self.steps else ""


def train(
    learner: Learner,
    *,
    state: TrainState | None = None,
    steps: int | None = None,
    time_limit: float | None = None,
    started: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    patient: bool = True,
) -> Iterator[TrainProgress]:
    """Trains, and yields after every train step.

    Ends when `config.steps` are played or the next train step would pass the time limit; the
    learning rate and the entropy bonus follow whichever budget is further spent.  Where several
    processes train together, the clock of the first one counts, and whether any of them should
    stop.

    Args:
      learner: the agent and what it plays.
      state: where to start; fresh parameters by default.
      steps: environment steps that led to it; by default those of as many train steps as it has.
      time_limit: seconds, or None.
      started: `time.monotonic()` from which the limit counts; now by default.
      should_stop: asked after every train step; True ends the training.
      patient: whether the first train step, which compiles, is played however late it is.

    Raises:
      ValueError: there is neither a number of steps nor a time limit.
      CompilingError: the time limit has passed in the first train step, if that may be.
      DivergedError: no gradient of the last `MAX_NOT_FINITE` train steps was finite.
    """
    trainer = learner.trainer
    budget = Limits(trainer.config.steps, time_limit, started)
    state = trainer.init() if state is None else state
    update = int(state.num_updates)
    steps = update * trainer.steps_per_update if steps is None else steps
    pace, before, not_finite = None, budget.elapsed(), 0
    used = before if update else 0.0  # a fresh run's first step compiles, however late it is
    while not any_process(should_stop()):
        if budget.spent(steps, used if pace is None else before + pace):
            return
        play = partial(trainer.step, state, budget.fraction(steps, before))
        state, result = play() if patient or pace is not None else budget.within(play, steps)
        before = budget.elapsed() if pace is None else before  # the first call returns compiled
        result = jax.device_get(result)
        update, steps = update + 1, steps + trainer.steps_per_update
        measured = learner.measure(result, steps)
        now = budget.elapsed()
        pace, before = now - before, now
        yield TrainProgress(update, steps, now, budget.fraction(steps, now), measured, local(state))
        not_finite = not_finite + 1 if _is_lost(result.stats) else 0
        if not_finite == MAX_NOT_FINITE:
            raise DivergedError(
                f"no gradient of the last {not_finite} train steps was finite; the parameters "
                "before them are kept (a lower --learning-rate may help; see "
                "errors.html#divergederror)"
            )


def _is_lost(stats: Stats) -> bool:
    """Returns whether no minibatch of a train step had a finite gradient."""
    return bool(stats.get("not_finite", 0.0) >= stats.get("minibatches", 1.0))
