"""Measured rewards: ratios from a clock that the test turns, bytes from the compiler, episodes."""

import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import veenv
from veenv.measure import timing
from veenv.measure.measured import MeasuredReward, Measurement, Meter, make_measured

POINT = (np.linspace(0.1, 0.9, 6), np.linspace(0.3, 0.7, 6))


def fun(x, y):
    z = jnp.sin(x) * y
    return jnp.cumsum(z * jnp.exp(z)), (z * x).sum()


@pytest.fixture
def graph():
    return veenv.make_graph(fun, (0, 1))(*POINT)


def test_the_ratio_is_the_median_over_rounds_timed_interleaved():
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


def test_measurement_of_an_order(graph, monkeypatch):
    given = {"order": [3.0, 30.0, 4.0], "baseline": [2.0, 20.0, 2.0]}
    monkeypatch.setattr("veenv.measure.measured.interleaved", lambda *_: given)
    meter = Meter(fun, *POINT, argnums=(0, 1), batch=5)
    found = meter.measure(graph.reverse())
    assert (found.seconds, found.baseline_seconds) == (4.0, 2.0)
    assert (found.ratio, found.low) == (1.5, 1.5)
    assert found.high == pytest.approx(1.9)
    points = [jax.ShapeDtypeStruct((5, 6), jnp.float32)] * 2
    for jacobian, bytes_found in (
        (veenv.jacve(fun, graph.reverse(), (0, 1)), found.temporary_bytes),
        (jax.jacrev(fun, (0, 1)), found.baseline_bytes),
    ):
        memory = jax.jit(jax.vmap(jacobian)).lower(*points).compile().memory_analysis()
        assert bytes_found == memory.temp_size_in_bytes
    assert found.of("runtime") == 1.5
    assert found.of("memory") == found.temporary_bytes / found.baseline_bytes
    with pytest.raises(ValueError, match="does not tell"):
        Measurement(1.0, 1.0, 1.0, 1.0, 1.0, None, None).of("memory")


def test_batch_lies_near_the_point_and_real_clocks_run(graph):
    meter = Meter(fun, *POINT, argnums=(0, 1), batch=3, rounds=2, baseline="jacfwd")
    found = meter.measure(graph.markowitz())
    assert min(found.seconds, found.baseline_seconds, found.low) > 0.0
    assert found.low <= found.ratio <= found.high
    assert meter.measure(list(graph.markowitz())) is found  # equal orders, equal rewards


@pytest.mark.parametrize("objective", ["runtime", pytest.param("memory", marks=pytest.mark.slow)])
def test_episode_pays_at_its_end(graph, objective):
    env = make_measured(fun, *POINT, argnums=(0, 1), objective=objective, rounds=2)
    _, info = env.reset(seed=0)
    order = list(graph.reverse())
    for vertex in order[:-1]:
        assert env.action_masks()[graph.eliminable.index(vertex)]
        _, reward, terminated, _, info = env.step(graph.eliminable.index(vertex))
        assert (reward, terminated) == (0.0, False)
        assert "measured" not in info
    _, reward, terminated, truncated, info = env.step(graph.eliminable.index(order[-1]))
    assert (terminated, truncated) == (True, False)
    assert info["total"] == graph.cost(order, "executed")
    assert reward == -info["measured"].of(objective) == -env.meter.measure(order).of(objective)
    assert env.step(0)[1:3] == (0.0, True)


def test_an_illegal_move_is_paid_less_than_the_slowest_order(graph):
    env = make_measured(fun, *POINT, argnums=(0, 1), rounds=1, worst=1e-9)
    env.reset()
    for vertex in graph.forward():
        _, reward, *_ = env.step(graph.eliminable.index(vertex))
    assert reward == -1e-9  # whatever it measured
    env.reset()
    env.step(0)
    _, reward, terminated, _, info = env.step(0)
    assert (reward, terminated, info["illegal"]) == (-1e-9 - 1.0, True, True)
    assert "measured" not in info
    assert env.step(0)[1] == 0.0
    with pytest.raises(TypeError, match="integer slot"):
        env.step(1.0)


def test_gymnasium_checker_has_nothing_to_say():
    env = make_measured(lambda x: jnp.sin(jnp.exp(x)) * x, 0.5, batch=2, rounds=1)  # two orders
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*different from the unwrapped version")
        check_env(env, skip_render_check=True)


def test_what_cannot_be_measured_is_refused(graph):
    with pytest.raises(ValueError, match="baseline must be one of jacrev, jacfwd"):
        Meter(fun, *POINT, baseline="hessian")
    with pytest.raises(ValueError, match="must be positive"):
        Meter(fun, *POINT, rounds=0)
    with pytest.raises(ValueError, match="neither arguments"):
        Meter("mlp", 1.0)
    meter = Meter(fun, *POINT, argnums=(0, 1), rounds=1)
    with pytest.raises(ValueError, match="misses"):
        meter.measure(graph.forward()[1:])
    env = gymnasium.make("veenv:veenv/PropaneCombustion-v0")
    with pytest.raises(ValueError, match="objective must be one of runtime, memory"):
        MeasuredReward(env, meter, "energy")
    with pytest.raises(ValueError, match="worst must be positive"):
        MeasuredReward(env, meter, worst=float("nan"))


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
