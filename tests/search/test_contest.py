"""The contest of forms, on a clock that only the forms move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from veenv.search.tuning.contest import (
    NO_TIME,
    ROUNDS,
    Contest,
    Entry,
    Trial,
    fastest,
    ratios,
)
from veenv.search.tuning.forms import AUTO, Form
from veenv.search.tuning.records import results_of

FWD, REV = Form("jacfwd"), Form("jacrev")
JACVE = [Form("jacve", f"order {k}", (k,)) for k in range(1, 9)]


class Clock:
    """Seconds that compiling and calling forms takes."""

    def __init__(
        self,
        seconds: dict[Form, float],
        compiling: float | dict[Form, float] = 0.1,
        noise: float = 0.0,
        slower: Callable[[float], float] = lambda now: 1.0,
    ):
        self.now, self.seconds, self.slower = 0.0, seconds, slower
        self.compiling = compiling if isinstance(compiling, dict) else {}
        self.usual = compiling if isinstance(compiling, float) else 0.1
        self.compiled: list[Form] = []
        self._rng, self._noise = np.random.default_rng(0), noise

    def __call__(self) -> float:
        return self.now

    def prepare(self, form: Form) -> Entry:
        self.now += self.compiling.get(form, self.usual)
        self.compiled.append(form)

        def run() -> None:
            noise = 1 + self._noise * self._rng.uniform(-1, 1)
            self.now += self.seconds[form] * noise * self.slower(self.now)

        return Entry(run, 100)


def contest(clock: Clock, end: float, left: Callable[[], bool] = lambda: False) -> Contest:
    found = Contest(clock.prepare, end, left, clock)
    found.run([*clock.seconds])
    return found


SLOWER = {"noise": 0.1, "compiling": 0.4, "slower": lambda now: 10.0 if now > 1.0 else 1.0}
WINS = {  # seconds of a call of each form, the clock, and which form wins
    "the fastest": ({FWD: 2e-3, REV: 1e-3, JACVE[0]: 5e-4, JACVE[1]: 3e-4}, {"noise": 0.1},
                    JACVE[1]),
    "JAX's by a hair": ({REV: 1e-3, FWD: 2e-3, JACVE[0]: 0.98e-3}, {}, REV),
    # Noise that hides the difference from a test at 95 %: the median still tells the better bet.
    "the default": ({AUTO: 0.9e-3, REV: 1e-3, FWD: 3e-3}, {"noise": 0.3}, AUTO),
    "a mode": ({AUTO: 1.1e-3, REV: 1e-3, FWD: 3e-3}, {"noise": 0.3}, REV),
    # Noise far above the distance: whichever comes out ahead by chance must not win.
    "no form that is tuned": ({REV: 1e-3, FWD: 1e-3, **dict.fromkeys(JACVE, 1e-3)},
                              {"noise": 0.3}, None),
    "nor beside the default": ({AUTO: 1e-3, REV: 2e-3, **dict.fromkeys(JACVE, 1e-3)},
                               {"noise": 0.3}, None),
    # Later forms look slower, but not beside each other.
    "on a machine that slows down": ({AUTO: 1e-3, REV: 2e-3, FWD: 4e-3, JACVE[0]: 0.5e-3},
                                     SLOWER, JACVE[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", WINS)
def test_who_wins(name):
    seconds, options, winner = WINS[name]
    clock = Clock(seconds, **options)
    found = contest(clock, end=20.0)
    chosen = found.verdict().form
    assert chosen == winner or (winner is None and chosen.usual)
    result = next(r for r in results_of(found.trials, found.mode()) if r.form == chosen)
    base = min(s for form, s in seconds.items() if form in (FWD, REV))
    assert result.ratio == pytest.approx(seconds[chosen] / base, rel=0.2)
    assert name != "the fastest" or (found.settled and clock.now < 5.0)


def test_a_form_that_was_timed_goes_before_one_that_was_not():
    # JAX's mode takes longer to compile than there is time, so that the caller leaves meanwhile.
    clock = Clock({AUTO: 1e-3, REV: 1e-4}, compiling={AUTO: 2.0, REV: 100.0})
    verdicts = []
    prepare = clock.prepare

    def prepared(form: Form) -> Entry:
        verdicts.append(found.verdict())
        return prepare(form)

    found = Contest(prepared, 6.0, clock=clock)
    found.run([AUTO, REV])
    assert [t and t.form for t in verdicts] == [None, AUTO]


def test_who_cannot_win_is_dropped():
    seconds = {REV: 1e-3, FWD: 2e-3} | {f: (3 + k) * 2e-4 for k, f in enumerate(JACVE)}
    found = contest(Clock(seconds), end=60.0)
    rounds = {t.form: len(t.seconds) for t in found.trials}
    assert rounds[JACVE[0]] >= 2 * ROUNDS
    assert rounds[REV] > rounds[JACVE[-1]] == ROUNDS
    notes = {t.form: t.note for t in found.trials}
    assert notes[JACVE[-1]] == "no faster than jacve order 1"
    assert found.verdict().form == JACVE[0]


def test_the_whole_time_is_used_while_there_are_forms():
    # All take 2 s to compile: six fit, the seventh would end too late.
    clock = Clock({AUTO: 1e-3, REV: 1e-3, FWD: 2e-3, **dict.fromkeys(JACVE, 5e-4)}, compiling=2.0)
    found = contest(clock, end=13.0)
    assert clock.compiled == [AUTO, REV, FWD, *JACVE[:3]]
    assert clock.now < 13.0
    assert not found.settled  # others might have won
    assert [t.note for t in found.trials[6:]] == [NO_TIME] * 5
    assert found.verdict().form in JACVE


def test_time_that_is_up_ends_it():
    clock = Clock({REV: 1.0, FWD: 2.0, JACVE[0]: 0.6}, compiling=0.1)
    found = contest(clock, end=12.0)
    assert clock.now <= 12.0 + 2.0  # the call under way
    assert not found.settled


def test_who_has_left_gets_a_verdict_on_what_there_is():
    clock = Clock({REV: 1e-3, FWD: 2e-3, JACVE[0]: 5e-4})
    found = contest(clock, 20.0, left=lambda: len(clock.compiled) == 2)
    assert clock.compiled == [REV, FWD]
    assert found.verdict().form == REV
    assert Contest(clock.prepare, 1.0, clock=clock).verdict() is None


def test_a_form_that_cannot_be_compiled_is_out():
    clock = Clock({REV: 1e-3, FWD: 2e-3, JACVE[0]: 5e-4})

    def prepare(form: Form) -> Entry:
        if form == FWD:
            raise TypeError("no forward mode\nsecond line")
        return clock.prepare(form)

    found = Contest(prepare, 20.0, clock=clock)
    found.run([REV, FWD, JACVE[0]])
    assert found.verdict().form == JACVE[0]
    assert found.trials[1].note == "TypeError: no forward mode"
    assert isinstance(found.errors[FWD], TypeError)


def test_a_mode_without_a_round_is_known_by_its_first_call():
    # Time is up in the first round: jacrev is known to be faster all the same.
    clock = Clock({FWD: 3.0, REV: 0.5}, compiling=0.1)
    found = contest(clock, end=7.0)
    first, second = found.trials
    assert not (first.seconds and second.seconds)
    assert found.verdict().form == REV
    assert ratios(first, second).size == 1
    # A first call is no measurement: no ratio is told.
    assert [r.ratio for r in results_of(found.trials, found.mode())] == [None, 1.0]


@pytest.mark.parametrize("swapped", [True, False])
def test_the_ratio_of_the_faster_is_below_one_however_noisy(swapped):
    # Of ratios 0.1 and 9.5 the mean is 4.8, and of one over them, 5.1.
    trials = [Trial(AUTO, 1.0, {1: 1.0, 2: 9.5}), Trial(FWD, 1.0, {1: 10.0, 2: 1.0})]
    best, other = trials if fastest(trials) is trials[0] else trials[::-1]
    assert fastest(trials[::-1]) is best
    if swapped:
        best, other = other, best
    (result,) = results_of([best], other)
    assert (result.ratio <= 1.0) != swapped
