"""Successive halving by the clock: who is fastest, and is that certain?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from veenv.search.tuning.forms import Form

ENTERING = 0.6
"""Share of the time after which no more forms are compiled."""
FIRST_RUNG = 4
"""Rounds before the first half is dropped; twice as many before the next."""
MOST_ROUNDS = 60
NO_TIME = "no time left to compile it"
GAIN = 0.97
"""A form must take at most this share of the time of JAX's own mode to take its place."""
_SHORTEST = 2e-3
"""Seconds that a form's turn lasts at least, about."""
_HOPELESS = 8.0
"""Times the best's time above which a form gets no second turn."""
_REPEATED = 5.0
"""Times its first call that must be left for a form to be called again."""
_SLACK = 1.5
"""How much longer than the last one of its kind a compilation is expected to take at most."""


@dataclass
class Trial:
    """What became of a form.

    Attributes:
      form: the form.
      first: seconds of a call before the rounds; None if it was not called.
      seconds: of a call, in each round that it was in.
      compile_seconds: of tracing and compiling.
      temporary: bytes of temporary memory; None where the backend does not tell.
      note: why it was not timed (any further).
    """

    form: Form
    first: float | None = None
    seconds: list[float] = field(default_factory=list)
    compile_seconds: float = 0.0
    temporary: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """A form that is ready to be timed: runs once, and waits for the result."""

    run: Callable[[], Any]
    temporary: int | None = None


class Contest:
    """Compiles and times forms until it is certain which one is fastest, or time is up.

    Attributes:
      trials: of all forms so far.
      settled: whether the verdict is certain.
      errors: what tracing or compiling a form raised.

    Example:
      >>> from veenv.search.tuning.forms import Form
      >>> contest = Contest(lambda form: Entry(lambda: None), end=time.perf_counter() + 0.1)
      >>> contest.run([Form("jacfwd"), Form("jacrev")])
      >>> contest.verdict().form.mode in ("jacfwd", "jacrev")
      True
    """

    def __init__(
        self,
        prepare: Callable[[Form], Entry],
        end: float,
        left: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """Nothing runs yet.

        Args:
          prepare: traces and compiles a form; what it raises says why the form is out.
          end: when the time is up.
          left: whether nobody waits any more.
          clock: tells the time.
        """
        self.trials: list[Trial] = []
        self.errors: dict[Form, Exception] = {}
        self.settled = False
        self._prepare, self._end, self._left, self._clock = prepare, end, left, clock
        self._began = clock()
        self._ready: dict[Form, Entry] = {}
        self._calls: dict[Form, int] = {}

    def run(self, forms: Iterable[Form]) -> None:
        """Lets the forms in, one by one, and then compares those that are not hopeless."""
        entering = self._began + ENTERING * (self._end - self._began)
        for form in forms:
            trial = Trial(form)
            self.trials.append(trial)
            if self._late(self._end if form.mode != "jacve" else entering - self._expected(form)):
                trial.note = NO_TIME
                continue
            self._enter(trial)
            if self._left():
                return
        self._compare()

    def verdict(self) -> Trial | None:
        """The winner so far: JAX's own mode unless another form is faster for certain."""
        # A form whose turn did not come any more is known by the call before the rounds.
        timed = [(t, t.seconds[:] or [t.first]) for t in self.trials if t.first is not None]
        if not timed:
            return None
        rounds = max(len(seconds) for _, seconds in timed)
        own = [(t, s) for t, s in timed if t.form.mode != "jacve"]
        others = [(t, s) for t, s in timed if t.form.mode == "jacve" and len(s) >= rounds - 1]
        if not own:
            return min(timed, key=lambda pair: float(np.median(pair[1])))[0]
        longest = max(len(seconds) for _, seconds in own)
        mode, base = min(
            (pair for pair in own if len(pair[1]) >= longest - 1),
            key=lambda pair: float(np.median(pair[1])),
        )
        if not others:
            return mode
        best, seconds = min(others, key=lambda pair: float(np.median(pair[1])))
        count = min(len(seconds), len(base))
        _, middle, high = spread(np.divide(seconds[:count], base[:count]))
        return best if middle <= GAIN and high < 1.0 else mode

    def _late(self, end: float) -> bool:
        return self._left() or self._clock() >= end

    def _expected(self, form: Form) -> float:
        """Seconds that tracing and compiling a form takes, from what others took."""
        alike = [t.compile_seconds for t in self.trials if t.form.kernel == form.kernel]
        return _SLACK * max(alike, default=0.0)

    def _enter(self, trial: Trial) -> None:
        """Compiles a form, warms it up and calls it once more to see how long that takes."""
        began = self._clock()
        try:
            entry = self._prepare(trial.form)
        except Exception as error:
            self.errors[trial.form] = error
            first = (str(error).splitlines() or [""])[0]
            trial.note = f"{type(error).__name__}: {first}"[:200]
            return
        finally:
            trial.compile_seconds = self._clock() - began
        trial.temporary = entry.temporary
        self._ready[trial.form] = entry
        once = self._time(trial.form, 1)
        if not self._late(self._end - _REPEATED * once):  # the first call may take longer
            once = self._time(trial.form, 1)
        self._calls[trial.form] = max(1, int(_SHORTEST / max(once, 1e-9)))
        trial.first = once

    def _time(self, form: Form, calls: int) -> float:
        entry, began = self._ready[form], self._clock()
        for _ in range(calls):
            entry.run()
        return (self._clock() - began) / calls

    def _compare(self) -> None:
        """Rounds in which all that are left are timed in turn, half of them dropped at a time."""
        called = [(t, t.first) for t in self.trials if t.first is not None]
        best = min((first for _, first in called), default=0.0)
        left = [t for t, first in called if first <= _HOPELESS * best]
        for trial, first in called:
            if trial not in left:
                trial.note = f"{first / best:.0f} times as long as the fastest"
        rung = FIRST_RUNG
        for done in range(1, MOST_ROUNDS + 1):
            for trial in left if done % 2 else left[::-1]:
                if self._late(self._end):
                    return
                trial.seconds.append(self._time(trial.form, self._calls[trial.form]))
            if done == rung:
                left, rung = halved(left), 2 * rung
            if done > FIRST_RUNG and self._certain(left):
                self.settled = all(t.note != NO_TIME for t in self.trials)
                return

    def _certain(self, left: list[Trial]) -> bool:
        """Whether further rounds would not change who wins."""
        if len(left) == 1:
            return True
        winner = self.verdict()
        if winner is None or len(left[0].seconds) < 2 * FIRST_RUNG:
            return False
        for other in (t for t in left if t is not winner):
            count = min(len(other.seconds), len(winner.seconds))
            low, _, _ = spread(np.divide(other.seconds[:count], winner.seconds[:count]))
            if low < GAIN:
                return False
        return True


def halved(trials: list[Trial]) -> list[Trial]:
    """The faster half, two at least, and the faster of JAX's own modes, which is never dropped.

    Of the last two the slower one stays until it is certain that it is.
    """
    ranked = sorted(trials, key=lambda t: float(np.median(t.seconds)))
    kept = ranked[: max(2, (len(ranked) + 1) // 2)]
    own = [t for t in ranked if t.form.mode != "jacve"]
    for trial in ranked:
        if trial not in kept and trial not in own[:1]:
            trial.note = "in the slower half"
    return kept + [t for t in own[:1] if t not in kept]


def spread(ratios: np.ndarray) -> tuple[float, float, float]:
    """Median of ratios and bounds between which it lies with about 95 % confidence.

    Args:
      ratios: float64 [n], of paired measurements.

    Returns:
      The lower bound, the median and the upper bound (order statistics, by the sign test); of
      fewer than six ratios the bounds are the extremes, widened by a tenth for each that lacks.

    Example:
      >>> low, middle, high = spread(np.full(9, 0.5))
      >>> low, middle, high
      (0.5, 0.5, 0.5)
    """
    ordered, n = np.sort(ratios), len(ratios)
    rank = max(0, int(np.floor(0.5 * n - 0.98 * np.sqrt(n))))
    wider = 1.0 + 0.1 * max(0, 6 - n)
    return (
        float(ordered[rank] / wider),
        float(np.median(ordered)),
        float(ordered[n - 1 - rank] * wider),
    )
