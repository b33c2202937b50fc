"""Timing by a clock that the test turns."""

import numpy as np

from veenv.measure import timing


def test_methods_are_timed_interleaved():
    clock, calls = [0.0], []

    def method(name, durations):
        left = iter(durations)

        def run(x):
            calls.append((name, x))
            clock[0] += next(left)

        return run

    runs = {
        "order": method("order", [50.0, 3.0, 30.0, 4.0]),  # the first call warms up
        "baseline": method("baseline", [70.0, 2.0, 20.0, 2.0]),  # a machine ten times slower
    }
    seconds = timing.interleaved(runs, (7,), 3, shortest=0.0, clock=lambda: clock[0])
    assert {name: [*found] for name, found in seconds.items()} == {
        "order": [3.0, 30.0, 4.0],
        "baseline": [2.0, 20.0, 2.0],
    }
    rounds = [tuple(calls[k : k + 2]) for k in range(2, 8, 2)]
    both = ("order", 7), ("baseline", 7)
    assert set(rounds) == {both, both[::-1]}  # neither always follows the other


def test_quick_functions_are_called_several_times_and_slow_ones_seldom():
    now, calls = [0.0], {"quick": 0, "slow": 0}

    def method(name: str, seconds: float):
        def run() -> None:
            calls[name] += 1
            now[0] += seconds

        return run

    rounds = timing.Rounds(shortest=1.0, clock=lambda: now[0])
    assert rounds.enter("quick", method("quick", 0.125)) == 0.125
    assert rounds.enter("slow", method("slow", 30.0), left=60.0) == 30.0
    assert calls["slow"] == 1
    before = calls["quick"]
    assert rounds.run(["quick", "slow"])
    assert calls["quick"] - before == 1 + 8  # one that is not timed
    assert rounds.seconds == {"quick": {1: 0.125}, "slow": {1: 30.0}}
    end = now[0]
    assert not rounds.run(["quick", "slow"], late=lambda: now[0] > end)
    assert sorted(map(len, rounds.seconds.values())) == [1, 2]


def test_calls_of_a_turn_follow_each_other_and_only_the_last_is_waited_for():
    """What JAX hands back before it is computed: waiting for each call would be timed with it."""
    now, ready = [0.0], [0.0]

    class Result:
        def block_until_ready(self) -> None:
            now[0] = max(now[0], ready[0]) + 8e-5  # what waking the thread takes

    def run() -> Result:
        now[0] += 1e-6
        ready[0] = max(now[0], ready[0]) + 1e-5
        return Result()

    seconds = timing.interleaved({"short": run}, (), 3, clock=lambda: now[0])["short"]
    np.testing.assert_allclose(seconds, 1e-5, rtol=0.1)
