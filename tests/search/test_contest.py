"""The contest of forms, on a clock that only the forms move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from veenv.search.tuning.contest import FIRST_RUNG, NO_TIME, Contest, Entry, spread
from veenv.search.tuning.forms import Form

FWD, REV = Form("jacfwd"), Form("jacrev")
JACVE = [Form("jacve", f"order {k}", (k,)) for k in range(1, 9)]


class Clock:
    """Seconds that compiling and calling forms takes."""

    def __init__(self, seconds: dict[Form, float], compiling: float = 0.1, noise: float = 0.0):
        self.now, self.seconds, self.compiling = 0.0, seconds, compiling
        self.compiled: list[Form] = []
        self._rng, self._noise = np.random.default_rng(0), noise

    def __call__(self) -> float:
        return self.now

    def prepare(self, form: Form) -> Entry:
        self.now += self.compiling
        self.compiled.append(form)

        def run() -> None:
            self.now += self.seconds[form] * (1 + self._noise * self._rng.uniform(-1, 1))

        return Entry(run, 100)


def contest(clock: Clock, end: float, left: Callable[[], bool] = lambda: False) -> Contest:
    found = Contest(clock.prepare, end, left, clock)
    found.run([*clock.seconds])
    return found


def test_the_fastest_form_wins_and_that_is_certain():
    clock = Clock({FWD: 2e-3, REV: 1e-3, JACVE[0]: 5e-4, JACVE[1]: 3e-4}, noise=0.1)
    found = contest(clock, end=20.0)
    assert found.verdict().form == JACVE[1]
    assert found.settled
    assert clock.now < 5.0


def test_jax_wins_ties():
    # Noise far above the distance: whichever comes out ahead by chance must not win.
    clock = Clock({FWD: 1e-3, REV: 1e-3, **dict.fromkeys(JACVE, 0.99e-3)}, noise=0.3)
    assert contest(clock, end=20.0).verdict().form.mode != "jacve"


def test_jax_wins_by_a_hair_even_without_noise():
    clock = Clock({REV: 1e-3, FWD: 2e-3, JACVE[0]: 0.98e-3})
    assert contest(clock, end=20.0).verdict().form == REV


def test_half_is_dropped_at_a_time():
    seconds = {REV: 1e-3, FWD: 2e-3} | {f: (3 + k) * 2e-4 for k, f in enumerate(JACVE)}
    found = contest(Clock(seconds), end=60.0)
    rounds = {t.form: len(t.seconds) for t in found.trials}
    assert rounds[JACVE[0]] == rounds[REV] >= 8
    assert rounds[JACVE[-1]] == 4
    assert [t.note for t in found.trials if t.form == JACVE[-1]] == ["in the slower half"]


def test_of_the_last_two_the_slower_one_stays_until_that_is_certain():
    clock = Clock({FWD: 1e-3, REV: 1.1e-3}, noise=0.3)
    found = contest(clock, end=20.0)
    rounds = [len(trial.seconds) for trial in found.trials]
    assert min(rounds) >= 2 * FIRST_RUNG
    assert max(rounds) - min(rounds) <= 1


def test_the_hopeless_get_no_rounds():
    found = contest(Clock({REV: 1e-3, FWD: 1e-1, JACVE[0]: 5e-4}), end=60.0)
    trial = next(t for t in found.trials if t.form == FWD)
    assert not trial.seconds
    assert "200 times" in trial.note


def test_no_form_is_compiled_that_would_be_late():
    # JAX's two modes take 2 s each to compile, and so will the others: one of them fits.
    clock = Clock({REV: 1e-3, FWD: 2e-3, **dict.fromkeys(JACVE, 5e-4)}, compiling=2.0)
    found = contest(clock, end=13.0)
    assert clock.compiled == [REV, FWD, JACVE[0]]
    assert clock.now < 13.0
    assert not found.settled  # others might have won
    assert [t.note for t in found.trials[3:]] == [NO_TIME] * 7


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


@pytest.mark.parametrize(("count", "sure"), [(3, False), (8, True), (40, True)])
def test_few_rounds_are_not_certain(count: int, sure: bool):
    low, middle, high = spread(np.full(count, 0.9))
    assert middle == 0.9
    assert (high < 1.0) == sure == (low > 0.8)


def test_the_bounds_hold_the_median():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        low, _, high = spread(np.exp(0.2 * rng.standard_normal(25)))
        held += low <= 1.0 <= high
    assert held >= 0.93 * 400


def test_a_mode_without_a_round_is_known_by_its_first_call():
    # Time is up in the first round, after jacfwd's turn: jacrev is known to be faster all the same.
    clock = Clock({FWD: 3.0, REV: 0.5, JACVE[0]: 2.0}, compiling=0.1)
    found = contest(clock, end=9.0)
    assert [len(t.seconds) for t in found.trials][:2] == [1, 0]
    assert found.verdict().form == REV
