"""Compiles and times forms until the choice between them is statistically certain."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from veenv.measure.timing import SHORTEST, Rounds, spread
from veenv.search.tuning.forms import Form

ROUNDS = 4
"""Rounds after each form enters; the choice is certain after at least twice as many."""
MOST_ROUNDS = 60
"""Most rounds at the end; fewer usually distinguish forms that differ by 3 %."""
NO_TIME = "no time left to compile it"
GAIN = 0.97
"""Largest ratio of times at which a form replaces another."""
_HOPELESS = 8.0  # ratio to the best time above which a form gets no second turn
_FEW = 2  # rounds that suffice for a form that is so much slower
_CLOSE = 1.1
"""Largest quotient of the reported ratio's bounds: remeasured, it differs by a tenth at most."""
_COMPARING = 0.05  # share of the time for the rounds after each form that enters, about
_CHEAP = 0.1  # share of it that a call may take for a slow form to stay in the rounds


@dataclass(eq=False)
class Trial:
    """The trial of a form: its times, or the reason why there are none."""

    form: Form  # the form
    first: float = inf  # seconds of a call before the rounds; infinite if it was not called
    seconds: dict[int, float] = field(default_factory=dict)  # of a call, by the number of the round
    compile_seconds: float = 0.0  # of tracing and compiling
    temporary: int | None = None  # bytes of temporary memory; None where the backend does not tell
    note: str = ""  # why it was not timed (any further)

    def times(self) -> list[float]:
        """Returns seconds of a call: of the rounds, or else of the call before them."""
        return [*self.seconds.copy().values()] or ([] if self.first == inf else [self.first])


def ratios(trial: Trial, other: Trial) -> np.ndarray:
    """Returns ratios of two trials' seconds in the rounds of both, float64 [n], n at least 1."""
    mine, theirs = trial.seconds.copy(), other.seconds.copy()
    common = [mine[r] / theirs[r] for r in mine if r in theirs]
    return np.array(common or [np.median(trial.times()) / np.median(other.times())])


def fastest(trials: Sequence[Trial]) -> Trial | None:
    """Returns the fastest of several timed trials, each compared in the rounds of both."""
    best = None
    for trial in trials:
        if best is None or spread(ratios(trial, best))[1] < 1.0:
            best = trial
    return best


@dataclass(frozen=True)
class Entry:
    """A compiled form to be timed: a call runs it once, and waits for the result."""

    run: Callable[[], Any]
    temporary: int | None = None


class Contest:
    """Compiles and times forms until it is certain which one is fastest, or time is up.

    Another thread may ask for the verdict at any time.

    Attributes:
      trials: of all forms so far.
      settled: whether more time would not change the verdict.
      errors: what tracing or compiling a form raised.
    """

    def __init__(
        self,
        prepare: Callable[[Form], Entry],
        end: float,
        left: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """Prepares the contest, which `run` starts.

        `prepare` compiles a form, or raises why the form is out; `left` says whether nobody waits.
        """
        self.trials: list[Trial] = []
        self.errors: dict[Form, Exception] = {}
        self.settled = False
        self._prepare, self._end, self._left, self._clock = prepare, end, left, clock
        self._turn = _COMPARING * (end - clock())
        self._rounds = Rounds[Form](SHORTEST, clock)
        self._in: list[Trial] = []

    def run(self, forms: Iterable[Form]) -> None:
        """Enters the forms one by one, and then times those that may win against each other."""
        for form in forms:
            if self._left():
                return
            trial = Trial(form)
            self.trials.append(trial)
            if self._clock() + self._expected(form) >= self._end:
                trial.note = NO_TIME
            else:
                self._enter(trial)
        for _ in range(MOST_ROUNDS):
            if not self._in or self._certain():
                break
            if not self._round():
                return
        self.settled = all(t.note != NO_TIME for t in self.trials)

    def verdict(self) -> Trial | None:
        """Returns the winner so far: a form without tuning, unless another is certainly faster."""
        trials = self._in[:]
        usual = fastest([t for t in trials if t.form.usual])
        other = fastest([t for t in trials if not t.form.usual])
        if usual is None or other is None:
            return usual or other
        _, middle, high = spread(ratios(other, usual))
        return other if middle <= GAIN and high < 1.0 else usual

    def mode(self) -> Trial | None:
        """Returns the faster of JAX's modes; None if neither was called."""
        return fastest([t for t in self._in[:] if t.form.by_jax])

    def _late(self) -> bool:
        return self._left() or self._clock() >= self._end

    def _expected(self, form: Form) -> float:
        """Estimates the seconds to trace and compile a form, from those of other forms."""
        alike = [t.compile_seconds for t in self.trials if t.form.kernel == form.kernel]
        return float(np.median([t for t in alike if t] or [0.0]))

    def _enter(self, trial: Trial) -> None:
        """Compiles a form, warms it up and compares it with those before it."""
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
        left = self._end - self._clock()
        trial.first = self._rounds.enter(trial.form, entry.run, left)
        trial.seconds = self._rounds.seconds[trial.form]
        if not trial.form.by_jax and self._slow(trial):
            self._drop(trial, f"more than {_HOPELESS:.0f} times as long as the fastest")
            return
        self._in.append(trial)
        until, rounds = self._clock() + self._turn, 0
        while len(self._in) > 1 and (rounds < ROUNDS or not self._is_close()):
            if not self._round() or self._clock() >= until:
                return
            rounds += 1

    def _slow(self, trial: Trial) -> bool:
        return trial.first > _HOPELESS * min(t.first for t in [*self._in, trial])

    def _round(self) -> bool:
        """Runs one round and drops forms that cannot win; returns whether there was time for it."""
        candidates = self._candidates()
        near = [t for t in self._in if not self._rests(t, candidates[0])]
        if not self._rounds.run([t.form for t in near], self._late):
            return False
        winner, *_ = candidates = self._candidates()
        for trial in self._in[:]:
            rival = self.mode() if trial.form.by_jax else winner
            if trial not in candidates and rival is not None:
                paired = ratios(trial, rival)
                if len(paired) >= ROUNDS and spread(paired)[0] >= GAIN:
                    self._in.remove(trial)
                    self._drop(trial, f"no faster than {rival.form.label}")
        return True

    def _rests(self, trial: Trial, winner: Trial) -> bool:
        """Returns whether a form is known to be too slow to take part in further rounds."""
        expensive = trial.first > _CHEAP * self._turn
        return expensive and self._slow(trial) and _known(trial, winner)

    def _candidates(self) -> list[Trial]:
        """Returns the winner so far, then the trials that it is compared with."""
        usual = fastest([t for t in self._in if t.form.usual])
        return [t for t in (self.verdict(), self.mode(), usual) if t is not None]

    def _drop(self, trial: Trial, note: str) -> None:
        trial.note = note
        self._rounds.leave(trial.form)

    def _certain(self) -> bool:
        """Returns whether further rounds would change neither the winner nor its ratio by much."""
        winner, *rivals = candidates = self._candidates()
        if any(trial not in candidates for trial in self._in):
            return False
        for trial in rivals:
            paired = ratios(trial, winner)
            sure = len(paired) >= 2 * ROUNDS and spread(paired)[0] >= GAIN
            if trial is not winner and not (sure or (self._slow(trial) and _known(trial, winner))):
                return False
        return self._is_close()

    def _is_close(self) -> bool:
        """Returns whether the ratio to report is known, or cannot be improved."""
        winner, mode = self.verdict(), self.mode()
        if winner is None or mode is None or self._rests(mode, winner):
            return True
        low, _, high = spread(ratios(winner, mode))
        return high <= _CLOSE * low


def _known(slow: Trial, other: Trial) -> bool:
    """Returns whether the ratio of a form that is far slower is known well enough."""
    return len(slow.seconds.keys() & other.seconds.keys()) >= _FEW
