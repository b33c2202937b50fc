"""The training loop: runs train steps until the budget is spent and keeps the best orders."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import jax

from agents.devices import agree, local
from agents.ppo.ppo import Trainer, TrainState
from agents.train.best import BestOrders

MAX_NOT_FINITE = 10
"""Train steps in a row without any finite gradient after which training ends."""


class DivergedError(RuntimeError):
    """No gradient has been finite for a while; the parameters are the last good ones."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """What the loop reports after every train step.

    Attributes:
      update: number of train steps so far.
      steps: environment steps so far.
      seconds: since the start.
      fraction: share of the budget that is spent, from 0 to 1.
      mean_cost: mean cost of this step's episodes, by graph.
      min_cost: least cost of this step's episodes, by graph.
      improved: names of the graphs whose best order this step improved.
      stats: losses, entropy, KL and so on.
      state: the train state after the step.
    """

    update: int
    steps: int
    seconds: float
    fraction: float
    mean_cost: dict[str, float]
    min_cost: dict[str, int]
    improved: tuple[str, ...]
    stats: dict[str, float]
    state: TrainState


def train(
    trainer: Trainer,
    best: BestOrders,
    *,
    state: TrainState | None = None,
    time_limit: float | None = None,
    started: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Trains, and yields after every train step.

    Ends when `config.steps` are played or the next step would pass the time limit; the learning
    rate and the entropy bonus follow whichever budget is further spent.  Where several processes
    train together, the clock and the signals of the first one count.

    Args:
      trainer: the agent on its game.
      best: where improvements are recorded.
      state: where to start; fresh parameters by default.
      time_limit: seconds, or None.
      started: `time.monotonic()` from which the limit counts; now by default.
      should_stop: asked after every step; True ends the training.

    Raises:
      ValueError: there is neither a number of steps nor a time limit.
      DivergedError: no gradient of the last `MAX_NOT_FINITE` steps was finite.
    """
    total = trainer.config.steps
    if total is None and time_limit is None:
        raise ValueError("training needs a number of steps or a time limit")
    started = time.monotonic() if started is None else started
    state = trainer.init() if state is None else state
    update = int(state.num_updates)
    names = trainer.game.names

    def fraction(steps: int, seconds: float) -> float:
        shares = (steps / total if total else 0.0, seconds / time_limit if time_limit else 0.0)
        return min(1.0, max(shares))

    def elapsed() -> float:
        return agree(time.monotonic() - started)

    pace, before, first, not_finite = 0.0, elapsed(), True, 0
    while not agree(should_stop()):
        steps = update * trainer.steps_per_update
        late = time_limit is not None and not first and before + pace > time_limit
        if late or (total is not None and steps >= total):
            return
        state, seen = trainer.step(state, fraction(steps, before))
        seen = jax.device_get(seen)
        update += 1
        steps += trainer.steps_per_update
        improved = best.offer(seen.min_cost, seen.best_order, steps)
        now = elapsed()
        # The first step compiles, so it says nothing about the pace of the next.
        pace = 0.0 if first else now - before
        before, first = now, False
        yield Progress(
            update=update,
            steps=steps,
            seconds=now,
            fraction=fraction(steps, now),
            mean_cost=dict(zip(names, seen.mean_cost.tolist(), strict=True)),
            min_cost=dict(zip(names, seen.min_cost.tolist(), strict=True)),
            improved=improved,
            stats={name: float(x) for name, x in seen.stats.items()},
            state=local(state),
        )
        lost = seen.stats.get("not_finite", 0.0) >= seen.stats.get("minibatches", 1.0)
        not_finite = not_finite + 1 if lost else 0
        if not_finite == MAX_NOT_FINITE:
            raise DivergedError(
                f"no gradient of the last {not_finite} train steps was finite; the parameters "
                "before them are kept (a lower --learning-rate may help)"
            )
