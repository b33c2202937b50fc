"""The training loop: rounds of train steps until the budget is spent, whatever is trained on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from agents.devices import broadcast_number, local
from agents.ppo.updates import Stats, TrainState
from agents.training.curriculum import Curriculum

MAX_NOT_FINITE = 10
"""Rounds in a row without any finite gradient after which training ends."""


class DivergedError(RuntimeError):
    """No gradient has been finite for a while; the parameters are the last good ones."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """What the loop reports after every round: one train step on each task set.

    Attributes:
      update: number of train steps so far.
      steps: environment steps so far.
      seconds: since the start.
      fraction: share of the budget that is spent, from 0 to 1.
      measured: costs, losses, entropy, KL and so on; see `Curriculum.measure`.
      state: the train state after the round.
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


class Budget:
    """The environment steps and the seconds that a run may take; process 0's clock counts."""

    def __init__(self, steps: int | None, time_limit: float | None, started: float | None):
        """Starts the clock, or has it started at a `time.monotonic()`.

        Raises:
          ValueError: there is neither.
        """
        if steps is None and time_limit is None:
            raise ValueError("training needs a number of steps or a time limit")
        self._steps, self._time_limit = steps, time_limit
        self._started = time.monotonic() if started is None else started

    def elapsed(self) -> float:
        """Seconds since the start."""
        return broadcast_number(time.monotonic() - self._started)

    def fraction(self, steps: int, seconds: float) -> float:
        """The share that is spent, from 0 to 1: that of steps or of seconds, whichever is more."""
        of_steps = steps / self._steps if self._steps else 0.0
        of_time = seconds / self._time_limit if self._time_limit else 0.0
        return min(1.0, max(of_steps, of_time))

    def is_spent(self, steps: int, seconds: float) -> bool:
        """Whether so many steps are enough, or the seconds more than the limit."""
        late = self._time_limit is not None and seconds > self._time_limit
        return late or (self._steps is not None and steps >= self._steps)


def train(
    curriculum: Curriculum,
    *,
    state: TrainState | None = None,
    steps: int | None = None,
    time_limit: float | None = None,
    started: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Trains, and yields after every round.

    Ends when `config.steps` are played or the next round would pass the time limit; the learning
    rate and the entropy bonus follow whichever budget is further spent.  Where several processes
    train together, the clock and the signals of the first one count.

    Args:
      curriculum: the agent and what it plays.
      state: where to start, between two rounds; fresh parameters by default.
      steps: environment steps that led to it; by default those of as many rounds on these tasks.
      time_limit: seconds, or None.
      started: `time.monotonic()` from which the limit counts; now by default.
      should_stop: asked after every round; True ends the training.

    Raises:
      ValueError: there is neither a number of steps nor a time limit.
      DivergedError: no gradient of the last `MAX_NOT_FINITE` rounds was finite.
    """
    budget = Budget(curriculum.config.steps, time_limit, started)
    state = curriculum.init() if state is None else state
    update = int(state.num_updates)
    rounds = update // len(curriculum.trainers)
    steps = curriculum.steps_until(state) if steps is None else steps
    pace, before, not_finite = None, budget.elapsed(), 0
    while not broadcast_number(should_stop()):
        # The first round is played however late it is, and says nothing of the pace: it compiles.
        if budget.is_spent(steps, 0.0 if pace is None else before + pace):
            return
        unseen, spent, seen = curriculum.renew(rounds), budget.fraction(steps, before), {}
        for name, trainer in curriculum.trainers.items():
            state, result = trainer.step(state, spent)
            seen[name] = jax.device_get(result)
            steps += trainer.steps_per_update
        rounds, update = rounds + 1, update + len(seen)
        measured = curriculum.measure(seen, steps, unseen=unseen)
        now = budget.elapsed()
        pace, before = 0.0 if pace is None else now - before, now
        fraction = budget.fraction(steps, now)
        yield Progress(update, steps, now, fraction, measured, local(state))
        not_finite = not_finite + 1 if all(_is_lost(s.stats) for s in seen.values()) else 0
        if not_finite == MAX_NOT_FINITE:
            raise DivergedError(
                f"no gradient of the last {not_finite} train steps was finite; the parameters "
                "before them are kept (a lower --learning-rate may help)"
            )


def _is_lost(stats: Stats) -> bool:
    """Whether no minibatch of a train step had a finite gradient."""
    return bool(stats.get("not_finite", 0.0) >= stats.get("minibatches", 1.0))
